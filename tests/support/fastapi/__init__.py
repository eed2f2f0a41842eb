"""A FastAPI application for the tests."""
