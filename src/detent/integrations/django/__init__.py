"""Django: a backend for `django.tasks`, enqueueing in Django's transactions, `manage.py detent`, and a read-only admin.

    INSTALLED_APPS = [..., "detent.integrations.django"]
    TASKS = {"default": {"BACKEND": "detent.integrations.django.backend.DetentBackend"}}

Django 6 has `django.tasks`; Django 5.2 needs the package `django-tasks`. The jobs are in the database of
`DATABASES["default"]`; `OPTIONS = {"database": alias}` or `{"url": "postgresql://…"}` name another one.
"""

from typing import TYPE_CHECKING, Any

from detent.client.external_transaction import CallerTransaction
from detent.core.errors import InvalidInput

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


async def caller_transaction(connection: "BaseDatabaseWrapper") -> CallerTransaction:
    """The transaction of a Django connection, for `enqueue_in`. Needs `transaction.atomic()`; never suspends."""
    from django.db import DEFAULT_DB_ALIAS, connections, transaction

    wrapper: Any = connections[DEFAULT_DB_ALIAS] if connection is _default_proxy() else connection
    if getattr(wrapper, "vendor", None) != "postgresql" or not wrapper.is_usable():
        raise InvalidInput(
            f"{type(wrapper).__qualname__} is not a Django connection to Postgres; pass django.db.connection",
            code="CONNECTION_UNKNOWN",
        )
    using = wrapper.alias
    return CallerTransaction(wrapper.connection, lambda notify: transaction.on_commit(notify, using=using))


def _default_proxy() -> Any:
    from django.db import connection

    return connection
