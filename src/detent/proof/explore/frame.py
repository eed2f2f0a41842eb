"""Frames: all rows that matter of a small database, times and tokens renamed so that equal situations are equal."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import apsw

from detent.core.contract.model import Contract, Phase
from detent.core.job import Micros
from detent.proof.job_checker import ENTRIES, Entry, Finding, Row, check_job

JOBS = ("job-1", "job-2")
NOW: Micros = 1_000_000_000_000
"""The moment every frame is set to; what lies behind it is only ordered, what lies ahead keeps its distance."""
PAST: Micros = NOW - 60_000_000
SPAN_SECONDS = 10.0
"""How long a lease, a backoff and a wait last."""
FRESH = "fresh"
"""The token of the claim that is being made; renamed as soon as it has been made."""

Values = tuple[Any, ...]


class Frame(NamedTuple):
    """Rows to load. Tokens as they are named in the state the frame belongs to."""

    jobs: tuple[Values, ...]
    events: tuple[Values, ...]
    signals: tuple[Values, ...]
    dead_letters: tuple[Values, ...]
    keys: tuple[Values, ...]


class Seen(NamedTuple):
    """One job of a frame as the search looks at it; lease and due are distances from now."""

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
    said: tuple[str, ...]
    """Settlements of the current execution, as far as somebody may still repeat them."""
    signals: tuple[tuple[str, int], ...]


@dataclass(slots=True, eq=False)
class Place:
    """A frame that has been met, and what is asked of it again and again."""

    number: int
    frame: Frame
    jobs: tuple[Seen | None, ...]
    moment: Micros | None
    """How far away the next lease end or due time lies."""


class Desk:
    """Loads frames into one connection and reads them back."""

    def __init__(self, connection: apsw.Connection, contract: Contract) -> None:
        self.connection = connection
        self.contract = contract
        columns = {table: _columns(connection, table) for table in _TABLES}
        self.at = columns["jobs"]
        self._inserts = {t: f"INSERT INTO {t} VALUES ({', '.join('?' for _ in c)})" for t, c in columns.items()}
        self._past = {t: [n for name, n in c.items() if _is_past(name)] for t, c in columns.items()}
        self._picks = [self.at[name] for name in Row._fields]
        self._loads = 0

    def load(self, frame: Frame) -> None:
        execute, many = self.connection.execute, self.connection.executemany
        execute("BEGIN")
        self._loads += 1
        if self._loads % 500 == 0:
            execute("DELETE FROM notes")
            execute("DELETE FROM audit")
        execute("DELETE FROM events")
        for table, rows in zip(_TABLES, (frame.jobs, frame.signals, frame.dead_letters, frame.keys), strict=True):
            execute(f"DELETE FROM {table}")
            if rows:
                many(self._inserts[table], rows)
        many(_INSERT_EVENT, frame.events)
        execute("COMMIT")

    def read(self) -> Frame:
        execute = self.connection.execute
        return Frame(
            tuple(execute("SELECT * FROM jobs ORDER BY id")),
            tuple(execute(ENTRIES + " ORDER BY job_id, seq")),
            tuple(execute("SELECT * FROM signals ORDER BY job_id, name")),
            tuple(execute("SELECT * FROM dead_letters ORDER BY job_id, retries")),
            tuple(execute("SELECT * FROM keys ORDER BY space, key")),
        )

    def row(self, values: Values) -> Row:
        return Row(*(values[position] for position in self._picks))

    def findings(self, frame: Frame) -> list[tuple[str, Finding]]:
        """What the checkers say of every job of a frame as it was read."""
        found = []
        for values in frame.jobs:
            row = self.row(values)
            log = [Entry(*event) for event in frame.events if event[0] == row.id]
            dead_letters = [dead_letter[0] for dead_letter in frame.dead_letters if dead_letter[1] == row.id]
            signals = [signal[1] for signal in frame.signals if signal[0] == row.id]
            found += [(row.id, finding) for finding in check_job(self.contract, row, log, dead_letters, signals)]
        return found

    def timeless(self, frame: Frame, now: Micros) -> Frame:
        """The frame moved to NOW: the past is one moment (due times keep their order), the future its distance."""
        at = self.at
        waiting = (Phase.CLAIMABLE, Phase.BLOCKED)
        dues = {v[at["due_at"]] for v in frame.jobs if v[at["phase"]] in waiting and v[at["due_at"]] is not None}
        past = sorted(due for due in dues if due <= now)
        ranks = {due: rank - len(past) for rank, due in enumerate(past)}
        jobs = []
        for values in frame.jobs:
            row = self._long_ago("jobs", values)
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
        dead_letters = [self._long_ago("dead_letters", values) for values in frame.dead_letters]
        return Frame(
            tuple(jobs),
            tuple((*e[:5], PAST, *e[6:9], _DUE.sub('"was_due":0', e[9]) if e[9] else None) for e in frame.events),
            tuple(tuple(self._long_ago("signals", values)) for values in frame.signals),
            tuple((f"letter of {job_id}", job_id, *rest) for _, job_id, *rest in dead_letters),
            tuple(tuple(self._long_ago("keys", values)) for values in frame.keys),
        )

    def _long_ago(self, table: str, values: Values) -> list[Any]:
        row = list(values)
        for position in self._past[table]:
            if row[position] is not None:
                row[position] = PAST
        return row

    def renamed(self, frame: Frame, names: Mapping[str, str]) -> Frame:
        """The frame with its tokens renamed; a token nobody can use any more is dropped."""
        position = self.at["token"]
        jobs = tuple((*v[:position], names.get(v[position]), *v[position + 1 :]) for v in frame.jobs)
        return frame._replace(jobs=jobs)

    def tokens(self, frame: Frame) -> list[tuple[str | None, bool]]:
        """(token, whether it stands) of each job."""
        return [(v[self.at["token"]], v[self.at["phase"]] == Phase.LEASED) for v in frame.jobs]

    def look(self, frame: Frame, known: Collection[str]) -> tuple[Seen | None, ...]:
        """The jobs of a timeless frame in their fixed order; known: tokens somebody may still speak with."""
        rows = {values[0]: values for values in frame.jobs}
        return tuple(self._seen(rows[job], frame, known) if job in rows else None for job in JOBS)

    def _seen(self, values: Values, frame: Frame, known: Collection[str]) -> Seen:
        at = self.at
        token, due, lease = values[at["token"]], values[at["due_at"]], values[at["lease_until"]]
        asleep = values[at["phase"]] in (Phase.CLAIMABLE, Phase.BLOCKED)
        said: Sequence[str] = ()
        if token in known:
            number = values[at["execution_no"]]
            mine = [e for e in frame.events if e[0] == values[0] and e[7] == number and e[9]]
            said = sorted({d for e in mine if (d := json.loads(e[9]).get("settlement"))})
        return Seen(
            values[at["status"]],
            values[at["phase"]],
            values[at[Seen._fields[2]]],
            due - NOW if due is not None and asleep else None,
            values[at["failures"]],
            values[at["retries"]],
            token,
            None if lease is None else lease - NOW,
            values[at["wait_name"]],
            values[at["cancel_requested"]] is not None,
            values[at["execution_no"]] > 0,
            values[at["result"]] if token in known else None,
            tuple(said),
            tuple((s[1], s[5]) for s in frame.signals if s[0] == values[0]),
        )


_INSERT_EVENT = f"INSERT INTO events ({', '.join(Entry._fields)}) VALUES ({', '.join('?' for _ in Entry._fields)})"
_DUE = re.compile(r'"due_at":\d+')


_TABLES = ("jobs", "signals", "dead_letters", "keys")


def _columns(connection: apsw.Connection, table: str) -> dict[str, int]:
    return {row[1]: row[0] for row in connection.execute(f"PRAGMA table_info({table})")}


def _is_past(column: str) -> bool:
    return column == "at" or (column.endswith("_at") and column not in ("due_at", "next_retry_at"))


def next_moment(jobs: Sequence[Seen | None]) -> Micros | None:
    """The distance to the next lease end or due time that still lies ahead."""
    ahead = [m for job in jobs if job for m in (job.due, job.lease) if m is not None and m > 0]
    return min(ahead, default=None)
