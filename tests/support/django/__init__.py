"""A Django project for the tests, and the runner of Django's own tests."""
