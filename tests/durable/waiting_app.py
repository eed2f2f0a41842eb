"""The application of a worker process these tests start: it tells in its result when it was woken."""

import asyncio
import sys
import time

from detent import Context, Detent

app = Detent()


@app.job("woken")
async def woken(ctx: Context) -> float:
    await ctx.wait_for("go")
    return time.time()


if __name__ == "__main__":
    sys.exit(asyncio.run(app.run_worker(slots=4)))
