"""What an enqueue costs: functions from the engine to the commit, pages in the log, and how long the sync takes."""

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import detent
from detent import Detent
from detent.core.job import Change
from detent.stores.sqlite import batcher

pytestmark = pytest.mark.anyio
MAX_FUNCTIONS = 22
MAX_PAGES = 5.9
"""Written to the log for one enqueue: jobs and its two indexes, events and its index, and the splits of their pages."""
SOURCE = str(Path(detent.__file__).parent)
COMPREHENSIONS = {"<listcomp>", "<dictcomp>", "<setcomp>"}
"""Functions of their own in Python 3.11; part of the function around them since Python 3.12."""


class Recorder:
    """The functions of the package that are entered while `on` is true, in every thread, in order."""

    def __init__(self) -> None:
        self.on = False
        self.callers: set[CodeType] = set()
        """Coroutines that await the recorded call: they are entered again when it ends."""
        self.entered: dict[CodeType, None] = {}

    def start(self) -> None:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            self.callers.add(frame.f_code)
            frame = frame.f_back
        self.on = True

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if not self.on or event != "call" or not code.co_filename.startswith(SOURCE):
            return
        if code not in self.callers and code.co_name not in COMPREHENSIONS:
            self.entered[code] = None

    @property
    def names(self) -> list[str]:
        return [f"{code.co_filename.removeprefix(SOURCE)} {code.co_qualname}" for code in self.entered]


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    recorder = Recorder()
    threading.setprofile(recorder)  # for the threads of the store, which start when it is opened
    sys.setprofile(recorder)
    yield recorder
    sys.setprofile(None)
    threading.setprofile(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("commits", ["on the loop", "on the thread"])
async def test_an_enqueue_takes_few_functions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorder: Recorder, commits: str
) -> None:
    monkeypatch.setattr(batcher, "_FAST_COMMIT_SECONDS", float("inf") if commits == "on the loop" else 0.0)
    monkeypatch.setattr(batcher, "_RETRY_INLINE_EVERY", 1 << 60)
    app = Detent(f"sqlite:///{tmp_path}/jobs.db")

    @app.job("mail")
    async def mail(number: int) -> None: ...

    async with app:
        store: Any = (await app.ready()).store
        insert = store.insert

        async def recorded_insert(changes: Sequence[Change]) -> set[str]:
            recorder.start()
            try:
                present: set[str] = await insert(changes)
                return present
            finally:
                recorder.on = False

        await mail.enqueue(1)  # interns queue, job type and tenant
        monkeypatch.setattr(store, "insert", recorded_insert)
        handle = await mail.enqueue(2)
        assert (await handle.job()).version == 1
    names = recorder.names
    assert any(name.endswith("FileGuard.check") for name in names), "the file is checked before the acknowledgement"
    assert len(names) <= MAX_FUNCTIONS, "\n".join(names)


async def test_an_enqueue_writes_few_pages(tmp_path: Path) -> None:
    app = Detent(f"sqlite:///{tmp_path}/jobs.db")

    @app.job("mail")
    async def mail() -> None: ...

    pages: list[int] = []
    async with app:
        store: Any = (await app.ready()).store
        await mail.enqueue()
        store._writer.connection.set_wal_hook(lambda _connection, _name, number: pages.append(number) or 0)
        for _ in range(300):
            await mail.enqueue()
    assert (pages[-1] - pages[0]) / (len(pages) - 1) <= MAX_PAGES


async def test_the_times_of_the_log_are_neither_read_nor_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Either would make Linux write the inode of the log with the next commit, which takes a third longer."""
    app = Detent(f"sqlite:///{tmp_path}/jobs.db")
    paths: list[str] = []

    @app.job("mail")
    async def mail() -> None: ...

    def recorded(function: Any) -> Any:
        def call(path: Any, *args: Any, **options: Any) -> Any:
            paths.append(str(path))
            return function(path, *args, **options)

        return call

    async with app:
        await mail.enqueue()
        for name in ("stat", "utime"):
            monkeypatch.setattr(os, name, recorded(getattr(os, name)))
        await mail.enqueue()
    assert f"{tmp_path}/jobs.db" in paths, "the file is checked"
    assert f"{tmp_path}/jobs.db-wal" not in paths
