"""The application of the worker processes these tests start: `python job_app.py '{"slots": 4, …}'`.

$DETENT_URL is the database; $DIARY is a file to which handlers append lines of the form "verb job_id".
"""

import asyncio
import json
import os
import random
import sys
import threading
import time

from detent import Context, Detent, SyncContext

app = Detent()
CONTRACTS = ("gate-b2", "men", "p3c", "streams", "formal", "standard")


def write(line: str) -> None:
    with open(os.environ["DIARY"], "a") as diary:
        diary.write(f"{line}\n")


def declare(contract: str) -> None:
    retries = None if contract == "gate-b2" else 100

    @app.job(f"quick-{contract}", contract=contract, max_retries=retries)
    async def quick(n: int) -> int:
        await asyncio.sleep(random.random() * 0.02)
        return n

    @app.job(f"hold-{contract}", contract=contract)
    async def hold(ctx: Context) -> None:
        write(f"started {ctx.job_id}")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            write(f"stopped {ctx.job_id}")
            raise

    @app.job(f"neighbour-{contract}", contract=contract)
    async def neighbour(n: int) -> int:
        await asyncio.sleep(0.2)
        return n

    @app.job(f"poison-{contract}", contract=contract)
    async def poison() -> None:
        write("crashed")
        os._exit(9)


for name in CONTRACTS:
    declare(name)


@app.job("nap")
async def nap(ctx: Context, seconds: float) -> int:
    write(f"napping {ctx.job_id}")
    await asyncio.sleep(seconds)
    return ctx.execution_no


@app.job("block")
async def block(ctx: Context, seconds: float) -> int:
    """Blocks the event loop, which no handler should do."""
    write(f"blocking {ctx.job_id}")
    time.sleep(seconds)
    return ctx.execution_no


@app.job("thread")
def thread(ctx: SyncContext, seconds: float) -> str:
    write(f"thread {ctx.job_id}")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.02)
    return f"execution {ctx.execution_no}"


@app.job("stubborn")
async def stubborn(ctx: Context) -> None:
    write(f"stubborn {ctx.job_id}")
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            continue


@app.job("stamp")
async def stamp(sent: float) -> float:
    return time.time() - sent


class Unpicklable(Exception):
    """Cannot be unpickled: it takes two arguments and passes one to Exception."""

    def __init__(self, message: str, detail: str) -> None:
        super().__init__(message)
        self.detail = detail


@app.job("compute", run_in="process", max_retries=0)
def compute(act: str) -> int:
    if act == "unpicklable":
        raise Unpicklable("a", "b")
    if act == "die":
        os._exit(9)
    if act == "hang":
        write("hanging")
        threading.Event().wait(60)
    return os.getpid()


if __name__ == "__main__":
    sys.exit(asyncio.run(app.run_worker(**json.loads(sys.argv[1]))))
