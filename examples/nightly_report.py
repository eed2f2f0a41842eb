"""A nightly report: one child job per shop, the sum of their takings, one mail.

Run it: python examples/nightly_report.py

While the children run, the parent occupies no worker slot. After a crash, finished children are not run again, and the
mail is sent once.
"""

import asyncio

from detent import Context, Detent

app = Detent()  # $DETENT_URL, else the file detent.db
SHOPS = 200


async def open_shops(day: str) -> list[int]:
    return list(range(1, SHOPS + 1))


async def takings(shop: int, day: str) -> int:
    """A stand-in for a slow query."""
    await asyncio.sleep(0.001)
    return shop * 10


async def send(text: str, *, idempotency_key: str) -> str:
    return text


@app.job("count-shop", max_retries=5)
async def count_shop(ctx: Context, shop: int, day: str) -> int:
    return await ctx.step("takings", takings, shop, day)


@app.job("nightly-report", max_retries=5)
async def nightly_report(ctx: Context, day: str) -> str:
    shops = await ctx.step("shops", open_shops, day)
    children = await ctx.enqueue_many(count_shop, [{"shop": shop, "day": day} for shop in shops])
    total = sum(await ctx.gather(*children))
    text = f"{day}: {len(shops)} shops took {total:,}"
    return await ctx.step("mail", send, text, idempotency_key=ctx.effect_key("mail"))


async def main() -> None:
    async with app:
        worker = await app.worker(slots=32)
        working = asyncio.create_task(worker.run(handle_signals=False))
        print(await (await nightly_report.enqueue(day="2026-02-25")).result(timeout=60))
        worker.stop()
        await working


if __name__ == "__main__":
    asyncio.run(main())
