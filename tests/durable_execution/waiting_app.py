"""The application of a worker process that these tests start; the result of `woken` is the time it was woken.

With the argument `idle` the worker ends when there is nothing to do, and prints its peak memory in KiB.
"""

import asyncio
import sys
import time
from pathlib import Path

from detent import Context, Detent

app = Detent()


@app.job("woken")
async def woken(ctx: Context) -> float:
    await ctx.wait_for("go")
    return time.time()


@app.job("noop")
async def noop() -> None: ...


if __name__ == "__main__":
    code = asyncio.run(app.run_worker(slots=4 if "idle" not in sys.argv else 64, until_idle="idle" in sys.argv))
    print(
        next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    )
    sys.exit(code)
