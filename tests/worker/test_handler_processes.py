"""Handlers with run_in="process": killed when their time is over, replaced when they die, with a whole context."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import detent
from detent import Detent, SyncContext
from detent.core.errors import InvalidInput
from detent.handler.stop_requests import StopKind
from detent.worker.executors import _HandlerProcess
from support.pids import gone
from support.waiting import until, until_now, within
from support.worker import process_app
from support.worker.processes import Bench
from support.worker.running import working

pytestmark = pytest.mark.anyio


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Detent]:
    process_app.app.url = f"sqlite:///{tmp_path / 'jobs.db'}"
    async with process_app.app as app:
        yield app


async def test_a_process_over_its_time_limit_is_killed_and_replaced(app: Detent, tmp_path: Path) -> None:
    """With everything it has started; its slot is free at once, which a thread cannot offer."""
    file = tmp_path / "pids"
    async with working(app, slots=1, handler_processes=1) as worker:
        first = await within(60, (await app.jobs["pid"].enqueue()).result())
        slow = await app.jobs["hang"].using(timeout=1.0).enqueue(file=str(file))
        await until(lambda: file.exists() and file.read_text())
        process, program = map(int, file.read_text().split())
        assert process == first and not gone(program)
        await until(lambda: gone(process) and gone(program))
        job = await slow.job()
        await until(lambda: worker.state.abandoned == 0)
        second = await within(60, (await app.jobs["pid"].enqueue()).result())
        assert second != first
        job = await slow.job()
        assert (job.status, job.error_code) == ("failed", "JOB_TIMEOUT")


async def test_a_process_that_dies_charges_only_its_own_job(app: Detent, tmp_path: Path) -> None:
    started, file = tmp_path / "started", tmp_path / "go on"
    async with working(app, slots=4, handler_processes=2):
        other = await app.jobs["until"].enqueue(started=str(started), file=str(file))
        await until(started.exists)
        for how, message in (("exit", "ended with exit code 9"), ("kill", "was killed by signal 9 (SIGKILL)")):
            dies = await app.jobs["die"].enqueue(how=how)
            await until(lambda dies=dies: _failed(dies))
            job = await dies.job()
            assert (job.error_code, job.error_message) == (
                "HANDLER_PROCESS_DIED",
                f"the process of the handler {message}",
            )
        file.touch()
        assert await within(60, other.result())
        job = await other.job()
        assert (job.execution_no, job.failures) == (1, 0)


async def _failed(handle: Any) -> bool:
    return (await handle.job()).status == "failed"


async def test_a_process_is_replaced_after_its_number_of_jobs_or_its_death(app: Detent) -> None:
    """One that died while it was idle charges no job."""
    async with working(app, slots=1, max_jobs_per_process=2):
        pids = [await within(60, (await app.jobs["pid"].enqueue()).result()) for _ in range(3)]
        assert pids[0] == pids[1] != pids[2]
        await until(lambda: gone(pids[0]))
        os.kill(pids[2], signal.SIGKILL)
        await until(lambda: gone(pids[2]))
        handle = await app.jobs["pid"].enqueue()
        assert await within(60, handle.result()) not in pids
        assert (await handle.job()).failures == 0


async def test_a_process_that_dies_while_it_looks_alive_charges_no_job(
    app: Detent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill that is noticed only after the next job was sent to the process."""
    async with working(app, slots=1):
        pid = await within(60, (await app.jobs["pid"].enqueue()).result())
        monkeypatch.setattr(_HandlerProcess, "is_alive", lambda _: True)
        os.kill(pid, signal.SIGKILL)
        handle = await app.jobs["pid"].enqueue()
        assert await within(60, handle.result()) != pid
        assert (await handle.job()).failures == 0


async def test_memory_that_a_job_leaves_in_use_is_not_charged_to_the_next(
    app: Detent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a process is replaced. Every process uses more than 1 MB, and none is checked while its job runs."""
    monkeypatch.setattr("detent.worker.executors._CHECK_SECONDS", 60)
    async with working(app, slots=1, max_memory_mb=1):
        handles = [await app.jobs["pid"].enqueue() for _ in range(2)]
        first, second = [await within(60, handle.result()) for handle in handles]
        assert first != second


async def test_a_kill_does_not_wait_for_a_message_that_is_not_read() -> None:
    process = _HandlerProcess(None)
    process._pipe, other_end = multiprocessing.Pipe()
    sender = threading.Thread(target=process._forward, args=(StopKind.CANCEL, "x" * 2**22))
    sender.start()
    await until(process._sending.locked)
    killer = threading.Thread(target=process.kill)
    killer.start()
    killer.join(5)
    was_blocked = killer.is_alive()
    other_end.close()
    sender.join()
    assert not was_blocked


async def test_a_process_above_its_memory_limit_is_killed_and_the_job_has_a_code(app: Detent) -> None:
    async with working(app, slots=2, max_memory_mb=200):
        greedy = await app.jobs["allocate"].enqueue(megabytes=400)
        modest = await app.jobs["pid"].enqueue()
        await until(lambda: _failed(greedy))
        job = await greedy.job()
        assert job.error_code == "HANDLER_MEMORY_EXCEEDED" and "the limit is 200 MB" in (job.error_message or "")
        assert await within(60, modest.result())


async def test_steps_progress_logs_waits_and_transactions_work_in_a_process(app: Detent) -> None:
    async with working(app, slots=2, handler_processes=1):
        handle = await app.jobs["durable"].using(backoff=[0]).enqueue()
        result = await within(60, handle.result())
        assert result == {"tokens": [0, 1, 2], "left": True, "executions": 2}
        events = await handle.events()
        notes = {event["event"]: event["data"] for event in events if event["note"]}
        assert notes["progress"]["message"] == "halfway"
        assert [line["message"] for line in notes["log"]["lines"]] == ["in execution 2"]
        assert [event["execution_no"] for event in events if event["event"] == "step.finished"] == [1]
        asks = await app.jobs["answer"].enqueue()
        await until(lambda: _status(asks, "waiting"))
        await asks.signal("name", "ann")
        assert await within(60, asks.result()) == "ann"
        async with app.connection() as connection:
            assert await connection.fetchval("SELECT count(*) FROM notes") == 0


async def _status(handle: Any, status: str) -> bool:
    return (await handle.job()).status == status


async def test_requests_of_the_worker_reach_a_handler_in_a_process(app: Detent, tmp_path: Path) -> None:
    soft, cancel, stop, go = (tmp_path / name for name in ("soft", "cancel", "stop", "go"))
    run = app.jobs["requests"]
    async with working(app, slots=2, handler_processes=1, lease_seconds=3, grace_seconds=60) as worker:
        handle = await run.enqueue(file=str(soft), until=str(go))
        await until(soft.exists)
        began = time.monotonic()
        await until(lambda: time.monotonic() - began > 0.7)
        go.touch()
        assert await within(60, handle.result()) == "soft timeout"
        handle = await run.enqueue(file=str(cancel), until="cancel")
        await until(cancel.exists)
        await handle.cancel("enough", actor="ann")
        await until(lambda: _status(handle, "cancelled"))
        assert cancel.read_text() == "cancel: enough"
        handle = await run.enqueue(file=str(stop), until="never")
        await until(stop.exists)
        worker.stop()
        assert await within(60, handle.result()) in ("stopping", "soft timeout")


async def test_a_context_in_a_process_needs_a_database_that_it_can_open() -> None:
    app = Detent("sqlite:///:memory:")

    @app.job("work", run_in="process")
    def work(ctx: SyncContext) -> None: ...

    async with app:
        with pytest.raises(InvalidInput, match="work: another process cannot open a database in memory"):
            await app.worker()


def test_a_handler_process_ends_with_its_worker(tmp_path: Path) -> None:
    """kill -9 of the worker: its handler processes and their programs do not stay behind."""
    bench = Bench(tmp_path)
    file = tmp_path / "pids"
    worker = _start(bench, grace_seconds=1.0)
    try:
        process_app.app.url = bench.url
        process_app.app.sync.enqueue(process_app.hang, file=str(file))
        until_now(lambda: file.exists() and file.read_text())
        pids = [int(pid) for pid in file.read_text().split()]
        worker.kill()
        worker.wait()
        until_now(lambda: all(map(gone, pids)))
    finally:
        worker.kill()
        process_app.app.sync.close()


def _start(bench: Bench, **options: Any) -> subprocess.Popen[bytes]:
    source = str(Path(detent.__file__).parent.parent)
    environment = os.environ | {"DETENT_URL": bench.url, "PYTHONPATH": source}
    script = Path(process_app.__file__)
    with bench.log.open("ab") as log:
        command = [sys.executable, str(script), json.dumps(options)]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    until_now(lambda: bench.registered(process) or bench.died(process))
    return process


@pytest.mark.drill
@pytest.mark.parametrize("hangs", [False, True])
async def test_the_worker_ends_within_its_grace_after_every_end_of_a_process(
    app: Detent, tmp_path: Path, hangs: bool
) -> None:
    """20 of 20 times, after crashes, kills, timeouts and exceeded memory; with a handler that never ends the grace is
    used up, and handing the job back takes a moment."""
    bench, grace, seconds = Bench(tmp_path), 1.0 if hangs else 5.0, []
    for number in range(20):
        file = tmp_path / f"pids {number}"
        worker = _start(bench, grace_seconds=grace, slots=8, handler_processes=5, max_memory_mb=200)
        try:
            ended = [await app.jobs["die"].enqueue(how=how) for how in ("exit", "kill")]
            ended.append(await app.jobs["hang"].using(timeout=1.0).enqueue(file=str(tmp_path / "timeout")))
            ended.append(await app.jobs["allocate"].enqueue(megabytes=400))
            last = await app.jobs["hang" if hangs else "until"].enqueue(**_files(file, hangs))
            for handle in ended:
                await until(lambda handle=handle: _failed(handle))
            await until(file.exists)
            began = time.monotonic()
            worker.send_signal(signal.SIGTERM)
            if not hangs:
                file.with_suffix(".end").touch()
            assert worker.wait(grace + 10) == 0
            seconds.append(time.monotonic() - began)
            assert await _status(last, "queued" if hangs else "succeeded")
            if hangs:
                await until(lambda file=file: all(gone(int(pid)) for pid in file.read_text().split()))
                await last.cancel(actor="test")
        finally:
            worker.kill()
            worker.wait()
        print(f"{number + 1}: ended {seconds[-1]:.2f} s after SIGTERM, the grace was {grace:g} s", flush=True)
    assert max(seconds) < grace + (3 if hangs else 0)


def _files(file: Path, hangs: bool) -> dict[str, str]:
    return {"file": str(file)} if hangs else {"started": str(file), "file": str(file.with_suffix(".end"))}
