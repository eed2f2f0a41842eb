"""Commits of other processes are reported by the kernel, and by polling where that is not possible."""

import asyncio
import os
from pathlib import Path
from typing import cast

import pytest

from detent import Detent
from detent.stores.sqlite import file_watch
from detent.stores.sqlite.store import SqliteStore
from support.waiting import until, within

pytestmark = pytest.mark.anyio


def make_app(path: Path) -> Detent:
    app = Detent(f"sqlite:///{path}")

    @app.job("work")
    async def work() -> None: ...

    return app


async def changes_after_commit_of_another_store(folder: Path) -> bool:
    """Whether a watch sees the commit of a second store on the same file within two seconds."""
    ours, theirs = make_app(folder / "jobs.db"), make_app(folder / "jobs.db")
    async with ours, theirs:
        store = cast(SqliteStore, ours.engine.store)
        watch = store.watch()
        await watch.changed(0.01)
        waiting = asyncio.ensure_future(watch.changed(2))
        await until(lambda: store._waiters)
        await theirs.jobs["work"].enqueue()
        return await within(10, waiting)


@pytest.mark.skipif(not os.path.exists("/proc/sys/fs/inotify"), reason="the kernel has no inotify")
async def test_a_commit_is_reported_without_polling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_watch, "_POLL_SECONDS", 5.0)
    began = asyncio.get_running_loop().time()
    assert await changes_after_commit_of_another_store(tmp_path)
    assert asyncio.get_running_loop().time() - began < 1.5, "it was seen at the end of the wait only"


async def test_a_commit_is_seen_by_polling_without_inotify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_watch, "_inotify_descriptor", lambda _: None)
    assert await changes_after_commit_of_another_store(tmp_path)


async def test_a_store_closes_its_descriptor(tmp_path: Path) -> None:
    async with make_app(tmp_path / "jobs.db"):
        pass
    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    for _ in range(5):
        async with make_app(tmp_path / "jobs.db") as app:
            await app.engine.store.watch().changed(0.001)
    after = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    assert after <= before
