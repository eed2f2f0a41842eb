"""The application behind the pages in these tests: jobs that end when told, wait, ask, fail and repair."""

import asyncio
from pathlib import Path

from detent import Context, Detent, Fail

app = Detent()


async def until(path: str) -> None:
    """A file that the test makes is the event this waits for."""
    while not await asyncio.to_thread(Path(path).exists):
        await asyncio.sleep(0.02)


@app.job("mail", queue="mail")
async def mail(ctx: Context, to: str) -> dict[str, str]:
    return {"sent_to": to}


@app.job("gated", queue="gates")
async def gated(ctx: Context, door: str) -> dict[str, str]:
    first = await ctx.step("first <b>step</b>", _looked, door)
    await until(door)
    return {"looked": first, "passed": door}


def _looked(door: str) -> str:
    return f"looked at {door}"


@app.job("order", queue="orders")
async def order(ctx: Context, number: int) -> dict[str, object]:
    answer = await ctx.wait_for("confirmed", timeout=3600)
    return {"number": number, "by": answer["by"]}


@app.job("release", queue="orders")
async def release(ctx: Context, version: str) -> str:
    await ctx.approval(f"release {version}?", roles=("reviewer",))
    return f"released {version}"


@app.job("charge", queue="billing", contract="gate-b2")
async def charge(ctx: Context, card: str) -> str:
    """Fails for good until its payload is repaired."""
    if card != "good":
        raise Fail(
            "the card <script>document.title='pwned'</script> was declined", code="CARD_DECLINED", retryable=False
        )
    return "charged"
