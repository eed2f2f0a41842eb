"""A handler that blocks the event loop: a warning with its stack, a metric, and `why` says so."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from detent import Detent
from detent.engine import Submission
from detent.engine.reads.why import Why
from detent.observability.metrics import exposition
from detent.worker.worker import Worker
from support.waiting import until
from support.worker.running import working

pytestmark = pytest.mark.anyio
BLOCKED = "detent.worker.loop_watch"


@pytest.fixture
async def app(url: str) -> AsyncIterator[Detent]:
    app = Detent(url)
    engine = app.make_engine(may_migrate=True)
    await engine.open()
    await engine.close()
    async with app:
        yield app


class Blocker:
    """A handler that blocks its event loop until the test releases it, from another thread."""

    def __init__(self, app: Detent) -> None:
        self.released = threading.Event()
        self.started = threading.Event()
        self.job = app.job("blocks")(self.block)
        self.other = app.job("other")(self.wait)

    async def block(self) -> None:
        self.started.set()
        self.released.wait(30)

    async def wait(self) -> None:
        await asyncio.sleep(3_600)


def why_in_a_thread(url: str, job_id: str, reason: str) -> Why:
    """What `why` says of the job once it has this reason; in this thread, because the loop of the test is blocked."""

    async def ask() -> Why:
        async with Detent(url) as app:

            async def found() -> Why | None:
                explanation = await app.engine.jobs.why(job_id)
                reasons = [explanation.reason, *(other["reason"] for other in explanation.details["also"])]
                return explanation if reason in reasons else None

            explanation: Why = await until(found)
            return explanation

    return asyncio.run(ask())


async def workers_in_a_thread(url: str) -> Any:
    async with Detent(url) as app:
        return (await app.engine.workers.overview()).views()


async def enqueue_in_a_thread(url: str) -> str:
    async with Detent(url) as app:
        return (await app.engine.jobs.submit(Submission("blocks"))).job.id


@pytest.mark.parametrize("url", ["sqlite", pytest.param("postgres", marks=pytest.mark.drill)], indirect=True)
async def test_it_is_noticed(app: Detent, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, BLOCKED)
    blocker = Blocker(app)
    found: dict[str, Why] = {}
    listed: list[Any] = []

    def watch(own: str, held: str) -> None:
        try:
            blocker.started.wait(30)
            queued = asyncio.run(enqueue_in_a_thread(app.url))
            for name, job_id in (("own", own), ("held", held), ("queued", queued)):
                found[name] = why_in_a_thread(app.url, job_id, "LOOP_BLOCKED")
            listed.extend(asyncio.run(workers_in_a_thread(app.url)))
        finally:
            blocker.released.set()

    async with working(app, slots=2, block_warning_seconds=0.1) as worker:
        held = await blocker.other.enqueue()
        await until(lambda: held_by(app, held))
        own_id = app.engine.ids.job()  # known before the enqueue, which returns when the loop is no longer blocked
        watcher = threading.Thread(target=watch, args=(own_id, held.id))
        watcher.start()
        await app.engine.jobs.submit(Submission("blocks", id=own_id))
        own = await app.handle(own_id)
        await own.result(30)
        await asyncio.to_thread(watcher.join)
        await until(lambda: worker._loop_watch.report is None)
        page, _ = await exposition(worker.engine, histograms=worker._histograms)
        await until(lambda: no_stored_block(worker))
    (sentence,) = [reason["sentence"] for reason in found["own"].details["also"]]
    assert found["own"].reason == "HELD" and sentence.startswith("its handler has blocked the event loop of its worker")
    assert "test_blocked_loop.py" in sentence and "plain `def`" in sentence
    (sentence,) = [reason["sentence"] for reason in found["held"].details["also"]]
    assert f"job {own.id} (blocks) has blocked the event loop of its worker" in sentence
    (block,) = [worker["blocked"] for worker in listed]
    assert (block["job_id"], block["job_type"]) == (own.id, "blocks") and "test_blocked_loop.py" in block["location"]
    assert found["queued"].reason == "LOOP_BLOCKED" and own.id in found["queued"].sentence
    lines = [record for record in caplog.records if record.name == BLOCKED and own.id in record.getMessage()]
    warning, ended = lines
    assert (warning.levelname, ended.levelname) == ("WARNING", "INFO")
    assert f"the handler of job {own.id} (blocks) has blocked the event loop for" in warning.getMessage()
    assert f"by the handler of job {own.id}" in ended.getMessage()
    stack = str(warning.stack_info)
    assert "in block\n" in stack and "released.wait" in stack and "worker/runner.py" not in stack
    assert b'detent_loop_blocked_seconds_count{contract="standard",job_type="blocks",queue="default"}' in page


async def held_by(app: Detent, handle: Any) -> bool:
    return (await handle.job()).worker is not None


async def no_stored_block(worker: Worker) -> bool:
    (row,) = await worker.engine.store.read(lambda tx: tx.workers.list_workers())
    return row.blocked is None


async def test_it_can_be_turned_off_and_idle_loops_are_not_blocked(
    app: Detent, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, BLOCKED)
    blocker = Blocker(app)
    async with working(app, block_warning_seconds=0):
        handle = await blocker.job.enqueue()
        threading.Thread(
            target=lambda: blocker.started.wait(30) and threading.Timer(0.3, blocker.released.set).start()
        ).start()
        await handle.result(30)
        assert "detent-loop-watch" not in {thread.name for thread in threading.enumerate()}
    async with working(app, block_warning_seconds=0.5) as worker:
        for _ in range(3):
            await (await blocker.job.enqueue()).result(30)
        await worker.idle.wait()
        assert "detent-loop-watch" in {thread.name for thread in threading.enumerate()}
    assert "(blocks)" not in caplog.text
