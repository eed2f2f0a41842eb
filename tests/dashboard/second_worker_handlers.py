"""An application with one job type, for a second worker process."""

import asyncio
from pathlib import Path

from detent import Context, Detent

app = Detent()


@app.job("second", queue="second")
async def second(ctx: Context, gate: str) -> str:
    """Runs until the test creates the file `gate`."""
    while not await asyncio.to_thread(Path(gate).exists):
        await asyncio.sleep(0.02)
    return "finished"
