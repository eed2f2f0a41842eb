"""Quick start: run `detent worker examples/quickstart.py` in one shell, and this file with python in another."""

import asyncio

from detent import Context, Detent

app = Detent()  # $DETENT_URL, else the file detent.db


@app.job("greet", max_retries=3, timeout=30)
async def greet(ctx: Context, name: str) -> str:
    return f"hello {name}"


async def main() -> None:
    async with app:
        handle = await greet.enqueue(name="world")
        print(await handle.result(timeout=30))


if __name__ == "__main__":
    asyncio.run(main())
