"""Why a job is not running: one test for each reason, on a SQLite file with a manual clock."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from detent.core.access import Reach, Scope
from detent.core.errors import NotFound
from detent.core.job import Failure, Wait
from detent.core.outcome import Failed, Outcome, Snoozed, Succeeded, Waits
from detent.core.times import SECOND, from_iso
from detent.engine import Engine, Submission
from detent.engine.reads.why import Why, span
from detent.ports.listing import WorkerRow
from detent.stores.sqlite.store import SqliteStore


class Clock:
    def __init__(self) -> None:
        self.at = from_iso("2026-02-25T12:00:00Z", field="start")

    def now(self) -> int:
        return self.at

    def monotonic(self) -> float:
        return self.at / SECOND


class Harness:
    """An engine with a manual clock, called synchronously."""

    def __init__(self, path: Path) -> None:
        self.clock = Clock()
        self.engine = Engine(SqliteStore(str(path), clock=self.clock, inline=True, synchronous="OFF"))
        asyncio.run(self.engine.open())

    def submit(self, **fields: Any) -> str:
        return asyncio.run(self.engine.jobs.submit(Submission("charge", **fields))).job.id

    def claim(self) -> tuple[str, str]:
        (claimed,) = asyncio.run(self.engine.claim(self.engine.claim_request("w1", 1, 30)))
        return claimed.id, claimed.token

    def settle(self, outcome: Outcome) -> None:
        asyncio.run(self.engine.settle(*self.claim(), outcome))

    def worker(self, name: str = "w1", **changes: Any) -> None:
        now = self.clock.now()
        row = WorkerRow(name, "h", 1, "0", None, '["charge"]', 2, 0, "working", now, now, 30 * SECOND)
        asyncio.run(self.engine.store.write(lambda tx: tx.workers.put_worker(replace(row, **changes))))

    def why(self, job_id: str, tenant: str | None = None) -> Why:
        return asyncio.run(self.engine.scoped(tenant=tenant).jobs.why(job_id))


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path / "jobs.db")
    yield harness
    asyncio.run(harness.engine.close())


def also(explanation: Why) -> list[str]:
    return [other["reason"] for other in explanation.details["also"]]


def test_it_should_start_any_moment(harness: Harness) -> None:
    harness.worker()
    explanation = harness.why(harness.submit())
    assert (explanation.reason, explanation.sentence) == (
        "ANY_MOMENT",
        "nothing blocks it, a worker should claim it at any moment",
    )
    assert json.loads(json.dumps(asdict(explanation)))["details"]["status"] == "queued"


def test_jobs_are_ahead_of_it(harness: Harness) -> None:
    harness.worker()
    ids = [harness.submit() for _ in range(3)]
    explanation = harness.why(ids[2])
    assert explanation.reason == "JOBS_AHEAD" and "2 jobs of its kind" in explanation.sentence
    harness.submit(priority=5)
    harness.submit(tenant_id="other")
    assert harness.why(ids[1]).details["ahead"] == 1


def test_no_live_worker(harness: Harness) -> None:
    harness.worker("old")
    job = harness.submit()
    harness.clock.at += 90 * SECOND
    assert harness.why(job).reason == "ANY_MOMENT"
    harness.clock.at += 1
    explanation = harness.why(job)
    assert explanation.reason == "NO_WORKER" and "detent worker APP" in explanation.sentence


def test_no_worker_for_its_type(harness: Harness) -> None:
    harness.worker(job_types='["ship", "refund"]')
    explanation = harness.why(harness.submit())
    assert explanation.reason == "NO_WORKER_FOR_TYPE"
    assert explanation.sentence == "no live worker handles the job type 'charge'; live workers handle refund, ship"
    assert explanation.details["live_types"] == ["refund", "ship"]


def test_no_worker_for_its_queue(harness: Harness) -> None:
    harness.worker(queues='["billing"]')
    explanation = harness.why(harness.submit(queue="mail"))
    assert explanation.reason == "NO_WORKER_FOR_QUEUE" and "'mail'; live workers serve billing" in explanation.sentence


def test_no_worker_for_both(harness: Harness) -> None:
    harness.worker("w1", queues='["billing"]')
    harness.worker("w2", job_types='["ship"]')
    assert harness.why(harness.submit()).reason == "NO_WORKER_FOR_BOTH"


@pytest.mark.parametrize("state", ["stopping", "draining"])
def test_its_workers_are_draining(harness: Harness, state: str) -> None:
    harness.worker("w1", queues='["billing"]')
    harness.worker("w2", state=state)
    explanation = harness.why(harness.submit(queue="mail"))
    assert explanation.reason == "WORKERS_DRAINING" and explanation.details["workers"] == ["w2"]
    assert "draining or stopping: w2" in explanation.sentence


def test_the_slots_are_full(harness: Harness) -> None:
    harness.worker("w1", busy=2)
    harness.worker("w2", busy=3, slots=3)
    harness.worker("other", job_types='["ship"]')
    explanation = harness.why(harness.submit())
    assert (
        explanation.reason == "SLOTS_FULL"
        and "all 2 workers" in explanation.sentence
        and "5 of 5" in explanation.sentence
    )
    assert explanation.details["workers"] == ["w1", "w2"]
    harness.worker("w2", busy=1, slots=3)
    assert harness.why(harness.submit()).reason == "JOBS_AHEAD"


@pytest.mark.parametrize(
    ("kind", "name", "command"),
    [
        ("queue", "default", "queues resume default"),
        ("job_type", "charge", "queues resume --type charge"),
        ("tenant", "t", "queues resume --tenant t"),
    ],
)
def test_it_is_paused(harness: Harness, kind: str, name: str, command: str) -> None:
    harness.worker()
    job = harness.submit(tenant_id="t")
    asyncio.run(harness.engine.limits.pause("queue", "another", Scope("bo")))
    asyncio.run(harness.engine.limits.pause(kind, name, Scope("ann", "too fast")))
    harness.clock.at += 300 * SECOND
    explanation = harness.why(job)
    assert (
        explanation.reason == "PAUSED" and explanation.details["actor"] == "ann" and also(explanation) == ["NO_WORKER"]
    )
    assert "was paused by ann at 2026-02-25T12:00:00Z (5 min ago) (too fast)" in explanation.sentence
    assert command in explanation.sentence
    asyncio.run(harness.engine.limits.resume(kind, name, Scope("ann")))
    assert harness.why(job).reason == "NO_WORKER"


def test_it_is_not_due(harness: Harness) -> None:
    asyncio.run(harness.engine.limits.pause("queue", "default", Scope("ann")))
    job = harness.submit(contract="gate-b2", delay=60)
    explanation = harness.why(job)
    assert (explanation.reason, also(explanation)) == ("NOT_DUE", ["PAUSED", "NO_WORKER"])
    assert "not due until 2026-02-25T12:01:00Z (in 60 s)" in explanation.sentence


def test_it_is_not_due_because_it_failed_or_snoozed(harness: Harness) -> None:
    job = harness.submit()
    harness.settle(Failed(Failure("BANK_DOWN", "no answer")))
    explanation = harness.why(job)
    assert explanation.reason == "NOT_DUE" and "the retry after BANK_DOWN" in explanation.sentence
    other = harness.submit()
    harness.settle(Snoozed(60 * SECOND))
    assert harness.why(other).reason == "NOT_DUE"


def test_it_waits_until_a_time(harness: Harness) -> None:
    scheduled = harness.submit(scheduled_at="2026-02-25T15:00:00Z")
    explanation = harness.why(scheduled)
    assert (
        explanation.reason == "WAITS_FOR_MOMENT"
        and "not due until 2026-02-25T15:00:00Z (in 3 h)" in explanation.sentence
    )
    asleep = harness.submit()
    harness.settle(Waits(Wait("sleep", "timer", 60 * SECOND)))
    assert harness.why(asleep).reason == "WAITS_FOR_MOMENT"
    harness.clock.at += 61 * SECOND
    assert harness.why(asleep).reason == "DUE_TO_WAKE" and "start a worker" in harness.why(asleep).sentence


def test_it_waits_for_a_signal(harness: Harness) -> None:
    job = harness.submit()
    harness.settle(Waits(Wait("packed", "signal", 3_600 * SECOND)))
    asyncio.run(harness.engine.limits.pause("queue", "default", Scope("ann")))
    explanation = harness.why(job)
    assert (explanation.reason, also(explanation)) == ("WAITS_FOR_SIGNAL", ["PAUSED"])
    assert "the signal 'packed' until 2026-02-25T13:00:00Z" in explanation.sentence
    assert f"detent jobs signal {job} packed" in explanation.sentence and explanation.details["waits_for"] == "packed"


def test_it_waits_for_approval(harness: Harness) -> None:
    for contract in ("standard", "streams"):
        job = harness.submit(hold=True, contract=contract)
        explanation = harness.why(job)
        assert explanation.reason == "WAITS_FOR_APPROVAL" and f"detent jobs approve {job}" in explanation.sentence


def test_it_is_running_and_a_cancel_is_requested(harness: Harness) -> None:
    job = harness.submit()
    harness.worker()
    harness.claim()
    explanation = harness.why(job)
    assert (
        explanation.reason == "HELD"
        and "worker w1 runs it, its lease lasts until 2026-02-25T12:00:30Z (in 30 s)" in explanation.sentence
    )
    assert explanation.details["holder_seen"] is True and also(explanation) == []
    asyncio.run(harness.engine.jobs.cancel(job, Scope("ann", "wrong order")))
    explanation = harness.why(job)
    assert also(explanation) == ["CANCEL_REQUESTED"]
    assert explanation.details["also"][0]["sentence"].startswith("ann requested its cancel 0 ms ago (wrong order)")


def test_its_lease_expired(harness: Harness) -> None:
    job = harness.submit()
    harness.claim()
    harness.clock.at += 45 * SECOND
    explanation = harness.why(job)
    assert (
        explanation.reason == "LEASE_EXPIRED"
        and "expired 15 s ago; no live worker sweeps: start a worker" in explanation.sentence
    )
    harness.worker("w2")
    assert "the next sweep of any worker takes the job back" in harness.why(job).sentence


def test_it_has_finished(harness: Harness) -> None:
    good = harness.submit()
    harness.settle(Succeeded("1"))
    harness.clock.at += 12 * SECOND
    assert harness.why(good).sentence == "it finished as succeeded 12 s ago"
    bad = harness.submit()
    harness.settle(Failed(Failure("BANK_GONE", "never again", retryable=False)))
    explanation = harness.why(bad)
    assert explanation.reason == "FINISHED" and "(BANK_GONE: never again); its dead letter is" in explanation.sentence


def test_the_job_of_another_tenant_is_unknown(harness: Harness) -> None:
    with pytest.raises(NotFound):
        harness.why(harness.submit(tenant_id="a"), "b")


def test_a_tenant_is_not_told_what_tenants_share(harness: Harness) -> None:
    """No workers, no job types and queues of others, no counts of jobs that a limit counts for all tenants."""
    job = harness.submit(tenant_id="a")
    harness.worker("secret-worker", job_types='["secret-type"]')
    mine, everyone = harness.why(job, "a"), harness.why(job)
    assert mine.reason == everyone.reason == "NO_WORKER_FOR_TYPE"
    assert "secret" in str(everyone) and "secret" not in str(mine)
    harness.worker("second-worker", slots=1, busy=1)
    mine, everyone = harness.why(job, "a"), harness.why(job)
    assert mine.reason == everyone.reason == "SLOTS_FULL"
    assert "second-worker" in str(everyone) and "worker'" not in str(mine) and "1 of 1" not in str(mine)


def test_every_contract_has_a_reason_in_every_phase(harness: Harness) -> None:
    for name in harness.engine.contracts:
        job = harness.submit(contract=name)
        assert harness.why(job).reason == "NO_WORKER"
        harness.claim()
        assert harness.why(job).reason == "HELD"
        asyncio.run(_succeed(harness.engine, job))
        assert harness.why(job).reason == "FINISHED"


async def _succeed(engine: Engine, job_id: str) -> None:
    job = await engine.jobs.get(job_id)
    await engine.settle(job_id, job.token or "", Succeeded(None))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        *((-5, "0 ms"), (0.35, "350 ms"), (12, "12 s"), (119, "119 s"), (120, "2 min"), (7_199, "119 min")),
        *((7_200, "2 h"), (172_799, "47 h"), (172_800, "2 d"), (1e9, "11574 d")),
    ],
)
def test_spans_are_short(seconds: float, words: str) -> None:
    assert span(int(seconds * SECOND)) == words


def test_the_traceback_of_the_last_failure(harness: Harness) -> None:
    """While it waits for its retry, and at the end; hidden from callers who may not see payloads."""
    job = harness.submit(max_retries=1)
    for traceback in ("Traceback 1", "Traceback 2"):
        harness.clock.at += 60 * SECOND
        asyncio.run(harness.engine.wake())
        failure = Failure("BROKEN", "no", traceback=traceback, retryable=True)
        harness.settle(Failed(failure))
        assert harness.why(job).details["traceback"] == traceback
        assert "traceback" not in asyncio.run(harness.engine.scoped(tenant=None, payloads=False).jobs.why(job)).details
    assert harness.why(job).reason == "FINISHED"


def test_a_blocked_event_loop(harness: Harness) -> None:
    """Of the worker that runs the job; and of all workers that could run it, not of one among several."""
    block = {
        "since": harness.clock.now() - 3 * SECOND,
        "location": "jobs.py:7 in slow",
        "job_id": "j1",
        "job_type": "x",
    }
    harness.worker(blocked=json.dumps(block))
    job = harness.submit()
    explanation = harness.why(job)
    assert explanation.reason == "LOOP_BLOCKED"
    assert "job j1 (x) has blocked the event loop of its worker for 3 s at jobs.py:7 in slow" in explanation.sentence
    assert (explanation.details["job_id"], explanation.details["blocking_job_id"]) == (job, "j1")
    for limited in (
        harness.engine.scoped(tenant="default"),
        harness.engine.scoped(tenant=None, reach=Reach(("default",))),
    ):
        hidden = asyncio.run(limited.jobs.why(job))
        assert hidden.sentence == "another job blocks the event loop of its worker"
        assert hidden.details.keys() == {"job_id", "status", "phase", "also"} and hidden.details["job_id"] == job
    harness.worker("w2")
    assert harness.why(job).reason == "ANY_MOMENT"
    harness.claim()
    assert also(harness.why(job)) == ["LOOP_BLOCKED"]
    harness.worker()
    assert also(harness.why(job)) == []
