"""Handlers that use the Django ORM: `detent worker examples/django_orm.py`, on the Postgres of $DETENT_URL.

A plain `def` handler runs in a thread, and Django has one connection per thread: at most one per slot of the worker.
`close_old_connections` before a job makes Django check the thread's connection and replace it if the server has been
restarted; after a job it closes the connection, unless CONN_MAX_AGE keeps it.
"""

import functools
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar
from urllib.parse import unquote, urlsplit

import django
from django.conf import settings
from django.db import close_old_connections, models

from detent import Detent

P = ParamSpec("P")
R = TypeVar("R")
url = urlsplit(os.environ["DETENT_URL"])
settings.configure(  # in a project: os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "HOST": url.hostname,
            "PORT": url.port or 5432,
            "NAME": url.path.strip("/"),
            "USER": unquote(url.username or ""),
            "PASSWORD": unquote(url.password or ""),
            "CONN_MAX_AGE": 600,
            "CONN_HEALTH_CHECKS": True,
            "OPTIONS": {"application_name": "orders"},
        }
    }
)
django.setup()
app = Detent()


class Order(models.Model):
    paid = models.BooleanField(default=False)

    class Meta:
        app_label = "shop"
        db_table = "shop_orders"


def with_connections(function: Callable[P, R]) -> Callable[P, R]:
    """As Django does around a request."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        close_old_connections()
        try:
            return function(*args, **kwargs)
        finally:
            close_old_connections()

    return run


@app.job("pay", max_retries=0)
@with_connections
def pay(order: int) -> int:
    Order.objects.update_or_create(id=order, defaults={"paid": True})
    return Order.objects.filter(paid=True, id=order).count()
