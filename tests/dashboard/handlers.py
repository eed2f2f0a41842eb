"""The application under test: jobs that succeed, wait for a file, a signal or an approval, or fail permanently."""

from pathlib import Path

from detent import Context, Detent, Fail
from support.waiting import until

app = Detent()


@app.job("mail", queue="mail")
async def mail(ctx: Context, to: str) -> dict[str, str]:
    return {"sent_to": to}


@app.job("gated", queue="gates")
async def gated(ctx: Context, gate: str) -> dict[str, str]:
    """Runs until the test creates the file `gate`."""
    first = await ctx.step("first <b>step</b>", _record, gate)
    await until(Path(gate).exists, 600)
    return {"recorded": first, "gate": gate}


def _record(gate: str) -> str:
    return f"waiting for {gate}"


@app.job("order", queue="orders")
async def order(ctx: Context, number: int) -> dict[str, object]:
    signal = await ctx.wait_for("confirmed", timeout=3600)
    return {"number": number, "by": signal["by"]}


@app.job("release", queue="orders")
async def release(ctx: Context, version: str) -> str:
    await ctx.approval(f"release {version}?", roles=("reviewer",))
    return f"released {version}"


@app.job("charge", queue="billing", contract="gate-b2")
async def charge(ctx: Context, card: str) -> str:
    """Fails permanently unless the card is good."""
    if card != "good":
        raise Fail(
            "the card <script>document.title='pwned'</script> was declined", code="CARD_DECLINED", retryable=False
        )
    return "charged"
