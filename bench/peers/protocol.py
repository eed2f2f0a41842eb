"""The peer's side of the protocol with the harness: one JSON request per line on stdin, one JSON answer per line.

It runs in the environments of the peers, so it may import nothing but the standard library.
"""

import asyncio
import inspect
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

URL = os.environ.get("BENCH_URL", "")
"""URL of the database or server, or path of the file, in the form that the contestant's driver takes."""
PART = os.environ.get("BENCH_PART", "drain")
"""The measure a worker is started for: drain, steps or pickup."""
VARIANT = os.environ.get("BENCH_VARIANT", "")
BATCH = 1_000
"""Maximum of jobs per bulk call."""
STEPS = 10
"""Recorded steps per job, for jobs with steps."""


class Peer:
    """The interface a contestant implements; methods may be plain functions or coroutines."""

    bulk = False
    """True: `enqueue_batch` is implemented."""

    def open(self) -> Any: ...

    def reset(self) -> Any:
        """Delete all jobs."""

    def enqueue(self, caller: int) -> Any:
        """Enqueue one no-op job; `caller` is the number of the concurrent caller."""
        raise RuntimeError("enqueue is not implemented")

    def enqueue_batch(self, jobs: int) -> Any:
        """Enqueue at most BATCH jobs in one call."""
        raise RuntimeError("enqueue_batch is not implemented")

    has_steps = False
    """True: `enqueue_with_steps` is implemented."""

    def enqueue_with_steps(self, jobs: int) -> Any:
        """Enqueue at most BATCH jobs with STEPS recorded steps each."""
        raise RuntimeError("enqueue_with_steps is not implemented")

    def remaining(self) -> Any:
        """The number of jobs that are not done."""
        raise RuntimeError("remaining is not implemented")

    def enqueue_stamped(self, sent: float) -> Any:
        """Enqueue one job whose handler calls `picked_up(sent)`."""
        raise RuntimeError("enqueue_stamped is not implemented")

    def pickup_in_process(self, jobs: int, pause: float) -> Any:
        """Pickup delays in seconds with a worker in this process."""
        raise RuntimeError("pickup_in_process is not implemented")

    def close(self) -> Any: ...

    def work(self) -> Any:
        """Run the worker in this process; may exec another program."""
        raise RuntimeError("work is not implemented")


def main(make: Callable[[], Peer], *, as_worker: bool) -> None:
    peer = make()
    if as_worker:
        running = peer.work()
        if inspect.isawaitable(running):
            loop_runner()(running)
        return
    loop_runner()(_serve(peer))


def loop_runner() -> Callable[[Any], Any]:
    if "uvloop" in VARIANT.split(","):
        import uvloop

        return uvloop.run  # type: ignore[no-any-return]
    return asyncio.run


async def _serve(peer: Peer) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # prints of a library go to stderr, so that they are not read as answers
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await _result(peer.open())
    answers.write(json.dumps({"ready": True}) + "\n")
    while line := await reader.readline():
        try:
            answer = await _execute(peer, json.loads(line))
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
    await _result(peer.close())


async def _execute(peer: Peer, request: dict[str, Any]) -> dict[str, Any]:
    match request["do"]:
        case "reset":
            await _result(peer.reset())
            return {}
        case "enqueue":
            return await _enqueue(peer, request["seconds"], request["at_most"], request["callers"])
        case "fill":
            return await _fill(peer, request["jobs"])
        case "fill stepped":
            return await _fill_with_steps(peer, request["jobs"])
        case "left":
            return {"left": await _result(peer.remaining())}
        case "pickup":
            return await _enqueue_stamped(peer, request["jobs"], request["pause"])
        case "pickup here":
            return {"delays": await _result(peer.pickup_in_process(request["jobs"], request["pause"]))}
    raise ValueError(f"unknown request: {request['do']}")


async def _result(value: Any) -> Any:
    """Await the value if it is a coroutine."""
    return await value if inspect.isawaitable(value) else value


async def _enqueue(peer: Peer, seconds: float, at_most: int, callers: int) -> dict[str, Any]:
    """Enqueue single jobs for `seconds`, at most `at_most`, by concurrent callers (tasks or threads)."""
    await _result(peer.enqueue(0))  # the first call opens connections and prepares statements
    started = time.monotonic()
    end = started + seconds
    share = max(1, at_most // callers)
    if inspect.iscoroutinefunction(peer.enqueue):
        counts = await asyncio.gather(*(_enqueue_until(peer, caller, end, share) for caller in range(callers)))
    elif callers == 1:
        counts = [_enqueue_until_sync(peer, 0, end, share)]
    else:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(callers) as threads:
            running = (loop.run_in_executor(threads, _enqueue_until_sync, peer, n, end, share) for n in range(callers))
            counts = await asyncio.gather(*running)
    return {"jobs": sum(counts), "seconds": time.monotonic() - started}


async def _enqueue_until(peer: Peer, caller: int, end: float, at_most: int) -> int:
    count = 0
    while count < at_most and time.monotonic() < end:
        await peer.enqueue(caller)
        count += 1
    return count


def _enqueue_until_sync(peer: Peer, caller: int, end: float, at_most: int) -> int:
    count = 0
    while count < at_most and time.monotonic() < end:
        peer.enqueue(caller)
        count += 1
    return count


async def _fill(peer: Peer, jobs: int) -> dict[str, Any]:
    """Enqueue `jobs` jobs, by the bulk call if the peer has one."""
    started = time.monotonic()
    if peer.bulk:
        for done in range(0, jobs, BATCH):
            await _result(peer.enqueue_batch(min(BATCH, jobs - done)))
    else:
        for _ in range(jobs):
            await _result(peer.enqueue(0))
    return {"jobs": jobs, "seconds": time.monotonic() - started, "bulk": peer.bulk}


async def _fill_with_steps(peer: Peer, jobs: int) -> dict[str, Any]:
    if peer.has_steps:
        for done in range(0, jobs, BATCH):
            await _result(peer.enqueue_with_steps(min(BATCH, jobs - done)))
    return {"jobs": jobs if peer.has_steps else 0}


async def _enqueue_stamped(peer: Peer, jobs: int, pause: float) -> dict[str, Any]:
    """Enqueue one stamped job every `pause` seconds, without waiting for the one before."""
    due = started = time.monotonic()
    for _ in range(jobs):
        due += pause
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        await _result(peer.enqueue_stamped(time.monotonic()))
    return {"since": started}


def wait_for_signal() -> None:
    """Keep the process alive after its loop has ended: the harness reads its CPU time before it stops it."""
    signal.pause()


def exec_program(program: str, *words: str) -> None:
    """Replace this process by a worker program installed in the same environment."""
    path = os.path.join(os.path.dirname(sys.executable), program)
    os.execv(path, [path, *words])
