"""The OpenAPI document, its schemas and the page that shows it."""
