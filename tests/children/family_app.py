"""An application with parents and children, for worker processes that are killed: family_app.py URL FOLDER.

Each leaf waits until one of two files ("doors") exists in the folder; the file "diary" records which process waits for
which door.
"""

import asyncio
import os
import sys
from pathlib import Path

from detent import Context, Detent
from support.waiting import until

URL, FOLDER = (sys.argv[1], Path(sys.argv[2])) if __name__ == "__main__" else (None, Path())
app = Detent(URL)
CHILDREN, DOORS = 12, 2


@app.job("leaf", max_retries=50)
async def leaf(n: int) -> int:
    door = f"door-{n % DOORS}"
    if not (FOLDER / door).exists():
        with (FOLDER / "diary").open("a") as diary:
            diary.write(f"{door} {os.getpid()}\n")
    await until((FOLDER / door).exists, 600)
    return n


@app.job("parent", max_retries=50)
async def parent(ctx: Context, base: int) -> int:
    children = await ctx.enqueue_many(leaf, [{"n": base + n} for n in range(CHILDREN)])
    return sum(await ctx.gather(*children))


if __name__ == "__main__":
    asyncio.run(app.run_worker(slots=8, lease_seconds=1.0))
