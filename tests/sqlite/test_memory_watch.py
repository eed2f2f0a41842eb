"""Notifications of a database in memory, whose only connection may be in use in another thread."""

import asyncio
import threading
from typing import cast

import pytest

from detent import Detent
from detent.stores.sqlite.claim import SqliteTx
from detent.stores.sqlite.store import SqliteStore
from support.waiting import until, within

pytestmark = pytest.mark.anyio


async def test_the_version_can_be_read_while_the_writer_runs_a_statement() -> None:
    app = Detent("sqlite:///:memory:")
    running, go_on = threading.Event(), threading.Event()

    def wait(*_: object) -> int:
        running.set()
        assert go_on.wait(10)
        return 1

    async def slow(tx: SqliteTx) -> None:
        tx.connection.create_scalar_function("wait", wait, 0)
        tx.connection.execute("SELECT wait()").fetchall()

    @app.job("work")
    async def work() -> None: ...

    async with app:
        store = cast(SqliteStore, app.engine.store)
        watch = store.watch()
        task = asyncio.ensure_future(store._on(store._writer, slow))
        await until(running.is_set)
        store.watch()
        assert not await watch.changed(0.01), "nothing was committed yet"
        go_on.set()
        await within(10, task)
        await work.enqueue()
        assert await watch.changed(1)
        assert not await watch.changed(0.01)
        await store.read(lambda tx: tx.due.next_due())
        assert not await watch.changed(0.01), "a read is not news"
