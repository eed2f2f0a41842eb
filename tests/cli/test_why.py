"""Why a job is not running: one test for each reason, on a file of its own with a clock of its own."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from detent.core.errors import TenantViolation
from detent.core.job import Failure, Wait
from detent.core.outcome import Failed, Outcome, Snoozed, Succeeded, Waits
from detent.core.times import SECOND, from_iso
from detent.engine import Engine, Submission
from detent.engine.reads.why import Why, span, why
from detent.ports.listing import WorkerRow
from detent.stores.sqlite.store import SqliteStore


class Clock:
    def __init__(self) -> None:
        self.at = from_iso("2026-02-25T12:00:00Z", field="start")

    def now(self) -> int:
        return self.at

    def monotonic(self) -> float:
        return self.at / SECOND


class Bench:
    """An engine whose coroutines are run to their end, and the clock it lives by."""

    def __init__(self, path: Path) -> None:
        self.clock = Clock()
        self.engine = Engine(SqliteStore(str(path), clock=self.clock, inline=True, synchronous="OFF"))
        asyncio.run(self.engine.open())

    def submit(self, **ask: Any) -> str:
        return asyncio.run(self.engine.submit(Submission("charge", **ask))).job.id

    def claim(self) -> tuple[str, str]:
        (one,) = asyncio.run(self.engine.claim(self.engine.claim_request("w1", 1, 30)))
        return one.id, one.token

    def settle(self, outcome: Outcome) -> None:
        asyncio.run(self.engine.settle(*self.claim(), outcome))

    def worker(self, name: str = "w1", **other: Any) -> None:
        now = self.clock.now()
        row = WorkerRow(name, "h", 1, "0", None, '["charge"]', 2, 0, "working", now, now, 30 * SECOND)
        asyncio.run(self.engine.store.write(lambda tx: tx.put_worker(replace(row, **other))))

    def why(self, job_id: str, tenant: str | None = None) -> Why:
        return asyncio.run(why(self.engine, job_id, tenant))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "jobs.db")
    yield bench
    asyncio.run(bench.engine.close())


def also(answer: Why) -> list[str]:
    return [other["reason"] for other in answer.details["also"]]


def test_it_should_start_any_moment(bench: Bench) -> None:
    bench.worker()
    answer = bench.why(bench.submit())
    assert (answer.reason, answer.sentence) == ("ANY_MOMENT", "nothing holds it: it should start any moment")
    assert json.loads(json.dumps(answer.as_dict()))["details"]["status"] == "queued"


def test_jobs_are_ahead_of_it(bench: Bench) -> None:
    bench.worker()
    ids = [bench.submit() for _ in range(3)]
    answer = bench.why(ids[2])
    assert answer.reason == "JOBS_AHEAD" and "2 jobs of its kind" in answer.sentence
    bench.submit(priority=5)
    bench.submit(tenant_id="other")
    assert bench.why(ids[1]).details["ahead"] == 1


def test_nobody_works_here(bench: Bench) -> None:
    bench.worker("old")
    job = bench.submit()
    bench.clock.at += 90 * SECOND
    assert bench.why(job).reason == "ANY_MOMENT"
    bench.clock.at += 1
    answer = bench.why(job)
    assert answer.reason == "NO_WORKER" and "detent worker APP" in answer.sentence


def test_nobody_handles_its_type(bench: Bench) -> None:
    bench.worker(job_types='["ship", "refund"]')
    answer = bench.why(bench.submit())
    assert answer.reason == "NO_WORKER_FOR_TYPE"
    assert answer.sentence == "no live worker handles the type 'charge'; live workers handle refund, ship"
    assert answer.details["live_types"] == ["refund", "ship"]


def test_nobody_serves_its_queue(bench: Bench) -> None:
    bench.worker(queues='["billing"]')
    answer = bench.why(bench.submit(queue="mail"))
    assert answer.reason == "NO_WORKER_FOR_QUEUE" and "'mail'; live workers serve billing" in answer.sentence


def test_nobody_does_both_or_they_stop(bench: Bench) -> None:
    bench.worker("w1", queues='["billing"]')
    bench.worker("w2", job_types='["ship"]')
    assert bench.why(bench.submit()).reason == "NO_WORKER_FOR_BOTH"
    bench.worker("w3", state="stopping")
    assert bench.why(bench.submit()).reason == "NO_WORKER_FOR_BOTH"


def test_the_slots_are_full(bench: Bench) -> None:
    bench.worker("w1", busy=2)
    bench.worker("w2", busy=3, slots=3)
    bench.worker("other", job_types='["ship"]')
    answer = bench.why(bench.submit())
    assert answer.reason == "SLOTS_FULL" and "all 2 workers" in answer.sentence and "5 of 5" in answer.sentence
    assert answer.details["workers"] == ["w1", "w2"]
    bench.worker("w2", busy=1, slots=3)
    assert bench.why(bench.submit()).reason == "JOBS_AHEAD"


@pytest.mark.parametrize(
    ("kind", "name", "command"),
    [
        ("queue", "default", "queues resume default"),
        ("job_type", "charge", "queues resume --type charge"),
        ("tenant", "t", "queues resume --tenant t"),
    ],
)
def test_it_is_paused(bench: Bench, kind: str, name: str, command: str) -> None:
    bench.worker()
    job = bench.submit(tenant_id="t")
    asyncio.run(bench.engine.pause("queue", "another", actor="bo"))
    asyncio.run(bench.engine.pause(kind, name, actor="ann", reason="too fast"))
    bench.clock.at += 300 * SECOND
    answer = bench.why(job)
    assert answer.reason == "PAUSED" and answer.details["actor"] == "ann" and also(answer) == ["NO_WORKER"]
    assert "was paused by ann at 2026-02-25T12:00:00Z (5 min ago) (too fast)" in answer.sentence
    assert command in answer.sentence
    asyncio.run(bench.engine.resume(kind, name, actor="ann"))
    assert bench.why(job).reason == "NO_WORKER"


def test_it_is_not_due(bench: Bench) -> None:
    asyncio.run(bench.engine.pause("queue", "default", actor="ann"))
    job = bench.submit(contract="gate-b2", delay=60)
    answer = bench.why(job)
    assert (answer.reason, also(answer)) == ("NOT_DUE", ["PAUSED", "NO_WORKER"])
    assert "not due until 2026-02-25T12:01:00Z (in 60 s)" in answer.sentence


def test_it_is_not_due_because_it_failed_or_snoozed(bench: Bench) -> None:
    job = bench.submit()
    bench.settle(Failed(Failure("BANK_DOWN", "no answer")))
    answer = bench.why(job)
    assert answer.reason == "NOT_DUE" and "try again after BANK_DOWN" in answer.sentence
    other = bench.submit()
    bench.settle(Snoozed(60 * SECOND))
    assert bench.why(other).reason == "NOT_DUE"


def test_it_waits_for_a_moment(bench: Bench) -> None:
    scheduled = bench.submit(scheduled_at="2026-02-25T15:00:00Z")
    answer = bench.why(scheduled)
    assert answer.reason == "WAITS_FOR_MOMENT" and "not due until 2026-02-25T15:00:00Z (in 3 h)" in answer.sentence
    asleep = bench.submit()
    bench.settle(Waits(Wait("sleep", "timer", 60 * SECOND)))
    assert bench.why(asleep).reason == "WAITS_FOR_MOMENT"
    bench.clock.at += 61 * SECOND
    assert bench.why(asleep).reason == "DUE_TO_WAKE" and "start a worker" in bench.why(asleep).sentence


def test_it_waits_for_a_signal(bench: Bench) -> None:
    job = bench.submit()
    bench.settle(Waits(Wait("packed", "signal", 3_600 * SECOND)))
    asyncio.run(bench.engine.pause("queue", "default", actor="ann"))
    answer = bench.why(job)
    assert (answer.reason, also(answer)) == ("WAITS_FOR_SIGNAL", ["PAUSED"])
    assert "the signal 'packed' until 2026-02-25T13:00:00Z" in answer.sentence
    assert f"detent jobs signal {job} packed" in answer.sentence and answer.details["waits_for"] == "packed"


def test_it_waits_for_approval(bench: Bench) -> None:
    for contract in ("standard", "streams"):
        job = bench.submit(hold=True, contract=contract)
        answer = bench.why(job)
        assert answer.reason == "WAITS_FOR_APPROVAL" and f"detent jobs approve {job}" in answer.sentence


def test_it_is_held_and_asked_to_stop(bench: Bench) -> None:
    job = bench.submit()
    bench.worker()
    bench.claim()
    answer = bench.why(job)
    assert answer.reason == "HELD" and "held by worker w1 until 2026-02-25T12:00:30Z (in 30 s)" in answer.sentence
    assert answer.details["holder_seen"] is True and also(answer) == []
    asyncio.run(bench.engine.cancel(job, actor="ann", reason="wrong order"))
    answer = bench.why(job)
    assert also(answer) == ["CANCEL_REQUESTED"]
    assert answer.details["also"][0]["sentence"].startswith("ann asked to cancel it 0 ms ago (wrong order)")


def test_its_lease_ran_out(bench: Bench) -> None:
    job = bench.submit()
    bench.claim()
    bench.clock.at += 45 * SECOND
    answer = bench.why(job)
    assert answer.reason == "LEASE_EXPIRED" and "ran out 15 s ago; nobody sweeps: start a worker" in answer.sentence
    bench.worker("w2")
    assert "the next sweep of any worker takes it back" in bench.why(job).sentence


def test_it_has_ended(bench: Bench) -> None:
    good = bench.submit()
    bench.settle(Succeeded("1"))
    bench.clock.at += 12 * SECOND
    assert bench.why(good).sentence == "it has ended as succeeded 12 s ago"
    bad = bench.submit()
    bench.settle(Failed(Failure("BANK_GONE", "never again", retryable=False)))
    answer = bench.why(bad)
    assert answer.reason == "FINISHED" and "(BANK_GONE: never again); its dead letter is" in answer.sentence


def test_another_tenant_gets_no_answer(bench: Bench) -> None:
    with pytest.raises(TenantViolation):
        bench.why(bench.submit(tenant_id="a"), "b")


def test_every_contract_has_an_answer_in_every_phase(bench: Bench) -> None:
    for name in bench.engine.contracts:
        job = bench.submit(contract=name)
        assert bench.why(job).reason == "NO_WORKER"
        bench.claim()
        assert bench.why(job).reason == "HELD"
        asyncio.run(_succeed(bench.engine, job))
        assert bench.why(job).reason == "FINISHED"


async def _succeed(engine: Engine, job_id: str) -> None:
    job = await engine.job(job_id)
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
