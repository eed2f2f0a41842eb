"""An application with one type of job, for a worker beside the server's own."""

import asyncio
from pathlib import Path

from detent import Context, Detent

app = Detent()


@app.job("aside", queue="aside")
async def aside(ctx: Context, door: str) -> str:
    while not await asyncio.to_thread(Path(door).exists):
        await asyncio.sleep(0.02)
    return "passed"
