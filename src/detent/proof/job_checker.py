"""Checkers that know the contracts' tables and the raw rows, and nothing of the engine: each log is folded anew."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import apsw

from detent.core.contract.model import Contract, Move, Phase, derive_status, replay

from .controlled_store import Violation


class Row(NamedTuple):
    """What the checkers look at of a job."""

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


class Entry(NamedTuple):
    """One line of the log, as stored."""

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


ROWS = f"SELECT {', '.join(Row._fields)} FROM jobs"
ENTRIES = f"SELECT {', '.join(Entry._fields)} FROM events"
Finding = tuple[str, str]
"""(rule, detail)"""


class Fold:
    """One job's log, folded line by line into what its row must say."""

    def __init__(self, contract: Contract) -> None:
        self.contract = contract
        self.status: str | None = None
        self.seq = self.executions = self.failures = self.retries = self.interruptions = self.at = 0
        self.ended = self.given_up = False
        self.due_at: int | None = None

    def feed(self, entry: Entry) -> Iterator[Finding]:
        """Take one line; yields what is wrong with it."""
        if entry.seq != self.seq + 1:
            yield "log.gap", f"event {entry.seq} follows event {self.seq}"
        if entry.source != self.status:
            yield "log.chain", f"event {entry.seq} leaves {entry.source}, the job was in {self.status}"
        if self.ended:
            yield from self._second_life(entry)
        if entry.at < self.at:
            yield "log.time", f"event {entry.seq} is {self.at - entry.at} µs older than the one before it"
        if entry.retries != self.retries:
            yield "log.retries", f"event {entry.seq} says {entry.retries} retries before it, there were {self.retries}"
        self.seq, self.status, self.at = entry.seq, entry.target, max(self.at, entry.at)
        move = move_of(self.contract, entry)
        if move is None:
            yield "log.edge", f"{entry.source} -> {entry.target} by {entry.event} is no edge of {self.contract.name}"
            return
        self._count(move, entry)
        if entry.execution_no != self.executions:
            yield "log.execution", f"event {entry.seq} is of execution {entry.execution_no}, not {self.executions}"

    def _second_life(self, entry: Entry) -> Iterator[Finding]:
        if move_of(self.contract, entry) is not Move.REOPEN:
            yield "final.once", f"event {entry.seq} ({entry.event}) comes after the job's end"

    def _count(self, move: Move, entry: Entry) -> None:
        data = _data(entry)
        charged = "error_code" in data and data.get("charged", False)
        self.due_at = data.get("due_at")
        if move is Move.REOPEN:
            self.failures = self.retries = self.interruptions = 0
            self.given_up = False
        self.executions += move in (Move.CLAIM, Move.RECLAIM)
        self.retries += move is Move.RETRY
        self.failures += bool(charged and move in _CHARGED)
        self.interruptions += move is Move.RECLAIM or (move is Move.EXPIRE and not charged)
        self.given_up |= move is Move.FAIL
        self.ended = self.contract.phase(entry.target) is Phase.FINAL

    def compare(self, row: Row) -> Iterator[Finding]:
        """Log against row, column by column, and the budgets."""
        pairs = (
            ("row.version", row.version, self.seq),
            ("row.status", row.status, self.status),
            ("row.execution_no", row.execution_no, self.executions),
            ("row.failures", row.failures, self.failures),
            ("row.retries", row.retries, self.retries),
            ("row.interruptions", row.interruptions, self.interruptions),
            ("row.updated_at", row.updated_at, self.at),
            ("row.finished_at", row.finished_at, self.at if self.ended else None),
        )
        for rule, has, should in pairs:
            if has != should:
                yield rule, f"the row says {has!r}, the log says {should!r}"
        if self.due_at is not None and row.due_at != self.due_at:
            yield "row.due_at", f"due at {row.due_at}, logged as {self.due_at}"
        if row.status in self.contract.statuses and row.phase != self.contract.phase(row.status):
            yield "row.phase", f"{row.status} is {self.contract.phase(row.status)}, the row says {row.phase}"
        if row.failures > row.max_retries + 1 or row.retries > row.max_retries:
            yield "budget", f"{row.failures} failures and {row.retries} retries with max_retries {row.max_retries}"
        if (row.next_retry_at is not None) != (row.status in self.contract.retry_at_statuses):
            yield "row.next_retry_at", f"{row.next_retry_at} in {row.status}"
        if (row.token is None or row.lease_until is None) and row.phase == Phase.LEASED:
            yield "row.lease", "leased without a token or a moment at which the lease ends"


def check_job(
    contract: Contract, row: Row, log: Sequence[Entry], dead_letters: Collection[str], signals: Collection[str]
) -> Iterator[Finding]:
    """Everything that must hold of one job at rest; letters: ids of its dead letters, signals: names it was sent."""
    fold = Fold(contract)
    for entry in log:
        yield from fold.feed(entry)
    yield from fold.compare(row)
    names: Any = log
    strict, tolerant = replay(contract, names), derive_status(contract, names)
    if not strict.ok or strict.status != row.status or tolerant != row.status:
        yield "replay", f"strict replay gives {strict.status}, tolerant {tolerant}, the row says {row.status}"
    buried = bool(contract.dead_letters and fold.given_up and fold.ended)
    if buried and row.dlq_id not in dead_letters:
        yield "dead_letter.missing", f"the job was given up and its dead letter {row.dlq_id} does not exist"
    if dead_letters and not buried:
        yield "dead_letter.stray", f"{len(dead_letters)} dead letters of a job that was not given up"
    if row.phase == Phase.BLOCKED and row.wait_name in signals:
        yield "wait.sleeps", f"the job waits for {row.wait_name!r}, which has been sent"


def check_database(
    connection: apsw.Connection, contracts: Mapping[str, Contract], acknowledged: Iterable[str] = ()
) -> list[Violation]:
    """Every job of a database, from scratch, by plain SELECTs; acknowledged: submits somebody was told of."""
    logs: dict[str, list[Entry]] = {}
    for values in connection.execute(ENTRIES + " ORDER BY n"):
        logs.setdefault(values[0], []).append(Entry(*values))
    dead_letters = _grouped(connection, "SELECT job_id, id FROM dead_letters")
    signals = _grouped(connection, "SELECT job_id, name FROM signals")
    found = []
    rows = [Row(*values) for values in connection.execute(ROWS + " ORDER BY id")]
    for row in rows:
        log = sorted(logs.pop(row.id, []), key=lambda entry: entry.seq)
        parts = dead_letters.get(row.id, ()), signals.get(row.id, ())
        found += [
            Violation(row.id, rule, detail) for rule, detail in check_job(contracts[row.contract], row, log, *parts)
        ]
    found += [Violation(job_id, "log.orphan", "a log without its job") for job_id in sorted(logs)]
    there = {row.id for row in rows}
    lost = sorted(set(acknowledged) - there)
    found += [Violation(job_id, "submit.lost", "an acknowledged submit is not in the database") for job_id in lost]
    return found


def _grouped(connection: apsw.Connection, query: str) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for job_id, name in connection.execute(query):
        groups.setdefault(job_id, []).append(name)
    return groups


def move_of(contract: Contract, entry: Entry) -> Move | None:
    """Which verb wrote this line; where the table gives one step to several, the line's own data tells."""
    moves = _moves(contract).get((entry.source, entry.event, entry.target), ())
    if len(moves) <= 1:
        return moves[0] if moves else None
    reason = str(_data(entry).get("reason"))
    by_reason = {"lease_expired": contract.loss.move, "worker_stopped": contract.stop.move, "snoozed": contract.snooze}
    move = by_reason.get(reason, Move.RETRY)
    return move if move in moves else moves[0]


def _data(entry: Entry) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(entry.data) if entry.data else {}
    return found


_CHARGED = frozenset({Move.RETRY, Move.FAIL, Move.EXPIRE, Move.RELEASE})
_tables: dict[int, tuple[Contract, dict[tuple[str | None, str, str], tuple[Move, ...]]]] = {}


def _moves(contract: Contract) -> dict[tuple[str | None, str, str], tuple[Move, ...]]:
    known = _tables.get(id(contract))
    if known is None or known[0] is not contract:
        table: dict[tuple[str | None, str, str], tuple[Move, ...]] = {}
        for edge in contract.edges:
            if edge.move:
                step = (edge.source, edge.event, edge.target)
                table[step] = (*table.get(step, ()), edge.move)
        known = _tables[id(contract)] = contract, table
    return known[1]
