"""Orders from the request to the receipt, with the approval of large ones, and the nightly report."""

from django.core import mail
from django.test import TestCase

from detent.integrations.django.testing import running_tasks
from detent.testing.fake_context import FakeContext
from detent.testing.memory import TestWorker

from .models import Order, Report
from .tasks import jobs, nightly_report, process_order


class OrderTests(TestCase):
    worker: TestWorker

    def setUp(self) -> None:
        self.worker = self.enterContext(running_tasks())

    def place(self, amount: int) -> Order:
        body = {"customer": "eve@example.com", "amount": amount}
        response = self.client.post("/orders/", body, content_type="application/json")
        assert response.status_code == 201
        return Order.objects.get(id=response.json()["id"])

    def test_a_small_order_is_paid(self) -> None:
        order = self.place(100)
        self.worker.assert_enqueued(process_order, order_id=order.pk)
        self.worker.sync.drain()
        assert self.client.get(f"/orders/{order.pk}/").json()["status"] == "paid"
        assert [message.body for message in mail.outbox] == [f"receipt {order.pk} over 100"]

    def test_a_large_order_waits_for_an_approval(self) -> None:
        order = self.place(5_000)
        self.worker.sync.drain()
        order.refresh_from_db()
        assert order.status == "new"
        (waiting,) = jobs.sync.approvals()
        jobs.sync.handle(waiting["job_id"]).approve(by="ann")
        self.worker.sync.drain()
        order.refresh_from_db()
        assert order.status == "paid"

    def test_a_large_order_is_rejected_after_a_day(self) -> None:
        order = self.place(5_000)
        self.worker.sync.advance("1 d")
        order.refresh_from_db()
        assert order.status == "rejected"

    def test_the_report_runs_every_night(self) -> None:
        self.worker.sync.advance("2 d")
        assert len(self.worker.enqueued(nightly_report)) == 2
        assert Report.objects.count() == 1  # the handler uses the real date


class HandlerTests(TestCase):
    def test_the_handler_alone(self) -> None:
        ctx = FakeContext(steps={"reject": "rejected"}, approvals={"approval": False})
        assert process_order(ctx.sync, 2, 5000) == "rejected"
        assert ctx.approval_requests[0].about == {"order_id": 2}
