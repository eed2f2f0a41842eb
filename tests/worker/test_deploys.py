"""Rolling deploys: a worker that cannot bind a payload hands the job back, uncharged, to workers that can."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import detent
from detent import Detent, JobFailed
from detent.cli.loader import load_app
from detent.engine import Submission
from detent.ports.listing import Filter
from support.waiting import until, within
from support.worker.running import working

pytestmark = pytest.mark.anyio
SOURCE = Path(detent.__file__).parent.parent
PAGE = (SOURCE.parent / "docs" / "operate" / "deploys.md").read_text("utf-8")
OPTIONS, PREVIOUS, PRESENT = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
JOBS = 6


@contextmanager
def worker_process(script: Path, url: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = os.environ | {"DETENT_URL": url, "PYTHONPATH": str(SOURCE)}
    with script.with_suffix(".log").open("wb") as log:
        command = [sys.executable, "-m", "detent", "worker", str(script)]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


@pytest.mark.long
@pytest.mark.parametrize("url", ["sqlite", pytest.param("postgres", marks=pytest.mark.drill)], indirect=True)
async def test_previous_and_present_handlers_side_by_side(url: str, tmp_path: Path) -> None:
    """The example of deploys.md: what only the new code understands ends there, and nothing is dead-lettered."""
    previous, present = tmp_path / "previous.py", tmp_path / "present.py"
    previous.write_text(PREVIOUS)
    present.write_text(PRESENT)
    app = load_app(str(present), url)
    charge = app.jobs["charge"]
    async with app:
        with worker_process(previous, url) as old:
            plain = await charge.enqueue(order_id=0)
            assert await within(30, plain.result()) == "order 0 charged by the previous version"
            new = await charge.enqueue_many([{"order_id": n, "currency": "JPY"} for n in range(1, JOBS + 1)])
            await until(lambda: _handed_back(app, [new[0].id]))
            with worker_process(present, url):
                waits = [asyncio.create_task(handle.result()) for handle in new]
                ended, _ = await asyncio.wait(waits, timeout=30, return_when=asyncio.FIRST_COMPLETED)
                assert ended, "the present version works"
                old.terminate()
                results = await within(30, asyncio.gather(*waits))
                assert old.wait(30) == 0
        assert results == [f"order {n} charged in JPY by the present version" for n in range(1, JOBS + 1)]
        jobs = [await handle.job() for handle in new]
        assert {(job.failures, job.retries, job.dlq_id) for job in jobs} == {(0, 0, None)}
        engine = await app.ready()
        assert await engine.dead_letters.list(Filter()) == []


async def _handed_back(app: Detent, ids: list[str]) -> bool:
    """True when every job was handed back at least once."""
    engine = await app.ready()
    histories = [await engine.jobs.history(job_id) for job_id in ids]
    return all(any(note.name == "job.handed_back" for note in history.notes) for history in histories)


@pytest.mark.parametrize("mode", ["auto", "thread"])
async def test_a_payload_that_does_not_bind_is_handed_back_with_a_note(app: Detent, mode: str) -> None:
    if mode == "auto":

        @app.job("work")
        async def work(n: int) -> int:
            return n
    else:

        @app.job("work", run_in="thread")
        def work_in_thread(n: int) -> int:
            return n

    engine = await app.ready()
    job = (await engine.jobs.submit(Submission("work", {"n": 1, "m": 2}))).job
    async with working(app):
        await until(lambda: _handed_back(app, [job.id]))
    history = await engine.jobs.history(job.id)
    event, note = history.events[2], history.notes[0]
    assert (event.event, (event.data or {})["reason"]) == ("job.released", "handed_back")
    data = note.data or {}
    assert data["error_code"] == "PAYLOAD_INVALID" and "m: Extra inputs" in data["error_message"]
    assert data["give_up_at"] == event.at + 900_000_000
    assert 1_000_000 <= (event.data or {})["due_at"] - event.at <= 1_500_000
    why = await engine.jobs.why(job.id)
    assert why.reason == "HANDED_BACK" and "m: Extra inputs" in why.sentence
    assert (await engine.scoped(tenant=None, payloads=False).jobs.why(job.id)).reason == "HANDED_BACK"


@pytest.mark.parametrize("contract", ["gate-b2", "p3c", "men", "streams", "standard"])
async def test_without_release_or_without_time_the_job_fails_at_once(app: Detent, contract: str) -> None:
    @app.job("work", contract=contract, hand_back_seconds=0 if contract == "standard" else 900)
    async def work(n: int) -> int:
        return n

    engine = await app.ready()
    job = (await engine.jobs.submit(Submission("work", {"n": "many"}, contract=contract))).job
    async with working(app):
        with pytest.raises(JobFailed):
            await within(30, (await app.handle(job.id)).result())
    assert (await engine.jobs.get(job.id)).execution_no == 1


def test_the_options_of_the_page_exist(tmp_path: Path) -> None:
    script = tmp_path / "options.py"
    script.write_text(f"from detent import Detent\n\n{OPTIONS}")
    app = load_app(str(script), f"sqlite:///{tmp_path / 'jobs.db'}")
    assert app.jobs["charge"].handler.options.hand_back_seconds == 0
