"""A task of Django (the mail), a job with steps and an approval (the order), and a schedule (the report)."""

from datetime import date, timedelta
from typing import TYPE_CHECKING

import django
from django.core import mail
from django.db import transaction
from django.db.models import Count, Sum
from django.utils import timezone

from detent import SyncContext
from detent.integrations.django.application import detent_app

from . import bank
from .models import Order, Report

if TYPE_CHECKING or django.VERSION >= (6, 0):
    from django.tasks import task
else:
    from django_tasks import task

LARGE = 1_000
jobs = detent_app()


@task()
def send_receipt(order_id: int) -> None:
    order = Order.objects.get(id=order_id)
    mail.send_mail("Your order", order.receipt, "shop@shop.example", [order.customer])


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
    return ctx.step("report", report_on, (timezone.localdate() - timedelta(days=1)).isoformat())


def set_status(order_id: int, status: str, receipt: str = "") -> str:
    """A step that is repeated after a crash changes nothing: status and mail are committed together, once."""
    with transaction.atomic():
        changed = Order.objects.filter(id=order_id, status="new").update(status=status, receipt=receipt)
        if changed and status == "paid":
            send_receipt.enqueue(order_id)
    return status


def report_on(day: str) -> int:
    paid = Order.objects.filter(status="paid", created_at__date=date.fromisoformat(day))
    totals = paid.aggregate(orders=Count("id"), amount=Sum("amount"))
    values = {"orders": totals["orders"], "amount": totals["amount"] or 0}
    Report.objects.update_or_create(day=date.fromisoformat(day), defaults=values)
    return int(totals["orders"])
