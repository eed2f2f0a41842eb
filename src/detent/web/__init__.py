"""The REST API and the dashboard: an ASGI application, served alone or mounted in another one."""

from detent.system.extras import extra_imports

with extra_imports():
    from .app import create_app
    from .http.settings import Settings

__all__ = ["Settings", "create_app"]
