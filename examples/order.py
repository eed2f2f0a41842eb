"""An order is charged, confirmed by a person (or refunded after an hour), then shipped. Run: python examples/order.py

Every step is recorded when it is done. After a crash the order continues after the last recorded step.
"""

import asyncio

from detent import Context, Detent, WaitTimeout

app = Detent()  # $DETENT_URL, else the file detent.db


async def pay(order_id: int, amount: int, *, idempotency_key: str) -> str:
    """The payment service accepts idempotency keys: the same key is charged once."""
    await asyncio.sleep(0.05)
    return f"receipt {order_id} over {amount} ({idempotency_key[:8]}…)"


async def refund(receipt: str, *, idempotency_key: str) -> None:
    await asyncio.sleep(0.05)


def ship(order_id: int, *, idempotency_key: str) -> int:
    """A plain function can be a step too; this one returns a parcel number."""
    return 1_000 + order_id


@app.job("order", queue="billing", max_retries=3, timeout=30)
async def order(ctx: Context, order_id: int, amount: int) -> dict[str, str | int]:
    receipt = await ctx.step("charge", pay, order_id, amount, idempotency_key=ctx.effect_key("charge"))
    try:
        answer = await ctx.wait_for("confirmed", timeout=3600, kind="human")
    except WaitTimeout:
        await ctx.step("refund", refund, receipt, idempotency_key=ctx.effect_key("refund"))
        return {"receipt": receipt, "refunded": "nobody confirmed"}
    parcel = await ctx.step("ship", ship, order_id, idempotency_key=ctx.effect_key("ship"))
    return {"receipt": receipt, "by": answer["user"], "parcel": parcel}


async def main() -> None:
    async with app:
        worker = await app.worker()
        working = asyncio.create_task(worker.run(handle_signals=False))
        handle = await order.enqueue(order_id=7, amount=100)
        await handle.signal("confirmed", {"user": "ann"}, actor="ann")  # stored if the order does not wait yet
        print(await handle.result(timeout=30))
        worker.stop()
        await working


if __name__ == "__main__":
    asyncio.run(main())
