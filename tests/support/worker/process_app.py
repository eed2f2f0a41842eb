"""An application whose handlers run in processes of their own; as a script a worker: `python process_app.py '{…}'`.

$DETENT_URL is the database; handlers tell the test what they do through the files that they are given.
"""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from detent import CancelRequested, Detent, SoftTimeout, SyncContext

app = Detent()
FOREVER = 600.0


@app.job("pid", run_in="process")
def pid() -> int:
    return os.getpid()


@app.job("die", run_in="process", max_retries=0)
def die(how: str) -> None:
    if how == "exit":
        os._exit(9)
    os.kill(os.getpid(), signal.SIGKILL)


@app.job("hang", run_in="process", max_retries=0)
def hang(file: str) -> None:
    """Ignores SIGTERM, as does the program that it starts."""
    program = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({FOREVER})"])
    Path(file).write_text(f"{os.getpid()} {program.pid}")
    while True:
        time.sleep(FOREVER)


@app.job("until", run_in="process")
def wait_until(started: str, file: str) -> int:
    Path(started).touch()
    while not Path(file).exists():
        time.sleep(0.01)
    return os.getpid()


@app.job("allocate", run_in="process", max_retries=0)
def allocate(megabytes: int) -> int:
    block = bytearray(megabytes * 2**20)
    time.sleep(FOREVER)
    return len(block)


def read_tokens(count: int) -> list[int]:
    return list(range(count))


@app.job("durable", run_in="process", capture_logs=True, timeout=100)
def durable(ctx: SyncContext) -> dict[str, object]:
    """Its process ends after the first step of the first execution."""
    tokens = ctx.step("tokens", read_tokens, 3)
    if ctx.execution_no == 1:
        os._exit(1)
    ctx.progress(0.5, "halfway")
    logging.getLogger("test").warning("in execution %d", ctx.execution_no)
    assert ctx.deadline is not None
    left = (ctx.deadline - datetime.now(UTC)).total_seconds()
    return {"tokens": tokens, "left": 90 < left <= 100, "executions": ctx.execution_no}


@app.job("answer", run_in="process")
def answer(ctx: SyncContext) -> str:
    name = str(ctx.wait_for("name", timeout=60))
    with ctx.transaction() as connection:
        connection.execute("CREATE TABLE notes (text TEXT)")
    return name


@app.job("requests", run_in="process", soft_timeout=0.5, max_retries=0)
def requests(ctx: SyncContext, file: str, until: str) -> str:
    """Writes what it is asked to do to the file."""
    Path(file).touch()
    while not Path(until).exists() and not ctx.stopping and not (until == "cancel" and ctx.cancel_reason == "enough"):
        time.sleep(0.01)
    try:
        ctx.step("one more", read_tokens, 1)
    except CancelRequested as request:
        ctx.step("clean up", Path(file).write_text, f"cancel: {request.reason}")
        raise
    except SoftTimeout:
        return "soft timeout"
    return "stopping" if ctx.stopping else "nothing"


if __name__ == "__main__":
    sys.exit(asyncio.run(app.run_worker(**json.loads(sys.argv[1]))))
