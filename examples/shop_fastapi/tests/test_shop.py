"""Orders from the request to the payment, with the approval of large ones, and the nightly report."""

from fastapi.testclient import TestClient
from shop import jobs, models
from sqlalchemy.orm import Session

from detent.testing.fake_context import FakeContext
from detent.testing.memory import TestWorker


def place(client: TestClient, amount: int) -> int:
    response = client.post("/orders", json={"customer": "eve", "amount": amount})
    assert response.status_code == 201
    return int(response.json()["id"])


def sign_in(client: TestClient, name: str) -> None:
    response = client.post("/login?next=/detent/approvals", content=f"name={name}&password=secret")
    assert response.headers["location"] == "/detent/approvals"


def test_a_small_order_is_paid(client: TestClient, detent_worker: TestWorker) -> None:
    order = place(client, 100)
    detent_worker.assert_enqueued(jobs.process_order, order_id=order)
    assert client.get(f"/orders/{order}").json()["status"] == "new"
    detent_worker.sync.drain()
    assert client.get(f"/orders/{order}").json() == {
        "id": order,
        "status": "paid",
        "receipt": f"receipt {order} over 100",
    }


def test_a_large_order_waits_for_a_reviewer(client: TestClient, detent_worker: TestWorker) -> None:
    order = place(client, 5_000)
    detent_worker.sync.drain()
    assert client.get(f"/orders/{order}").json()["status"] == "new"
    job = detent_worker.assert_enqueued(jobs.process_order, order_id=order)
    assert client.get("/detent/api/v1/approvals").status_code == 401
    sign_in(client, "lea")
    evil = {"Origin": "https://evil.example"}
    assert client.post(f"/detent/api/v1/jobs/{job.id}/approve", headers=evil).status_code == 403
    assert client.post(f"/detent/api/v1/jobs/{job.id}/approve").status_code == 200
    detent_worker.sync.drain()
    assert client.get(f"/orders/{order}").json()["status"] == "paid"


def test_a_large_order_is_rejected_after_a_day(client: TestClient, detent_worker: TestWorker) -> None:
    order = place(client, 5_000)
    detent_worker.sync.advance("1 d")
    assert client.get(f"/orders/{order}").json()["status"] == "rejected"


def test_the_report_runs_every_night(client: TestClient, detent_worker: TestWorker) -> None:
    place(client, 100)
    detent_worker.sync.advance("2 d")
    assert len(detent_worker.enqueued(jobs.nightly_report)) == 2
    with Session(models.engine) as session:
        assert session.query(models.Report).count() == 1  # the handler uses the real date


def test_the_handler_alone() -> None:
    steps = {"pay": "receipt", "finish": "paid", "reject": "rejected"}
    assert jobs.process_order(FakeContext(steps=steps).sync, 1, 100) == "paid"
    ctx = FakeContext(steps=steps, approvals={"approval": False})
    assert jobs.process_order(ctx.sync, 2, 5_000) == "rejected"
    assert ctx.approval_requests[0].about == {"order_id": 2} and list(ctx.steps) == ["reject"]
