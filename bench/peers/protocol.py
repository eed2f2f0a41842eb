"""The client's side of the conversation with the harness: one JSON object a line, one answer each.

Runs inside the peers' own environments, so it may import nothing but the standard library.
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
"""The database, the server or the file's path, as the contestant's driver wants it."""
PART = os.environ.get("BENCH_PART", "drain")
"""What a worker is started for: drain, steps or pickup."""
VARIANT = os.environ.get("BENCH_VARIANT", "")
BATCH = 1_000
"""Jobs a bulk call."""
STEPS = 10
"""Recorded steps of a job that has them."""


class Peer:
    """What a contestant must be able to do; methods may be plain or coroutines."""

    bulk = False
    """True: `many` exists."""

    def open(self) -> Any: ...

    def reset(self) -> Any:
        """Leave no job behind."""

    def one(self, caller: int) -> Any:
        """Enqueue one job that counts; `caller` tells concurrent callers apart."""
        raise RuntimeError("cannot enqueue")

    def many(self, jobs: int) -> Any:
        """Enqueue at most BATCH jobs in one call."""
        raise RuntimeError("has no bulk call")

    has_steps = False
    """True: `stepped` exists."""

    def stepped(self, jobs: int) -> Any:
        """Enqueue at most BATCH jobs of STEPS recorded steps each."""
        raise RuntimeError("has no recorded steps")

    def left(self) -> Any:
        """How many jobs are not done yet."""
        raise RuntimeError("cannot tell what is left")

    def stamp(self, sent: float) -> Any:
        """Enqueue one job that tells `picked_up(sent)`."""
        raise RuntimeError("has no handler")

    def pickup_here(self, jobs: int, pause: float) -> Any:
        """Delays with a worker in this very process."""
        raise RuntimeError("works in another process only")

    def close(self) -> Any: ...

    def work(self) -> Any:
        """The worker process; may exec another program."""
        raise RuntimeError("has no worker")


def main(make: Callable[[], Peer], *, as_worker: bool) -> None:
    peer = make()
    if as_worker:
        answer = peer.work()
        if inspect.isawaitable(answer):
            loop_runner()(answer)
        return
    loop_runner()(_converse(peer))


def loop_runner() -> Callable[[Any], Any]:
    if "uvloop" in VARIANT.split(","):
        import uvloop

        return uvloop.run  # type: ignore[no-any-return]
    return asyncio.run


async def _converse(peer: Peer) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints must not look like an answer
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await _now(peer.open())
    answers.write(json.dumps({"ready": True}) + "\n")
    while line := await reader.readline():
        try:
            answer = await _carry_out(peer, json.loads(line))
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
    await _now(peer.close())


async def _carry_out(peer: Peer, ask: dict[str, Any]) -> dict[str, Any]:
    match ask["do"]:
        case "reset":
            await _now(peer.reset())
            return {}
        case "enqueue":
            return await _enqueue(peer, ask["seconds"], ask["at_most"], ask["callers"])
        case "fill":
            return await _fill(peer, ask["jobs"])
        case "fill stepped":
            return await _fill_stepped(peer, ask["jobs"])
        case "left":
            return {"left": await _now(peer.left())}
        case "pickup":
            return await _stamp(peer, ask["jobs"], ask["pause"])
        case "pickup here":
            return {"delays": await _now(peer.pickup_here(ask["jobs"], ask["pause"]))}
    raise ValueError(f"unknown: {ask['do']}")


async def _now(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def _enqueue(peer: Peer, seconds: float, at_most: int, callers: int) -> dict[str, Any]:
    """As many as can be enqueued one by one in this time, by so many callers at once: tasks or threads."""
    await _now(peer.one(0))  # the first call opens connections and prepares statements
    started = time.monotonic()
    end = started + seconds
    share = max(1, at_most // callers)
    if inspect.iscoroutinefunction(peer.one):
        counts = await asyncio.gather(*(_calls(peer, caller, end, share) for caller in range(callers)))
    elif callers == 1:
        counts = [_plain_calls(peer, 0, end, share)]
    else:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(callers) as threads:
            asks = (loop.run_in_executor(threads, _plain_calls, peer, n, end, share) for n in range(callers))
            counts = await asyncio.gather(*asks)
    return {"jobs": sum(counts), "seconds": time.monotonic() - started}


async def _calls(peer: Peer, caller: int, end: float, at_most: int) -> int:
    count = 0
    while count < at_most and time.monotonic() < end:
        await peer.one(caller)
        count += 1
    return count


def _plain_calls(peer: Peer, caller: int, end: float, at_most: int) -> int:
    count = 0
    while count < at_most and time.monotonic() < end:
        peer.one(caller)
        count += 1
    return count


async def _fill(peer: Peer, jobs: int) -> dict[str, Any]:
    """All of them, by the bulk call where there is one."""
    started = time.monotonic()
    if peer.bulk:
        for done in range(0, jobs, BATCH):
            await _now(peer.many(min(BATCH, jobs - done)))
    else:
        for _ in range(jobs):
            await _now(peer.one(0))
    return {"jobs": jobs, "seconds": time.monotonic() - started, "bulk": peer.bulk}


async def _fill_stepped(peer: Peer, jobs: int) -> dict[str, Any]:
    if peer.has_steps:
        for done in range(0, jobs, BATCH):
            await _now(peer.stepped(min(BATCH, jobs - done)))
    return {"jobs": jobs if peer.has_steps else 0}


async def _stamp(peer: Peer, jobs: int, pause: float) -> dict[str, Any]:
    """One job each `pause`, whatever the last one did."""
    due = started = time.monotonic()
    for _ in range(jobs):
        due += pause
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        await _now(peer.stamp(time.monotonic()))
    return {"since": started}


def stay() -> None:
    """A bare loop that has come to its end is looked at before it is stopped."""
    signal.pause()


def exec_beside(program: str, *words: str) -> None:
    """Become a command-line worker that the peer brought into this environment."""
    path = os.path.join(os.path.dirname(sys.executable), program)
    os.execv(path, [path, *words])
