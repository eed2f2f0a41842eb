"""The REST API and the dashboard: an ASGI application to be served alone or mounted in another one."""

from .app import create_app

__all__ = ["create_app"]
