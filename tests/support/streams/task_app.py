"""The application of the stream workers in these tests; its handlers write a diary."""

import asyncio
import os
import time
from pathlib import Path

from detent import Context, Detent, Fail, SyncContext

app = Detent()


def write(*words: object) -> None:
    with Path(os.environ["DIARY"]).open("a") as diary:
        diary.write(" ".join(map(str, words)) + "\n")


@app.job("add", contract="streams")
async def add(ctx: Context, a: int, b: int = 0) -> int:
    write("add", ctx.job_id, ctx.execution_no)
    return a + b


@app.job("quick", contract="streams")
async def quick(ctx: Context, n: int) -> int:
    return n


@app.job("fail", contract="streams")
async def fail(ctx: Context) -> None:
    write("fail", ctx.job_id)
    raise RuntimeError("it does not work")


@app.job("refuse", contract="streams")
async def refuse(ctx: Context) -> None:
    raise Fail("never", code="NOT_TODAY", retryable=False)


@app.job("linger", contract="streams")
async def linger(ctx: Context, seconds: float) -> str:
    """The first execution sleeps, later ones do not."""
    write("linger", ctx.job_id, ctx.execution_no, os.getpid())
    await asyncio.sleep(seconds if ctx.execution_no == 1 else 0)
    write("lingered", ctx.job_id, ctx.execution_no)
    return f"execution {ctx.execution_no}"


@app.job("doze", contract="streams")
def doze(ctx: SyncContext, seconds: float) -> str:
    """The same in a thread, which cannot be interrupted."""
    write("doze", ctx.job_id, ctx.execution_no, os.getpid())
    time.sleep(seconds if ctx.execution_no == 1 else 0)
    return f"execution {ctx.execution_no}"


@app.job("hog", contract="streams")
async def hog(ctx: Context, seconds: float) -> str:
    """Blocks the event loop."""
    write("hog", ctx.job_id, os.getpid())
    time.sleep(seconds)
    return f"execution {ctx.execution_no}"
