"""The SQL views of the contracts: plain SQL shows every job as the engine's view of it does."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest

from detent.core.access import Scope
from detent.core.contract.builtin import CONTRACTS
from detent.core.job import Job, Wait
from detent.core.outcome import Waits
from detent.core.times import from_datetime, iso
from detent.engine import Engine
from detent.engine.reads.views import dead_letter_view
from detent.ports.listing import Filter
from support.acts import LONG, ROUTES, claim_one, reach, retryable, running, submit
from support.clock import FakeClock
from support.stores import Place, PostgresPlace, SqlitePlace

pytestmark = pytest.mark.anyio
PAGE = Path(__file__).parents[2] / "docs" / "understand" / "contracts.md"
VIEWS = {
    "gate-b2": ("gate_b2_jobs", "job_id"),
    "men": ("men_tasks", "task_id"),
    "p3c": ("p3c_task_runs", "run_id"),
    "streams": ("streams_tasks", "task_id"),
    "formal": ("formal_jobs", "job_id"),
}
"""Contract -> its view, and the column that identifies a job."""
JSON_COLUMNS = {"payload", "payload_json", "context_json", "output"}
DLQ_ITEM = """dlq_id tenant_id job_id error_class error_code payload_json context_json status first_failed_at
    created_at updated_at"""
REQUEST_FIELDS = {"max_attempts", "scheduled_at", "idempotency_scope", "payload"}
"""The columns of men_tasks that the specification names outside its task."""


def rows_of(place: Place, view: str) -> list[dict[str, Any]]:
    """The rows of a view, read past Detent, with times as ISO text and JSON parsed."""
    if isinstance(place, PostgresPlace):
        rows = place.database.named(f"SELECT * FROM detent.{view}")
    else:
        assert isinstance(place, SqlitePlace)
        connection = apsw.Connection(str(place.path))
        try:
            connection.row_trace = lambda cursor, row: dict(zip(_names(cursor), row, strict=True))
            rows = list(connection.execute(f"SELECT * FROM detent_{view}"))
        finally:
            connection.close()
    return [{name: _plain(name, value) for name, value in row.items()} for row in rows]


def _names(cursor: apsw.Cursor) -> list[str]:
    return [column[0] for column in cursor.get_description()]


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, datetime):
        return iso(from_datetime(value))
    return json.loads(value) if name in JSON_COLUMNS and isinstance(value, str) else value


def documented(view: str) -> list[str]:
    """The columns of a view in docs/understand/contracts.md."""
    _, _, table = PAGE.read_text("utf-8").partition(f"| `{view}` | |\n|---|---|\n")
    return re.findall(r"^\| `(\w+)` \|", table.partition("\n\n")[0], re.MULTILINE)


async def jobs_of(engine: Engine, contract: str) -> list[Job]:
    return [job for job in await engine.jobs.list(Filter(limit=1_000)) if job.contract == contract]


async def fail_for_good(engine: Engine, clock: FakeClock, contract: str) -> Job:
    """A job that has used up its attempts."""
    job = await submit(engine, contract, "failing", trace_id="t-1", tenant_id="acme", payload={"ä": [1, None]})
    while (await engine.jobs.get(job.id)).finished_at is None:
        held = await claim_one(engine, job_types={"failing"})
        clock.advance(0.25)
        await engine.settle(held.id, held.token, retryable(contract))
        clock.advance(LONG)
    return await engine.jobs.get(job.id)


async def populate(engine: Engine, clock: FakeClock, contract: str) -> None:
    """Jobs in every status a job can rest in, one after a retry, and one without attempts left."""
    for status in ROUTES[contract]:
        clock.advance(1.000001)
        await reach(engine, clock, contract, status, job_type=f"to-{status}", idempotency_key=f"k-{status}")
    job = await submit(engine, contract, "again", idempotency_scope="orders", timeout_ms=30_000)
    held = await claim_one(engine, job_types={"again"})
    await engine.settle(held.id, held.token, retryable(contract))
    assert (await engine.jobs.get(job.id)).failures == 1
    await fail_for_good(engine, clock, contract)


@pytest.mark.parametrize("contract", VIEWS)
async def test_the_view_shows_the_jobs_of_its_contract(
    place: Place, engine: Engine, clock: FakeClock, contract: str
) -> None:
    view, key = VIEWS[contract]
    await submit(engine, "standard")
    await submit(engine, "p3c" if contract == "gate-b2" else "gate-b2")
    await populate(engine, clock, contract)
    shown = {row[key]: row for row in rows_of(place, view)}
    expected = [CONTRACTS[contract].view(job) for job in await jobs_of(engine, contract)]
    assert len(expected) == len(shown) == len(ROUTES[contract]) + 2
    for job_view in expected:
        row = shown[job_view[key]]
        assert {name: row[name] for name in job_view} == job_view
        assert list(row)[: len(job_view)] == list(job_view), "columns are in the order of the view"
        assert row.keys() - job_view.keys() == (REQUEST_FIELDS if contract == "men" else set())
        assert list(row) == documented(view)


async def test_dead_letters_of_gate_b2(place: Place, engine: Engine, clock: FakeClock) -> None:
    for _ in range(3):
        await fail_for_good(engine, clock, "gate-b2")
    await fail_for_good(engine, clock, "streams")
    letters = [item for item in await engine.dead_letters.list(Filter(limit=10)) if item.contract == "gate-b2"]
    first, second, _ = letters
    await engine.dead_letters.requeue(first.id, Scope("ann"))
    for person in ("ann", "ben"):
        await engine.dead_letters.discard(second.id, Scope(person, "broken input"))
    letters = [item for item in await engine.dead_letters.list(Filter(limit=10)) if item.contract == "gate-b2"]
    expected = {item.id: dead_letter_view(item) for item in letters}
    shown = {row["dlq_id"]: row for row in rows_of(place, "gate_b2_dlq_items")}
    assert {row["status"] for row in shown.values()} == {"open", "requeued", "discarded"}
    assert shown.keys() == expected.keys()
    for dlq_id, row in shown.items():
        item: dict[str, Any] = {**expected[dlq_id]}
        assert row == {name: item[name] for name in DLQ_ITEM.split()}
        assert list(row) == DLQ_ITEM.split() == documented("gate_b2_dlq_items")


async def test_requested_fields_of_men(place: Place, engine: Engine) -> None:
    moment = datetime(2036, 2, 29, 12, 0, 0, 50, tzinfo=UTC)
    await submit(
        engine, "men", scheduled_at=moment, max_retries=4, idempotency_scope="orders", payload={"request_id": "req-1"}
    )
    (row,) = rows_of(place, "men_tasks")
    assert row["scheduled_at"] == "2036-02-29T12:00:00.000050Z"
    assert (row["max_attempts"], row["idempotency_scope"]) == (5, "orders")
    assert row["payload"] == {"request_id": "req-1"}


async def test_a_long_wait_is_parked_in_formal(place: Place, engine: Engine) -> None:
    held = await running(engine, "formal")
    await engine.settle(held.id, held.token, Waits(Wait("answer", "human", park=True)))
    (row,) = rows_of(place, "formal_jobs")
    assert (row["state"], row["correlation_key"], row["wait_type"]) == ("Parked", "answer", "human")
    assert (await engine.jobs.get(held.id)).status == "Waiting"
