"""The routes of the API, one small file for each kind of thing."""
