"""Tests of the REST API: most call the ASGI application directly, some use real sockets."""
