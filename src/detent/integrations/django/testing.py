"""Tasks in Django's test cases: on a database in memory, in virtual time, and inside the transaction of the test."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections

from detent.handler.sync_context import SyncContext
from detent.testing.memory import TestWorker, on_memory

from .application import project_app


@contextmanager
def running_tasks(alias: str = "default") -> Iterator[TestWorker]:
    """Within the block the tasks and jobs of `TASKS[alias]` are in memory, and run when the test says so.

        class OrderTests(TestCase):
            def test_an_order(self) -> None:
                with running_tasks() as worker:
                    ship.enqueue(7)
                    worker.sync.drain()

    Plain tasks use the database connections of the test, so they see what a `TestCase` has not committed. Async tasks
    use their own connections: test them with `TransactionTestCase`.
    """
    app = project_app(alias)
    of_test: dict[str, Any] = {name: connections[name] for name in connections}

    def share_connections(ctx: SyncContext, call_next: Callable[[], Any]) -> Any:
        of_thread: dict[str, Any] = {name: connections[name] for name in connections}
        try:
            for name, connection in of_test.items():
                connections[name] = connection
            return call_next()
        finally:
            for name, connection in of_thread.items():
                connections[name] = connection

    for connection in of_test.values():
        connection.inc_thread_sharing()
    app.hooks.plain_middleware.insert(0, share_connections)
    try:
        with on_memory(app) as worker:
            yield worker
    finally:
        app.hooks.plain_middleware.remove(share_connections)
        for connection in of_test.values():
            connection.dec_thread_sharing()
