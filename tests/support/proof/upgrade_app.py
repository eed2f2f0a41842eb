"""The application of the workers of two versions of Detent; each result names the version that produced it."""

import asyncio

from detent import Context, Detent
from detent.version import __version__

app = Detent()


@app.job("plain", max_retries=20)
async def plain(n: int) -> str:
    await asyncio.sleep(0.02)
    return __version__


@app.job("parent", max_retries=20)
async def parent(ctx: Context) -> list[str]:
    """A step, a child, and a wait for it: another version may run each part."""
    first = await ctx.step("first", _version)
    return [first, await ctx.enqueue(plain, n=0).result(), __version__]


async def _version() -> str:
    await asyncio.sleep(0.02)
    return __version__
