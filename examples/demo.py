"""The demo of `make up`: enqueues about three jobs per second that succeed, retry, wait, or fail as dead letters."""

import asyncio
import itertools
import random

from detent import Context, Detent, Fail, Retry, WaitTimeout

app = Detent()


@app.job("mail.send", queue="mail")
async def send_mail(ctx: Context, to: str) -> dict[str, str]:
    await asyncio.sleep(random.uniform(0.05, 0.6))
    return {"sent_to": to}


@app.job("payment.charge", queue="billing", contract="gate-b2")
async def charge(ctx: Context, order: int, amount: int) -> dict[str, int]:
    """Every fourth order fails twice and is retried; every twentieth card is declined permanently."""
    await asyncio.sleep(random.uniform(0.1, 0.8))
    if order % 20 == 0:
        raise Fail("the card was declined", code="CARD_DECLINED", retryable=False)
    if order % 4 == 0 and ctx.retries < 2:
        raise Retry("the bank did not answer")
    return {"order": order, "charged": amount}


@app.job("report.build", queue="reports", contract="p3c")
def build_report(pages: int) -> int:
    """A plain function runs in a thread."""
    return sum(page * page for page in range(pages * 1_000))


@app.job("order.confirm", queue="orders")
async def confirm(ctx: Context, order: int) -> str:
    """Waits up to 20 s for a signal; meanwhile it occupies no worker slot."""
    try:
        answer = await ctx.wait_for("confirmed", timeout=20)
    except WaitTimeout:
        return "nobody confirmed"
    return f"confirmed by {answer['by']}"


@app.job("cleanup", queue="night", contract="men")
async def cleanup(ctx: Context, table: str) -> None:
    await asyncio.sleep(0.2)


@app.companion
async def produce() -> None:
    """Enqueue about three jobs per second, and signal some of the waiting ones."""
    waiting = []
    for number in itertools.count(1):
        await send_mail.enqueue(to=f"user{number}@example.org")
        if number % 2 == 0:
            await charge.using(tenant=f"shop-{number % 3}").enqueue(order=number // 2, amount=100 + number)
        if number % 5 == 0:
            await build_report.enqueue(pages=number % 50)
            waiting.append(await confirm.enqueue(order=number))
        if number % 10 == 0:
            await cleanup.using(delay=15).enqueue(table=f"logs_{number}")
            await waiting.pop(0).signal("confirmed", {"by": "ana"}, actor="ana")
        await asyncio.sleep(random.uniform(0.3, 0.7))
