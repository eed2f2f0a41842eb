"""An application with families, for worker processes that are killed. Run it to work: family_app.py URL."""

import asyncio
import sys

from detent import Context, Detent

app = Detent(sys.argv[1] if __name__ == "__main__" else None)
CHILDREN = 12


@app.job("leaf", max_retries=50)
async def leaf(n: int) -> int:
    await asyncio.sleep(0.002)
    return n


@app.job("parent", max_retries=50)
async def parent(ctx: Context, base: int) -> int:
    children = await ctx.enqueue_many(leaf, [{"n": base + n} for n in range(CHILDREN)])
    return sum(await ctx.gather(*children))


if __name__ == "__main__":
    asyncio.run(app.run_worker(slots=8, lease_seconds=1.0))
