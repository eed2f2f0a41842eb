"""The jobs: process an order, and report on the orders of the day before."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from detent import Detent, SyncContext

from . import bank
from .models import URL, Order, Report, engine

LARGE = 1_000
jobs = Detent(URL)


@jobs.job("process_order", queue="orders", max_retries=5, timeout=60)
def process_order(ctx: SyncContext, order_id: int, amount: int) -> str:
    if amount > LARGE:
        decision = ctx.approval(
            f"order {order_id} over {amount}", about={"order_id": order_id}, deadline=86_400, default="reject"
        )
        if not decision:
            return ctx.step("reject", set_status, order_id, "rejected")
    receipt = ctx.step("pay", bank.pay, order_id, amount, idempotency_key=ctx.effect_key("pay"))
    return ctx.step("finish", set_status, order_id, "paid", receipt)


@jobs.schedule(cron="0 2 * * *")
@jobs.job("nightly_report")
def nightly_report(ctx: SyncContext) -> int:
    return ctx.step("report", report_on, (datetime.now(UTC) - timedelta(days=1)).date().isoformat())


def set_status(order_id: int, status: str, receipt: str | None = None) -> str:
    with Session(engine) as session, session.begin():
        order = session.get_one(Order, order_id)
        order.status, order.receipt = status, receipt
    return status


def report_on(day: str) -> int:
    begin = datetime.fromisoformat(day).replace(tzinfo=UTC)
    paid = (Order.status == "paid") & (Order.created_at >= begin) & (Order.created_at < begin + timedelta(days=1))
    with Session(engine) as session, session.begin():
        count, amount = session.execute(select(func.count(), func.sum(Order.amount)).where(paid)).one()
        session.merge(Report(day=day, orders=count, amount=amount or 0))
    return int(count)
