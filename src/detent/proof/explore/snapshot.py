"""Snapshots of a two-job database, normalized so that equivalent states compare equal.

The explorer must recognise a state it has visited before. Absolute times and lease tokens differ from run to run, so a
snapshot replaces past times by one constant, keeps future times as distances from a fixed "now", and renames tokens in
the order in which they appear.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import apsw

from detent.core.contract.model import Contract, Phase
from detent.core.job import APPROVAL, Micros
from detent.ports.verification import ApprovalRow, DeadLetterRow, EventRow, JobRow
from detent.proof.controlled_store import BrokenRule
from detent.proof.job_checker import check_job
from detent.proof.verify.children_and_approvals import check_approvals
from detent.proof.verify.fold import ContractTable
from detent.proof.verify.rules import Report

JOBS = ("job-1", "job-2")
NOW: Micros = 1_000_000_000_000
"""The current time of every normalized snapshot."""
PAST: Micros = NOW - 60_000_000
"""Replaces every time that has passed, except due times of waiting jobs, which keep their order."""
SPAN_SECONDS = 10.0
"""Length of every lease, backoff and wait."""
FRESH = "fresh"
"""The token of the claim in progress; renamed as soon as the claim is done."""

Values = tuple[Any, ...]


def _as_stored(column: str, position: int) -> str:
    """The parameter of a column; workers and actors are stored as numbers."""
    is_name = column in ("worker", "actor")
    return f"(SELECT id FROM detent_actors WHERE name = ?{position + 1})" if is_name else f"?{position + 1}"


class StateSnapshot(NamedTuple):
    """The rows of one database state, ready to be loaded. Tokens carry the names of the state they belong to."""

    jobs: tuple[Values, ...]
    events: tuple[Values, ...]
    signals: tuple[Values, ...]
    dead_letters: tuple[Values, ...]
    keys: tuple[Values, ...]
    steps: tuple[Values, ...] = ()
    awaited: tuple[Values, ...] = ()
    child_events: tuple[Values, ...] = ()
    approvals: tuple[Values, ...] = ()
    votes: tuple[Values, ...] = ()
    effects: tuple[int, ...] = (0, 0)
    """How often the function of a once ran, per job. Not in the database: nothing undoes it."""

    def with_effect(self, job: int) -> "StateSnapshot":
        return self._replace(effects=tuple(times + (n == job) for n, times in enumerate(self.effects)))


class JobState(NamedTuple):
    """The columns of one job that tell states apart. `lease` and `due` are distances from now."""

    status: str
    phase: str
    ready: int
    due: Micros | None
    failures: int
    retries: int
    token: str | None
    lease: Micros | None
    wait_name: str | None
    cancel: bool
    begun: bool
    result: str | None
    settlements: tuple[str, ...]
    """Settlement digests logged in the current execution, if a worker may still repeat one of them."""
    signals: tuple[tuple[str, int], ...]
    steps: tuple[tuple[bool, bool], ...]
    """(finished, recorded by the current execution)"""
    relations: tuple[Values, ...]
    """The children it waits for, and the ends of children that have not been processed."""
    approvals: tuple[Values, ...]
    """(name, decision, distance to its deadline) of each approval, and (person, approved) of each vote."""
    effects: int


@dataclass(slots=True, eq=False)
class DatabaseState:
    """A visited database state: its snapshot, and what the search reads from it again and again."""

    number: int
    snapshot: StateSnapshot
    jobs: tuple[JobState | None, ...]
    next_deadline: Micros | None
    """Distance from now to the next lease end or due time."""


class SnapshotDatabase:
    """Loads snapshots into one SQLite connection, reads them back and normalizes them."""

    def __init__(self, connection: apsw.Connection, contract: Contract) -> None:
        self.connection = connection
        self._table = ContractTable(contract)
        columns = {table: _columns(connection, table) for table in _TABLES}
        self.positions = columns["jobs"]
        self._inserts = {t: f"INSERT INTO detent_{t} VALUES ({', '.join('?' for _ in c)})" for t, c in columns.items()}
        self._inserts["jobs"] = _insert_job(connection, columns["jobs"])
        self._past_columns = {t: [n for name, n in c.items() if _is_past_time(name)] for t, c in columns.items()}
        self._dead_letter_positions = [columns["dead_letters"][name] for name in DeadLetterRow._fields]
        self._step_positions = columns["steps"]["finished"], columns["steps"]["execution_no"]
        self._approval_positions = columns["approvals"]
        self._loads = 0

    def load(self, snapshot: StateSnapshot) -> None:
        """Replace the contents of the database. Notes and audit rows are not part of a state; they pile up a while."""
        execute, many = self.connection.execute, self.connection.executemany
        execute("BEGIN")
        self._loads += 1
        if self._loads % 500 == 0:
            execute("DELETE FROM detent_notes")
            execute("DELETE FROM detent_audit")
        execute("DELETE FROM detent_events")
        tables = (snapshot.jobs, snapshot.signals, snapshot.dead_letters, snapshot.keys, *snapshot[5:10])
        for table, rows in zip(_TABLES, tables, strict=True):
            execute(f"DELETE FROM detent_{table}")
            if rows:
                many(self._inserts[table], rows)
        many(_INSERT_EVENT, snapshot.events)
        execute("COMMIT")

    def read(self) -> StateSnapshot:
        execute = self.connection.execute
        return StateSnapshot(
            tuple(execute("SELECT * FROM detent_job_list ORDER BY id")),
            tuple(execute(_SELECT_EVENTS)),
            tuple(execute("SELECT * FROM detent_signals ORDER BY job_id, name")),
            tuple(execute("SELECT * FROM detent_dead_letters ORDER BY job_id, retries")),
            tuple(execute("SELECT * FROM detent_keys ORDER BY space, key")),
            tuple(execute("SELECT * FROM detent_steps ORDER BY job_id, name")),
            tuple(execute("SELECT * FROM detent_awaited ORDER BY parent_id, child_id")),
            tuple((n, *row[1:]) for n, row in enumerate(execute("SELECT * FROM detent_child_events ORDER BY n"), 1)),
            tuple(execute("SELECT * FROM detent_approvals ORDER BY job_id, name")),
            tuple(execute("SELECT * FROM detent_votes ORDER BY job_id, name, person")),
        )

    def job_row(self, values: Values) -> JobRow:
        columns = {name: values[position] for name, position in self.positions.items()}
        columns["has_worker"] = columns["worker"] is not None
        columns["has_token"] = columns["token"] is not None
        if columns["phase"] != Phase.LEASED:  # the token is dropped from a snapshot if no worker remembers it
            columns["has_token"] = columns["execution_no"] > 0
        return JobRow(**{name: columns[name] for name in JobRow._fields})

    def check(self, snapshot: StateSnapshot) -> list[BrokenRule]:
        """Every broken rule; the snapshot must be as read, not normalized."""
        findings: list[BrokenRule] = []
        for values in snapshot.jobs:
            row = self.job_row(values)
            log = [EventRow(*event[1:_EVENT_END]) for event in snapshot.events if event[1] == row.id]
            dead_letters = [
                DeadLetterRow(*(dead_letter[position] for position in self._dead_letter_positions))
                for dead_letter in snapshot.dead_letters
                if dead_letter[1] == row.id
            ]
            signals = [signal[1] for signal in snapshot.signals if signal[0] == row.id]
            findings += check_job(self._table, row, log, dead_letters, signals)
        phases = {values[0]: values[self.positions["phase"]] for values in snapshot.jobs}
        events = {(parent, child) for _, parent, child, _ in snapshot.child_events}
        for parent, child, _ in snapshot.awaited:
            missed = phases[parent] == Phase.BLOCKED and phases[child] == Phase.FINAL and (parent, child) not in events
            if missed:
                findings.append((parent, "child.missed", f"waits for {child}, which has ended without a notification"))
        return findings + self._check_approvals(snapshot)

    def _check_approvals(self, snapshot: StateSnapshot) -> list[BrokenRule]:
        """Decisions are those of their votes or deadlines, and a job that waits for an approval can be decided."""
        report, at, job_at = Report(), self._approval_positions, self.positions
        undecided = set()
        for row in snapshot.approvals:
            votes = [vote[3] for vote in snapshot.votes if vote[:2] == row[:2]]
            quorum, decision, expired, on_expiry = (row[at[n]] for n in ("quorum", "decision", "expired", "on_expiry"))
            counts = votes.count(1), votes.count(0)
            fields = (row[0], row[1], quorum, decision, expired, on_expiry, *counts, row[0])
            check_approvals([ApprovalRow(*fields)], report)
            if decision is None:
                undecided.add(row[:2])
        for job in snapshot.jobs:
            waits = job[job_at["phase"]] == Phase.BLOCKED and job[job_at["wait_kind"]] == APPROVAL
            if waits and (job[0], job[job_at["wait_name"]]) not in undecided:
                report.add(
                    job[0], None, "approval-missing", "it waits for an approval that is not requested, or decided"
                )
        return [(finding.job_id or "", finding.rule, finding.detail) for finding in report.violations]

    def decisions(self, snapshot: StateSnapshot) -> dict[Values, str]:
        """(job id, name) -> decision of every approval that is decided."""
        position = self._approval_positions["decision"]
        return {row[:2]: row[position] for row in snapshot.approvals if row[position] is not None}

    def finished_steps(self, snapshot: StateSnapshot) -> set[Values]:
        """Every recorded result of a step, without times."""
        finished, executed = self._step_positions
        return {(*step[: finished + 1], step[executed]) for step in snapshot.steps if step[finished]}

    def execution_number(self, snapshot: StateSnapshot, job: int, token: str) -> int:
        """The number of the execution with this token; 0 for one that is no longer the last."""
        at = self.positions
        rows = [v for v in snapshot.jobs if v[0] == JOBS[job] and v[at["token"]] == token]
        return rows[0][at["execution_no"]] if rows else 0

    def normalize(self, snapshot: StateSnapshot, now: Micros) -> StateSnapshot:
        """Shift a snapshot taken at `now` to NOW: past times become PAST, future times keep their distance.

        Past due times of waiting jobs become NOW minus a rank, because claims go by their order.
        """
        at = self.positions
        waiting = (Phase.CLAIMABLE, Phase.BLOCKED)
        dues = {v[at["due_at"]] for v in snapshot.jobs if v[at["phase"]] in waiting and v[at["due_at"]] is not None}
        past = sorted(due for due in dues if due <= now)
        ranks = {due: rank - len(past) for rank, due in enumerate(past)}
        jobs = []
        for values in snapshot.jobs:
            row = self._with_past_times("jobs", values)
            due, lease = row[at["due_at"]], row[at["lease_until"]]
            if due is not None:
                due = (NOW + due - now if due > now else NOW + ranks[due]) if row[at["phase"]] in waiting else PAST
                row[at["due_at"]] = due
            if row[at["next_retry_at"]] is not None:
                row[at["next_retry_at"]] = due
            if lease is not None:
                row[at["lease_until"]] = NOW + max(0, lease - now)
            if row[at["dlq_id"]] is not None:
                row[at["dlq_id"]] = f"letter of {row[at['id']]}"
            jobs.append(tuple(row))
        due_at = {row[at["id"]]: "null" if row[at["due_at"]] is None else row[at["due_at"]] for row in jobs}
        dead_letters = [self._with_past_times("dead_letters", values) for values in snapshot.dead_letters]
        return StateSnapshot(
            tuple(jobs),
            tuple((*e[:3], PAST, e[4] and _DUE.sub(f'"due_at":{due_at[e[1]]}', e[4]), *e[5:]) for e in snapshot.events),
            tuple(tuple(self._with_past_times("signals", values)) for values in snapshot.signals),
            tuple((f"letter of {job_id}", job_id, *rest) for _, job_id, *rest in dead_letters),
            tuple(tuple(self._with_past_times("keys", values)) for values in snapshot.keys),
            tuple(tuple(self._with_past_times("steps", values)) for values in snapshot.steps),
            snapshot.awaited,
            snapshot.child_events,
            tuple(self._approval_at(values, now) for values in snapshot.approvals),
            tuple(tuple(self._with_past_times("votes", values)) for values in snapshot.votes),
            snapshot.effects,
        )

    def _approval_at(self, values: Values, now: Micros) -> Values:
        row, position = self._with_past_times("approvals", values), self._approval_positions["deadline"]
        if row[position] is not None:
            row[position] = NOW + max(0, row[position] - now)
        return tuple(row)

    def _with_past_times(self, table: str, values: Values) -> list[Any]:
        row = list(values)
        for position in self._past_columns[table]:
            if row[position] is not None:
                row[position] = PAST
        return row

    def rename_tokens(self, snapshot: StateSnapshot, names: Mapping[str, str]) -> StateSnapshot:
        """Rename the jobs' tokens; a token without a new name can no longer be used and is dropped."""
        position = self.positions["token"]
        jobs = tuple((*v[:position], names.get(v[position]), *v[position + 1 :]) for v in snapshot.jobs)
        return snapshot._replace(jobs=jobs)

    def tokens(self, snapshot: StateSnapshot) -> list[tuple[str | None, bool]]:
        """(token, whether the job is leased under it) of each job."""
        at = self.positions
        return [(v[at["token"]], v[at["phase"]] == Phase.LEASED) for v in snapshot.jobs]

    def job_states(self, snapshot: StateSnapshot, usable_tokens: Collection[str]) -> tuple[JobState | None, ...]:
        """The jobs of a normalized snapshot in the order of JOBS; usable_tokens: tokens a worker still remembers."""
        rows = {values[0]: values for values in snapshot.jobs}
        return tuple(self._job_state(rows[job], snapshot, usable_tokens) if job in rows else None for job in JOBS)

    def _job_state(self, values: Values, snapshot: StateSnapshot, usable_tokens: Collection[str]) -> JobState:
        at = self.positions
        token, due, lease = values[at["token"]], values[at["due_at"]], values[at["lease_until"]]
        waiting = values[at["phase"]] in (Phase.CLAIMABLE, Phase.BLOCKED)
        finished, executed = self._step_positions
        settlements: Sequence[str] = ()
        if token in usable_tokens:
            number = values[at["execution_no"]]
            events = [EventRow(*e[1:_EVENT_END]) for e in snapshot.events if e[1] == values[0]]
            data = [json.loads(e.data) for e in events if e.execution_no == number and e.data]
            settlements = sorted({item["settlement"] for item in data if "settlement" in item})
        return JobState(
            values[at["status"]],
            values[at["phase"]],
            values[at[JobState._fields[2]]],
            due - NOW if due is not None and waiting else None,
            values[at["failures"]],
            values[at["retries"]],
            token,
            None if lease is None else lease - NOW,
            values[at["wait_name"]],
            values[at["cancel_requested"]] is not None,
            values[at["execution_no"]] > 0,
            values[at["result"]] if token in usable_tokens else None,
            tuple(settlements),
            tuple((s[1], s[5]) for s in snapshot.signals if s[0] == values[0]),
            tuple(
                (bool(step[finished]), step[executed] == values[at["execution_no"]])
                for step in snapshot.steps
                if step[0] == values[0]
            ),
            tuple(row for row in snapshot.awaited if row[0] == values[0])
            + tuple(row[1:] for row in snapshot.child_events if row[1] == values[0]),
            tuple(
                (row[1], row[self._approval_positions["decision"]], row[self._approval_positions["deadline"]])
                for row in snapshot.approvals
                if row[0] == values[0]
            )
            + tuple(vote[2:4] for vote in snapshot.votes if vote[0] == values[0]),
            snapshot.effects[JOBS.index(values[0])],
        )


_EVENT = ("actor", *EventRow._fields, "edge", "lane")
_EVENT_END = -2
_SELECT_EVENTS = f"SELECT {', '.join(_EVENT)} FROM detent_event_list ORDER BY job_id, seq"
_STORED_EVENT = [name for name in _EVENT if name not in ("event", "source", "target")]
_INSERT_EVENT = (
    f"INSERT INTO detent_events ({', '.join(_STORED_EVENT)})"
    f" SELECT {', '.join(_as_stored(name, _EVENT.index(name)) for name in _STORED_EVENT)}"
)
_DUE = re.compile(r'"due_at":\d+')


_TABLES = ("jobs", "signals", "dead_letters", "keys", "steps", "awaited", "child_events", "approvals", "votes")


def _columns(connection: apsw.Connection, table: str) -> dict[str, int]:
    """Jobs are read from the view that has their names."""
    source = "job_list" if table == "jobs" else table
    return {row[1]: row[0] for row in connection.execute(f"PRAGMA table_info(detent_{source})")}


def _insert_job(connection: apsw.Connection, positions: Mapping[str, int]) -> str:
    """The statement that stores a row of the view."""
    stored = [row[1] for row in connection.execute("PRAGMA table_info(detent_jobs)") if row[1] in positions]
    return (
        f"INSERT INTO detent_jobs ({', '.join(stored)})"
        f" VALUES ({', '.join(_as_stored(name, positions[name]) for name in stored)})"
    )


def _is_past_time(column: str) -> bool:
    return column == "at" or (column.endswith("_at") and column not in ("due_at", "next_retry_at"))


def next_deadline(jobs: Sequence[JobState | None]) -> Micros | None:
    """Distance to the next lease end or due time in the future."""
    future = [moment for job in jobs if job for moment in (job.due, job.lease) if moment is not None and moment > 0]
    return min(future, default=None)
