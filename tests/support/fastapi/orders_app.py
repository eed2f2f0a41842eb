"""POST /orders/{number} writes an order and enqueues its job in one transaction; `fail=1` rolls both back.

Started as `orders_app.py URL`; prints its address as JSON.
"""

import asyncio
import json
import socket
import sys

import uvicorn
from fastapi import FastAPI, HTTPException
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from detent import Detent


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


async def main(url: str) -> None:
    engine = create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:"), pool_size=8)
    detent = Detent(url)

    @detent.job("ship")
    async def ship(number: int) -> None: ...

    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    app = FastAPI()

    @app.post("/orders/{number}")
    async def place(number: int, fail: bool = False) -> int:
        async with AsyncSession(engine) as session, session.begin():
            session.add(Order(number=number))
            await ship.enqueue_in(session, number=number)
            if fail:
                raise HTTPException(422, "rolled back on purpose")
        return number

    listener = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(json.dumps({"at": f"http://127.0.0.1:{listener.getsockname()[1]}"}) + "\n")
    sys.stdout.flush()
    await uvicorn.Server(uvicorn.Config(app, log_level="error")).serve([listener])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
