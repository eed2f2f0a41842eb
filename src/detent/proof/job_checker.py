"""Invariant checks on raw rows, used by the explorer and the simulator.

They know the contracts' tables and nothing of the engine: each job's log is folded again and compared with its row.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import apsw

from detent.core.contract.model import Contract, Move, Phase, derive_status, replay

from .controlled_store import Violation


class JobRow(NamedTuple):
    """The columns of a job that are checked."""

    id: str
    contract: str
    status: str
    phase: str
    version: int
    due_at: int | None
    max_retries: int
    execution_no: int
    failures: int
    retries: int
    interruptions: int
    token: str | None
    lease_until: int | None
    result: str | None
    next_retry_at: int | None
    wait_name: str | None
    dlq_id: str | None
    updated_at: int
    finished_at: int | None
    wait_kind: str | None


class EventRow(NamedTuple):
    """One event of a log, as stored."""

    job_id: str
    seq: int
    event: str
    source: str | None
    target: str
    at: int
    actor: str | None
    execution_no: int
    retries: int
    data: str | None


JOBS_QUERY = f"SELECT {', '.join(JobRow._fields)} FROM detent_jobs"
EVENTS_QUERY = f"SELECT {', '.join(EventRow._fields)} FROM detent_events"
Finding = tuple[str, str]
"""(rule, detail)"""


class LogFold:
    """Folds one job's log, event by event, into the values its row must have."""

    def __init__(self, contract: Contract) -> None:
        self.contract = contract
        self.status: str | None = None
        self.seq = self.executions = self.failures = self.retries = self.interruptions = self.at = 0
        self.final = self.failed = False
        self.due_at: int | None = None

    def feed(self, event: EventRow) -> Iterator[Finding]:
        """Add one event; yields the rules it breaks."""
        if event.seq != self.seq + 1:
            yield "log.gap", f"event {event.seq} follows event {self.seq}"
        if event.source != self.status:
            yield "log.chain", f"the source of event {event.seq} is {event.source}, the job was in {self.status}"
        if self.final and move_of(self.contract, event) is not Move.REOPEN:
            yield "final.once", f"event {event.seq} ({event.event}) comes after the final event"
        if event.at < self.at:
            yield "log.time", f"event {event.seq} is {self.at - event.at} µs older than the event before it"
        if event.retries != self.retries:
            yield "log.retries", f"event {event.seq} has retries {event.retries}, the log counts {self.retries}"
        self.seq, self.status, self.at = event.seq, event.target, max(self.at, event.at)
        move = move_of(self.contract, event)
        if move is None:
            yield "log.edge", f"{event.source} -> {event.target} by {event.event} is no edge of {self.contract.name}"
            return
        self._count(move, event)
        if event.execution_no != self.executions:
            detail = f"event {event.seq} has execution_no {event.execution_no}, the log counts {self.executions}"
            yield "log.execution", detail

    def _count(self, move: Move, event: EventRow) -> None:
        data = _data(event)
        charged = "error_code" in data and data.get("charged", False)
        self.due_at = data.get("due_at")
        if move is Move.REOPEN:
            self.failures = self.retries = self.interruptions = 0
            self.failed = False
        self.executions += move in (Move.CLAIM, Move.RECLAIM)
        self.retries += move is Move.RETRY
        self.failures += bool(charged and move in _CHARGED)
        self.interruptions += move is Move.RECLAIM or (move is Move.EXPIRE and not charged)
        self.failed |= move is Move.FAIL
        self.final = self.contract.phase(event.target) is Phase.FINAL

    def compare(self, row: JobRow) -> Iterator[Finding]:
        """Compare the row with the log, column by column, and check the retry budget."""
        pairs = (
            ("row.version", row.version, self.seq),
            ("row.status", row.status, self.status),
            ("row.execution_no", row.execution_no, self.executions),
            ("row.failures", row.failures, self.failures),
            ("row.retries", row.retries, self.retries),
            ("row.interruptions", row.interruptions, self.interruptions),
            ("row.updated_at", row.updated_at, self.at),
            ("row.finished_at", row.finished_at, self.at if self.final else None),
        )
        for rule, actual, expected in pairs:
            if actual != expected:
                yield rule, f"the row has {actual!r}, the log gives {expected!r}"
        if self.due_at is not None and row.due_at != self.due_at:
            yield "row.due_at", f"the row has due_at {row.due_at}, the log gives {self.due_at}"
        if row.status in self.contract.statuses and row.phase != self.contract.phase(row.status):
            yield (
                "row.phase",
                f"the phase of {row.status} is {self.contract.phase(row.status)}, the row has {row.phase}",
            )
        if row.failures > row.max_retries + 1 or row.retries > row.max_retries:
            yield "budget", f"{row.failures} failures and {row.retries} retries with max_retries {row.max_retries}"
        if (row.next_retry_at is not None) != (row.status in self.contract.retry_at_statuses):
            yield "row.next_retry_at", f"{row.next_retry_at} in {row.status}"
        if (row.token is None or row.lease_until is None) and row.phase == Phase.LEASED:
            yield "row.lease", "leased without a token or a lease_until"


def check_job(
    contract: Contract, row: JobRow, log: Sequence[EventRow], dead_letters: Collection[str], signals: Collection[str]
) -> Iterator[Finding]:
    """All invariants of one committed job; dead_letters: ids of its dead letters, signals: names of its signals."""
    fold = LogFold(contract)
    for event in log:
        yield from fold.feed(event)
    yield from fold.compare(row)
    events: Any = log
    strict, tolerant = replay(contract, events), derive_status(contract, events)
    if not strict.ok or strict.status != row.status or tolerant != row.status:
        yield "replay", f"strict replay gives {strict.status}, tolerant {tolerant}, the row has {row.status}"
    needs_dead_letter = bool(contract.dead_letters and fold.failed and fold.final)
    if needs_dead_letter and row.dlq_id not in dead_letters:
        yield "dead_letter.missing", f"the job failed and its dead letter {row.dlq_id} does not exist"
    if dead_letters and not needs_dead_letter:
        yield "dead_letter.stray", f"{len(dead_letters)} dead letters of a job that did not fail"
    if row.phase == Phase.BLOCKED and row.wait_name in signals:
        yield "wait.sleeps", f"the job waits for {row.wait_name!r}, but that signal was sent"


def check_database(
    connection: apsw.Connection, contracts: Mapping[str, Contract], acknowledged: Iterable[str] = ()
) -> list[Violation]:
    """Check every job of a database with plain SELECTs; acknowledged: jobs whose submit call returned."""
    logs: dict[str, list[EventRow]] = {}
    for values in connection.execute(EVENTS_QUERY + " ORDER BY n"):
        logs.setdefault(values[0], []).append(EventRow(*values))
    dead_letters = _grouped(connection, "SELECT job_id, id FROM detent_dead_letters")
    signals = _grouped(connection, "SELECT job_id, name FROM detent_signals")
    violations = []
    rows = [JobRow(*values) for values in connection.execute(JOBS_QUERY + " ORDER BY id")]
    for row in rows:
        log = sorted(logs.pop(row.id, []), key=lambda event: event.seq)
        parts = dead_letters.get(row.id, ()), signals.get(row.id, ())
        violations += [
            Violation(row.id, rule, detail) for rule, detail in check_job(contracts[row.contract], row, log, *parts)
        ]
    violations += [Violation(job_id, "log.orphan", "events of a job that does not exist") for job_id in sorted(logs)]
    lost = sorted(set(acknowledged) - {row.id for row in rows})
    detail = "an acknowledged submit is not in the database"
    violations += [Violation(job_id, "submit.lost", detail) for job_id in lost]
    return violations


def _grouped(connection: apsw.Connection, query: str) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for job_id, name in connection.execute(query):
        groups.setdefault(job_id, []).append(name)
    return groups


def move_of(contract: Contract, event: EventRow) -> Move | None:
    """The move that wrote this event; where several moves share an edge, the event's data decides."""
    moves = _moves(contract).get((event.source, event.event, event.target), ())
    if len(moves) <= 1:
        return moves[0] if moves else None
    reason = str(_data(event).get("reason"))
    by_reason = {"lease_expired": contract.loss.move, "worker_stopped": contract.stop.move, "snoozed": contract.snooze}
    move = by_reason.get(reason, Move.RETRY)
    return move if move in moves else moves[0]


def _data(event: EventRow) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(event.data) if event.data else {}
    return data


_CHARGED = frozenset({Move.RETRY, Move.FAIL, Move.EXPIRE, Move.RELEASE})
_tables: dict[int, tuple[Contract, dict[tuple[str | None, str, str], tuple[Move, ...]]]] = {}


def _moves(contract: Contract) -> dict[tuple[str | None, str, str], tuple[Move, ...]]:
    """(source, event, target) -> moves, cached by the contract's identity."""
    cached = _tables.get(id(contract))
    if cached is None or cached[0] is not contract:
        table: dict[tuple[str | None, str, str], tuple[Move, ...]] = {}
        for edge in contract.edges:
            if edge.move:
                step = (edge.source, edge.event, edge.target)
                table[step] = (*table.get(step, ()), edge.move)
        cached = _tables[id(contract)] = contract, table
    return cached[1]
