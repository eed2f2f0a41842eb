"""Builds jobs for tests: new, after a series of moves, or directly in a status."""

from dataclasses import replace
from typing import Any

from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import Contract, Move
from detent.core.decide import create, decide
from detent.core.job import Change, Event, Facts, Failure, Job
from detent.core.outcome import after_failure
from detent.core.times import SECOND, from_iso

NOW = from_iso("2026-02-25T12:00:00Z", field="now")
LEASE = 30 * SECOND
NAMES = ("gate-b2", "men", "p3c", "streams", "formal", "standard")
CLAIM = Facts(worker="w1", token="t1", lease=LEASE)


def blank(contract: Contract, **columns: Any) -> Job:
    """A row before its first move."""
    status = next(iter(contract.statuses))
    values: dict[str, Any] = {
        "id": "job-1",
        "contract": contract.name,
        "job_type": "mail",
        "queue": "default",
        "tenant_id": "acme",
        "status": status,
        "phase": contract.statuses[status],
        "version": 0,
        "payload": '{"to": "a@b.c"}',
        "created_at": NOW,
        "updated_at": NOW,
        "due_at": NOW,
        "max_retries": contract.retry.max_retries,
        "trace_id": "trace-1",
        "idempotency_key": "order-1",
        "task_id": "task-1",
        "task_attempt": 1,
        "schedule_type": "at",
        "timeout_ms": 30_000,
    }
    return Job(**(values | columns))


def created(contract: Contract, move: Move = Move.SUBMIT, now: int = NOW, **columns: Any) -> Change:
    return create(contract, blank(contract, **columns), move, now, Facts(actor="ann", due_at=now))


def running(contract: Contract, **columns: Any) -> Job:
    """A job in its first execution."""
    return claimed(contract, created(contract, **columns).after)


def claimed(contract: Contract, job: Job, now: int = NOW) -> Job:
    return decide(contract, job, Move.CLAIM, now, CLAIM).after


def job_in_status(contract: Contract, status: str, **columns: Any) -> Job:
    """A row set directly into a status, for statuses that no job stays in."""
    return blank(contract, status=status, phase=contract.statuses[status], version=3, **columns)


class JobHistory:
    """One job with its whole log. Each move advances the time by a second."""

    def __init__(self, contract: Contract | str, move: Move = Move.SUBMIT, **columns: Any) -> None:
        self.contract = CONTRACTS[contract] if isinstance(contract, str) else contract
        self.now = NOW
        self.events: list[Event] = []
        self.changes: list[Change] = []
        self._append(created(self.contract, move, **columns))

    def move(self, move: Move, **facts: Any) -> Change:
        self.now += SECOND
        details = Facts(**({"worker": "w1", "token": f"t{self.now}", "lease": LEASE, "dlq_id": "dlq-1"} | facts))
        return self._append(decide(self.contract, self.job, move, self.now, details))

    def fail(self, code: str = "X", message: str = "broke", **failure: Any) -> Change:
        self.now += SECOND
        details = Failure(code, message, **failure)
        return self._append(
            after_failure(self.contract, self.job, details, self.now, Facts(worker="w1", dlq_id="dlq-1"))
        )

    def apply_rule(self, rule: Any) -> Change:
        """Apply after_loss or after_stop."""
        self.now += SECOND
        facts = Facts(actor="sweeper", token="t-new", worker="w2", lease=LEASE, dlq_id="dlq-1")
        return self._append(rule(self.contract, self.job, self.now, facts))

    def fail_until_final(self, code: str = "X", limit: int = 20) -> int:
        """Claim and fail until the job cannot be claimed; returns the number of executions."""
        executions = 0
        while self.contract.edge(self.job.status, Move.CLAIM) and executions < limit:
            self.move(Move.CLAIM)
            executions += 1
            self.fail(code)
        return executions

    @property
    def job(self) -> Job:
        return self.changes[-1].after

    def view(self) -> dict[str, Any]:
        return self.contract.view(self.job)

    def _append(self, change: Change) -> Change:
        self.changes.append(replace(change, after=replace(change.after)))
        self.events += change.events
        return change
