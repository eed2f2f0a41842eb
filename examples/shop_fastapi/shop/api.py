"""The HTTP API: place an order, and see what became of it. Detent's dashboard is at /detent/."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException
from pydantic import BaseModel
from sqlalchemy.orm import Session

from detent.integrations.fastapi import BackgroundJobs, background_jobs, lifespan, mount

from .jobs import jobs, process_order
from .models import Base, Order, engine, get_session
from .staff import person_of, router

Database = Annotated[Session, Depends(get_session, scope="function")]
Tasks = Annotated[BackgroundJobs, Depends(background_jobs(get_session), scope="function")]


@asynccontextmanager
async def start(api: FastAPI) -> AsyncIterator[dict[str, Any]]:
    Base.metadata.create_all(engine)
    async with lifespan(jobs, worker="SHOP_WORKER" in os.environ)(api) as state:
        yield state


api = FastAPI(title="Shop", lifespan=start)
api.include_router(router)
mount(api, "/detent", jobs, authenticate=person_of, sign_in_url="/login", sign_out_url="/logout")


class NewOrder(BaseModel):
    customer: str
    amount: int


@api.post("/orders", status_code=201)
def place_order(new: NewOrder, session: Database, tasks: Tasks) -> dict[str, int | str]:
    """The order and its job are committed together."""
    order = Order(customer=new.customer, amount=new.amount)
    session.add(order)
    session.flush()
    handle = tasks.add_task_sync(process_order.using(key=f"order-{order.id}"), order_id=order.id, amount=order.amount)
    return {"id": order.id, "job": handle.id}


@api.get("/orders/{order_id}")
def show_order(order_id: int, session: Database) -> dict[str, int | str | None]:
    order = session.get(Order, order_id)
    if order is None:
        raise HTTPException(404, "no such order")
    return {"id": order.id, "status": order.status, "receipt": order.receipt}
