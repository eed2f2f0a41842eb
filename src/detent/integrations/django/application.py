"""The Detent applications of the Django project: one for each entry of TASKS, with the tasks of all installed apps."""

from collections.abc import Callable
from threading import RLock
from typing import Any
from urllib.parse import quote, urlencode

from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import close_old_connections
from django.utils.module_loading import autodiscover_modules

from detent.client.app import Detent
from detent.client.connect import default_url
from detent.handler.sync_context import SyncContext

_APPS: dict[tuple[str, str], Detent] = {}
"""(alias of TASKS, URL) -> its application. Backends are made once per thread; these are shared."""
LOCK = RLock()
"""Held to make an application, or to declare a task in it."""


def application_of(alias: str, options: dict[str, Any]) -> Detent:
    """The application of one entry of TASKS."""
    url = options.get("url") or url_of(options.get("database", "default"))
    with LOCK:
        app = _APPS.get((alias, url))
        if app is None:
            app = _APPS[alias, url] = Detent(url)
            app.middleware(_with_usable_connections)
        return app


def _with_usable_connections(ctx: SyncContext, call_next: Callable[[], Any]) -> Any:
    """Around each execution of a task or job that is a plain function, in its thread."""
    close_old_connections()
    try:
        return call_next()
    finally:
        close_old_connections()


def detent_app(alias: str = "default") -> Detent:
    """The application of `TASKS[alias]`, for jobs of your own. A worker finds those in a module `tasks` of your apps.

    jobs = detent_app()

    @jobs.job("process_order")
    def process_order(ctx: SyncContext, order_id: int) -> None: ...
    """
    return application_of(alias, settings.TASKS[alias].get("OPTIONS", {}))


def url_of(database: str) -> str:
    """The URL of an entry of DATABASES. Jobs of a project on SQLite are in a file of their own beside its database.

    Django's SQLite is another copy of the library than Detent's, and two copies in one process release each other's
    file locks.
    """
    entry = settings.DATABASES.get(database)
    if entry is None:
        raise ImproperlyConfigured(f"TASKS: DATABASES has no entry {database!r}")
    engine = entry["ENGINE"]
    if "postgresql" in engine or "postgis" in engine:
        return _postgres_url(entry)
    if "sqlite" in engine and str(entry["NAME"]) != ":memory:" and not str(entry["NAME"]).startswith("file:"):
        return f"sqlite:///{entry['NAME']}-jobs.db"
    return default_url()


def _postgres_url(entry: dict[str, Any]) -> str:
    def part(name: str) -> str:
        return quote(str(entry.get(name) or ""), safe="")

    login = part("USER") + (f":{part('PASSWORD')}" if entry.get("PASSWORD") else "")
    host = str(entry.get("HOST") or "")
    query: dict[str, str] = {}
    if host.startswith("/"):
        query["host"], host = host, ""
    given: dict[str, Any] = entry.get("OPTIONS") or {}
    query |= {name: str(given[name]) for name in ("sslmode", "sslrootcert", "sslcert", "sslkey") if name in given}
    port = f":{part('PORT')}" if entry.get("PORT") else ""
    address = f"{login}@{host}{port}" if login else f"{host}{port}"
    return f"postgresql://{address}/{part('NAME')}" + (f"?{urlencode(query)}" if query else "")


def project_app(alias: str = "default") -> Detent:
    """The application of `TASKS[alias]` with every task that a module `tasks` of an installed app declares."""
    from .backend import DetentBackend, task_backends

    if not apps.ready:
        raise ImproperlyConfigured("call django.setup() first")
    backend = task_backends[alias]
    if not isinstance(backend, DetentBackend):
        raise ImproperlyConfigured(f"TASKS[{alias!r}] is not a DetentBackend")
    autodiscover_modules("tasks")
    backend.declare_imported()
    return backend.app
