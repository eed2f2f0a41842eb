"""What log and rows must say of each other, typed in from the contracts' pages and folded without the engine."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.replay import derive_status, replay
from detent.core.job import Event
from detent.core.outcome import Cancelled, Failed, Outcome, Snoozed, Stopped, Succeeded, Waits
from detent.stores.rows import EVENT_COLUMNS

from .places import Place

Row = dict[str, Any]
Step = tuple[str | None, str]
"""(source, event) of one event: what a fold looks at."""


@dataclass(frozen=True)
class Facts:
    """One contract as its page tells it; sets of steps name what a counter counts."""

    running: str
    starts: frozenset[str]
    retried: frozenset[Step]
    failed: frozenset[Step]
    interrupted: frozenset[Step] = frozenset()
    retry_status: str = ""
    done: str = "succeeded"
    given_up: str = "failed"
    cancelled: str | None = "cancelled"
    again: str = "queued"
    """Where a job stands that may be claimed and has no special reason to wait."""
    timed: frozenset[str] = frozenset()
    ends: frozenset[str] = frozenset({"succeeded", "failed", "cancelled"})
    cancels: frozenset[str] = frozenset()
    requests: frozenset[str] = frozenset()
    aborts: frozenset[str] = frozenset()
    reopens: frozenset[str] = frozenset()
    approvals: frozenset[str] = frozenset()
    waits: dict[bool, str] = field(default_factory=dict)
    snoozes: bool = False
    lost_to: str | None = None
    """None: a lost worker is a failure like any other."""
    stopped_to: str | None = None
    buried: tuple[str, ...] = ()
    """The statuses a failure walks through, the first of them entered by FAIL."""
    key_scope: tuple[str, ...] = ()
    only_codes: frozenset[str] = frozenset()
    permanent: frozenset[str] = frozenset({"PAYLOAD_INVALID"})
    delays: tuple[int, ...] = ()
    """Seconds before retry 1, 2, ...; the last repeats."""
    jitter_ms: int = 0
    frozen: bool = False
    """A failure may not choose its delay."""


def _steps(text: str) -> frozenset[Step]:
    return frozenset((source or None, event) for source, event in (pair.split(">") for pair in text.split()))


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


FACTS: dict[str, Facts] = {
    "gate-b2": Facts(
        running="running",
        starts=_set("job.running"),
        retried=_steps("running>job.retrying"),
        failed=_steps("running>job.retrying running>job.dlq_pending"),
        retry_status="retrying",
        cancelled=None,
        timed=_set("retrying"),
        aborts=_set("retrying"),
        buried=("dlq_pending", "dlq_recorded", "failed"),
        key_scope=("tenant_id",),
        delays=(1, 2, 4),
        jitter_ms=300,
        frozen=True,
    ),
    "men": Facts(
        running="running",
        starts=_set("task.running"),
        retried=_steps("running>task.ready"),
        failed=_steps("running>task.ready running>task.failed"),
        retry_status="ready",
        again="ready",
        cancels=_set("pending ready running"),
        key_scope=("idempotency_scope",),
        only_codes=_set("TASK_TIMEOUT TASK_EXECUTION_FAILED"),
        permanent=frozenset(),
        delays=(0,),
    ),
    "p3c": Facts(
        running="running",
        starts=_set("worker_claim retry_due recovery_resume"),
        retried=_steps("running>retryable_error"),
        failed=_steps("running>retryable_error running>non_retryable_error"),
        interrupted=_steps("running>process_restart"),
        retry_status="retry_scheduled",
        timed=_set("retry_scheduled"),
        cancels=_set("queued running retry_scheduled interrupted"),
        aborts=_set("interrupted"),
        lost_to="interrupted",
        stopped_to="interrupted",
        delays=(15, 30, 60),
    ),
    "streams": Facts(
        running="running",
        starts=_set("task.claimed task.reclaimed"),
        retried=_steps("running>task.retrying"),
        failed=_steps("running>task.retrying running>task.failed"),
        interrupted=_steps("running>task.reclaimed"),
        retry_status="queued",
        cancelled=None,
        approvals=_set("waiting_approval"),
        lost_to="running",
        stopped_to="running",
        buried=("failed",),
        permanent=_set("PAYLOAD_INVALID SCHEMA_INVALID TOOL_UNKNOWN"),
        delays=(0,),
    ),
    "formal": Facts(
        running="Running",
        starts=_set("job_running"),
        retried=_steps("Running>job_requeued"),
        failed=_steps("Running>job_requeued Running>job_failed"),
        retry_status="Queued",
        done="Completed",
        given_up="Failed",
        cancelled="Cancelled",
        again="Queued",
        ends=_set("Completed Failed Cancelled"),
        cancels=_set("Running Waiting Parked"),
        requests=_set("Queued Running"),
        reopens=_set("Failed"),
        waits={False: "Waiting", True: "Waiting"},
        snoozes=True,
        lost_to="Queued",
        stopped_to="Queued",
        key_scope=("tenant_id",),
        delays=(1,),
    ),
    "standard": Facts(
        running="running",
        starts=_set("job.claimed"),
        retried=_steps("running>job.retrying"),
        failed=_steps("running>job.retrying running>job.interrupted running>job.failing"),
        retry_status="retrying",
        timed=_set("retrying"),
        cancels=_set("scheduled queued retrying interrupted running waiting parked waiting_approval"),
        requests=_set("running"),
        aborts=_set("retrying interrupted"),
        approvals=_set("waiting_approval"),
        waits={False: "waiting", True: "parked"},
        snoozes=True,
        lost_to="interrupted",
        stopped_to="queued",
        buried=("dlq_pending", "dlq_recorded", "failed"),
        key_scope=("tenant_id", "idempotency_scope"),
        delays=(1, 2, 4),
        jitter_ms=300,
    ),
}
UNCHARGED = {"p3c", "streams"}
"""Contracts in which a lost worker uses up no try."""


@dataclass
class Snapshot:
    """Everything stored, read behind the engine's back."""

    jobs: dict[str, Row] = field(default_factory=dict)
    events: dict[str, list[Event]] = field(default_factory=dict)
    dead_letters: dict[str, Row] = field(default_factory=dict)
    signals: set[tuple[str, str]] = field(default_factory=set)

    def dump(self, job_id: str) -> tuple[Any, ...]:
        """The job's row, log and letters; `ready` and `lane` are only hints for the claimer."""
        row = {name: value for name, value in self.jobs[job_id].items() if name not in ("ready", "lane")}
        dead_letters = [item for item in self.dead_letters.values() if item["job_id"] == job_id]
        return row, self.events[job_id], dead_letters

    def dumps(self) -> dict[str, tuple[Any, ...]]:
        return {job_id: self.dump(job_id) for job_id in self.jobs}


def look(place: Place) -> Snapshot:
    seen, tables = Snapshot(), place.tables()
    for row in tables["jobs"]:
        seen.jobs[row["id"]] = row
        seen.events[row["id"]] = []
    for row in tables["events"]:
        row = {name: value for name, value in row.items() if name in EVENT_COLUMNS}
        data = row.pop("data")
        seen.events[row["job_id"]].append(Event(**row, data=None if data is None else json.loads(data)))
    seen.dead_letters = {row["id"]: row for row in tables["dead_letters"]}
    seen.signals = {(row["job_id"], row["name"]) for row in tables["signals"]}
    return seen


def check_job(seen: Snapshot, job_id: str) -> None:
    """Every promise about one job that can be read from the tables alone."""
    row, events = seen.jobs[job_id], seen.events[job_id]
    facts, contract = FACTS[row["contract"]], CONTRACTS[row["contract"]]
    assert [event.seq for event in events] == list(range(1, row["version"] + 1)), "version and log disagree"
    replayed = replay(contract, events)
    assert replayed.ok and replayed.status == derive_status(contract, events) == row["status"], replayed
    assert row["phase"] == str(contract.statuses[row["status"]])
    sources = [event.source for event in events]
    assert sources == [None, *(event.target for event in events[:-1])], "the log is not a chain"
    times = [event.at for event in events]
    assert times == sorted(times) and times[0] >= row["created_at"] and times[-1] == row["updated_at"]
    _check_holder(facts, row)
    _check_counters(facts, row, events)
    _check_moments(facts, row, events)
    _check_ends(facts, row, events)
    _check_dead_letters(facts, row, events, [item for item in seen.dead_letters.values() if item["job_id"] == job_id])
    waits_for = (job_id, row["wait_name"])
    assert waits_for not in seen.signals, f"{job_id} waits for {row['wait_name']}, which has come"


def _check_holder(facts: Facts, row: Row) -> None:
    leased = row["status"] == facts.running
    assert leased == (row["phase"] == "leased")
    assert leased == (row["worker"] is not None) == (row["lease_until"] is not None)
    assert row["token"] is not None if leased else True
    if not leased:
        assert row["phase"] == "claimable" or not row["ready"]


def _check_counters(facts: Facts, row: Row, events: Sequence[Event]) -> None:
    starts = sum(event.event in facts.starts for event in events)
    assert row["execution_no"] == starts, f"execution_no {row['execution_no']}, the log says {starts}"
    since = _since_reopened(facts, events)
    retries = [e for e in since if (e.source, e.event) in facts.retried and _is_retry(e)]
    failures = [
        e for e in since if (e.source, e.event) in facts.failed and not _handed_back(e) and not _given_up(facts, e)
    ]
    losses = [e for e in since if (e.source, e.event) in facts.interrupted]
    counters = (row["retries"], row["failures"], row["interruptions"])
    assert counters == (len(retries), len(failures), len(losses)), f"counters {counters}"
    assert len(retries) <= row["max_retries"] and len(failures) <= row["max_retries"] + 1
    before = 0
    for event in since:
        assert event.retries == before, f"event {event.seq} carries {event.retries} retries, there were {before}"
        before += event in retries


def _since_reopened(facts: Facts, events: Sequence[Event]) -> Sequence[Event]:
    opened = [index for index, event in enumerate(events) if event.source in facts.reopens]
    return events[opened[-1] + 1 :] if opened else events


def _is_retry(event: Event) -> bool:
    """formal writes one event for three moves; its reason tells them apart."""
    lost = event.event == "job_requeued" and (event.data or {}).get("reason") == "lease_expired"
    return not lost and not _handed_back(event)


def _handed_back(event: Event) -> bool:
    return event.event == "job_requeued" and (event.data or {}).get("reason") in ("snoozed", "worker_stopped")


def _given_up(facts: Facts, event: Event) -> bool:
    """After too many reclaims of a running job; the losses are counted, and no failure."""
    return facts.lost_to == facts.running and event.actor == "detent"


def _check_moments(facts: Facts, row: Row, events: Sequence[Event]) -> None:
    timed = row["status"] in facts.timed
    assert timed == (row["next_retry_at"] is not None)
    if timed:
        assert row["next_retry_at"] == row["due_at"] >= events[-1].at
    assert (row["due_at"] is not None) or row["phase"] != "claimable"
    assert (row["finished_at"] is not None) == (row["phase"] == "final")


def _check_ends(facts: Facts, row: Row, events: Sequence[Event]) -> None:
    ended = sum(event.target in facts.ends for event in events)
    opened = sum(event.source in facts.reopens for event in events)
    assert ended == opened + (row["status"] in facts.ends), f"{ended} final events, {opened} times reopened"


def _check_dead_letters(facts: Facts, row: Row, events: Sequence[Event], dead_letters: list[Row]) -> None:
    """FAIL leaves one item and walks the whole way to the end in one commit; nothing else leaves one."""
    fails = [i for i, e in enumerate(events) if facts.buried and e.target == facts.buried[0] and not _rejected(e)]
    assert len(dead_letters) == len(fails) <= 1
    for index in fails:
        way = events[index : index + len(facts.buried)]
        assert tuple(event.target for event in way) == facts.buried and way[-1] is events[-1]
        assert len({event.at for event in way}) == 1
        item = dead_letters[0]
        assert row["dlq_id"] == item["id"] and item["error_code"] == row["error_code"]
        assert item["payload"] == row["payload"] and item["tenant_id"] == row["tenant_id"]
        counted = row["failures"] if row["contract"] == "streams" else row["retries"]
        assert item["retries"] == counted and item["created_at"] == events[-1].at
    if not fails:
        assert row["dlq_id"] is None


def _rejected(event: Event) -> bool:
    return event.source == "waiting_approval"


def may_retry(row: Row, code: str, retryable: bool | None) -> bool:
    facts = FACTS[row["contract"]]
    if row["failures"] >= row["max_retries"] or retryable is False:
        return False
    if facts.only_codes:
        return code in facts.only_codes
    return code not in facts.permanent or retryable is True


def after_settle(row: Row, outcome: Outcome, signalled: Iterable[str]) -> str | None:
    """The status this outcome must lead to; None: the contract has no place for it."""
    facts = FACTS[row["contract"]]
    status: str | None = None
    match outcome:
        case Succeeded():
            status = facts.done
        case Failed(failure) if facts.frozen and failure.after is not None:
            status = None
        case Failed(failure):
            status = facts.retry_status if may_retry(row, failure.code, failure.retryable) else facts.given_up
        case Cancelled():
            status = facts.cancelled
        case Snoozed():
            status = facts.again if facts.snoozes else None
        case Waits(wait):
            status = facts.waits.get(wait.park)
            if status and wait.name in set(signalled):
                status = facts.again
        case Stopped() if facts.stopped_to is None:
            status = facts.retry_status if may_retry(row, lost_code(row), None) else facts.given_up
        case Stopped():
            status = facts.stopped_to
    cancel_is_pending = row["cancel_requested"] is not None and status not in facts.requests | facts.ends
    return facts.cancelled if status and cancel_is_pending else status


def after_loss(row: Row) -> str:
    facts = FACTS[row["contract"]]
    if row["contract"] not in UNCHARGED and not may_retry(row, lost_code(row), None):
        return facts.given_up
    status = facts.lost_to or facts.retry_status
    cancel_is_pending = row["cancel_requested"] is not None and status not in facts.requests | facts.ends
    return facts.cancelled if cancel_is_pending and facts.cancelled else status


def lost_code(row: Row) -> str:
    return "TASK_TIMEOUT" if row["contract"] == "men" else "WORKER_LOST"


def retry_window(row: Row, retry_no: int) -> tuple[int, int]:
    """The delays in microseconds a retry may have."""
    facts = FACTS[row["contract"]]
    seconds = facts.delays[min(retry_no, len(facts.delays)) - 1]
    return seconds * 1_000_000, seconds * 1_000_000 + facts.jitter_ms * 1_000
