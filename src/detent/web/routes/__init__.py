"""The routes of the REST API, in one module per resource."""
