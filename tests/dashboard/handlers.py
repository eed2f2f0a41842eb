"""The application under test: jobs that succeed, wait for a file, a signal or an approval, or fail permanently."""

import logging
from datetime import date, datetime
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, Field

from detent import Context, Detent, Fail, Retry, Snooze
from support.waiting import until

app = Detent()
log = logging.getLogger("shop")


@app.job("mail", queue="mail")
async def mail(ctx: Context, to: str) -> dict[str, str]:
    return {"sent_to": to}


@app.job("gated", queue="gates")
async def gated(ctx: Context, gate: str) -> dict[str, str]:
    """Runs until the test creates the file `gate`."""
    first = await ctx.step("first <b>step</b>", _record, gate)
    await until(Path(gate).exists, 600)
    return {"recorded": first, "gate": gate}


@app.job("count", queue="gates")
async def count_rows(ctx: Context, gate: str) -> None:
    """Reports progress, then runs until the test creates the file `gate`."""
    await ctx.progress(0.4, "4,000 of 10,000 rows")
    await until(Path(gate).exists, 600)


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


@app.job("import", queue="imports", capture_logs=True)
async def import_rows(ctx: Context, gate: str, rows: int = 10, total: int = 30) -> int:
    """Records steps, reports progress and logs; its first execution fails, the second one waits for the gate."""
    log.warning("execution %d begins", ctx.execution_no)
    await ctx.step(f"load {ctx.execution_no}", _record, gate)
    if ctx.execution_no == 1:
        log.error("the file is locked")
        raise Retry("the file is locked", after=0.0)
    for number in range(rows):
        await ctx.step("row", _row, number)
    await ctx.progress(rows / total, f"{rows} of {total} rows")
    await ctx.once("open gate", until, Path(gate).exists, 600)
    log.info("the gate is open")
    return rows


class Currency(StrEnum):
    EUR = "EUR"
    JPY = "JPY"


class Line(BaseModel):
    product: str = Field(min_length=2, description="Number of the product")
    pieces: int = Field(1, ge=1, le=99)
    notes: list[str] = []


class Address(BaseModel):
    city: str
    postcode: str | None = None


@app.job("purchase", queue="billing")
async def purchase(
    ctx: Context,
    customer: str,
    lines: list[Line],
    due: date,
    currency: Currency = Currency.EUR,
    net: float | None = None,
    send_at: datetime | None = None,
    express: bool = False,
    address: Address | None = None,
    reference: int | str = 0,
    labels: dict[str, str] | None = None,
) -> dict[str, object]:
    """Has a payload with every kind of field."""
    return {"customer": customer, "lines": len(lines), "currency": str(currency)}


def _row(number: int) -> dict[str, int]:
    return {"row": number}


@app.job("part", queue="parts", max_retries=0)
async def part(ctx: Context, number: int) -> int:
    """Of ten parts one fails and one waits for a signal."""
    if number % 10 == 7:
        raise Fail("this part is broken", code="PART_BROKEN", retryable=False)
    if number % 10 == 3:
        await ctx.wait_for("released", timeout=3600)
    return number


@app.job("fan-out", queue="imports")
async def fan_out(ctx: Context, parts: int) -> int:
    children = await ctx.enqueue_many(part, [{"number": number} for number in range(parts)])
    return len(await ctx.gather(*children, return_exceptions=True))


@app.job("large", queue="imports")
async def large(ctx: Context, steps: int, parts: int) -> int:
    for number in range(steps):
        await ctx.step("row", _row, number)
    children = await ctx.enqueue_many(part, [{"number": number} for number in range(parts)])
    return len(await ctx.gather(*children, return_exceptions=True))


@app.job("snoozes", queue="imports")
async def snoozes(ctx: Context, times: int, note: str = "") -> int:
    if ctx.execution_no <= times:
        raise Snooze(0)
    return times


@app.job("crash", queue="imports", max_retries=0)
async def crash(ctx: Context, file: str) -> int:
    """Fails with a chained exception, whose traceback is long."""
    try:
        return _number_of_rows(file)
    except ValueError as error:
        raise RuntimeError(f"{file} cannot be imported") from error


def _number_of_rows(file: str) -> int:
    return int(f"the first line of {file}")
