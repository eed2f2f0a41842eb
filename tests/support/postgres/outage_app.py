"""The application of the worker processes that live through outages: `detent worker outage_app.py --url …`.

$DIARY names a file to which every execution appends its beginning and its end, one line each.
"""

import asyncio
import os
import random

from detent import Context, Detent

app = Detent()


def write(words: str) -> None:
    with open(os.environ["DIARY"], "a") as diary:
        diary.write(f"{words} {os.getpid()}\n")


@app.job("small", max_retries=50)
async def small(ctx: Context, n: int) -> int:
    write(f"started {ctx.job_id}")
    await asyncio.sleep(random.random() * 0.02)
    return n


async def work_for(ctx: Context, seconds: float) -> None:
    write(f"started {ctx.job_id}")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        write(f"stopped {ctx.job_id}")
        raise
    write(f"ended {ctx.job_id}")


@app.job("long", max_retries=50)
async def long(ctx: Context, seconds: float) -> None:
    await work_for(ctx, seconds)


@app.job("long-streams", contract="streams", max_retries=50)
async def long_streams(ctx: Context, seconds: float) -> None:
    """Of the contract whose jobs go from holder to holder when a lease runs out."""
    await work_for(ctx, seconds)
