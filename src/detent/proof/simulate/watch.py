"""The watchman of a simulation: looks at the raw tables after every commit and says what may never happen."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import apsw

from detent.core.contract.model import Contract, Move, Phase
from detent.core.job import Micros
from detent.core.limits import Limit
from detent.proof.controlled_store import ManualClock, Violation
from detent.proof.job_checker import ENTRIES, ROWS, Entry, Fold, Row, check_database, move_of
from detent.proof.verify.limits import LimitCheck

from .limits import LimitWatch
from .schedules import FireWatch

_TOLD_BY = "told by "


class Watchman:
    """Folds every log as it grows and compares each step with the row before and after it."""

    def __init__(
        self,
        connection: apsw.Connection,
        contracts: Mapping[str, Contract],
        clock: ManualClock,
        limits: Sequence[Limit] = (),
    ) -> None:
        self._connection = connection
        self._contracts = contracts
        self._clock = clock
        self._folds: dict[str, Fold] = {}
        self._rows: dict[str, Row] = {}
        self._leases: dict[str, Micros] = {}
        self._fires = FireWatch(connection)
        self._limits = LimitWatch(connection, contracts, LimitCheck(limits))
        self._changes = -1
        self._step_sums: list[Any] = []
        self._steps: dict[tuple[str, str], tuple[Any, Any]] = {}
        self.events = 0
        self.acknowledged: set[str] = set()
        self.violations: list[Violation] = []

    def blame(self, job_id: str, rule: str, detail: str, seq: int | None = None) -> None:
        self.violations.append(Violation(job_id, rule, detail, seq))

    def committed(self) -> bool:
        """Look at what the last transaction wrote; True if the log grew."""
        changes = self._connection.total_changes()
        if changes == self._changes:
            return False
        self._changes = changes
        fresh = [Entry(*v) for v in self._connection.execute(ENTRIES + " WHERE n > ? ORDER BY n", (self.events,))]
        self.events += len(fresh)
        touched = dict.fromkeys(entry.job_id for entry in fresh)
        for job_id in touched:
            self._look(job_id, [entry for entry in fresh if entry.job_id == job_id])
        for finding in (*self._fires.committed(), *self._limits.committed(fresh)):
            self.blame(*finding)
        self._leases = {row[0]: row[1] for row in self._connection.execute(_LEASES, (str(Phase.LEASED),))}
        self._watch_steps()
        return bool(fresh)

    def _look(self, job_id: str, fresh: list[Entry]) -> None:
        found: Any = self._connection.execute(ROWS + " WHERE id = ?", (job_id,)).fetchall()
        if not found:
            self.blame(job_id, "log.orphan", "a log without its job")
            return
        row, before = Row(*found[0]), self._rows.get(job_id)
        contract = self._contracts[row.contract]
        fold = self._folds.setdefault(job_id, Fold(contract))
        for entry in fresh:
            for rule, detail in fold.feed(entry):
                self.blame(job_id, rule, detail, entry.seq)
            self._watch_step(contract, before, entry)
        for rule, detail in fold.compare(row):
            self.blame(job_id, rule, detail, row.version)
        if before is not None:
            self._watch_teller(before, row, fresh)
        else:
            for finding in self._fires.born(job_id):
                self.blame(*finding)
        self._rows[job_id] = row

    def _watch_step(self, contract: Contract, before: Row | None, entry: Entry) -> None:
        """Leases end no sooner than they say, and nobody starts before the time."""
        if before is None:
            return
        move = move_of(contract, entry)
        reason = json.loads(entry.data).get("reason") if entry.data else None
        lost = reason == "lease_expired" or move is Move.RECLAIM
        if lost and self._leases.get(entry.job_id, 0) > self._clock.wall:
            left = self._leases[entry.job_id] - self._clock.wall
            self.blame(entry.job_id, "lease.live", f"a lease with {left} µs left was taken", entry.seq)
        if move is Move.CLAIM and entry.source == before.status and (before.due_at or 0) > self._clock.highest:
            self.blame(entry.job_id, "due.early", f"claimed {before.due_at} before it was due", entry.seq)

    def _watch_teller(self, before: Row, row: Row, fresh: list[Entry]) -> None:
        """Handlers say under which token they speak; what they said may stand only under that token."""
        told = [json.loads(row.result)["told_by"]] if row.result and row.result != before.result else []
        messages = [json.loads(entry.data).get("error_message") or "" for entry in fresh if entry.data]
        told += [text.partition(_TOLD_BY)[2].split()[0] for text in messages if _TOLD_BY in text]
        for token in told:
            if token != before.token:
                self.blame(row.id, "settle.stale", f"{token} settled a job held under {before.token}", row.version)

    def _watch_steps(self) -> None:
        """A step is recorded by the holder of its job, and what is finished never changes."""
        sums = self._connection.execute(_STEP_SUMS).fetchall()
        if sums == self._step_sums:
            return
        self._step_sums = sums
        for job_id, name, result, finished, token, phase in self._connection.execute(_STEPS):
            before, now = self._steps.get((job_id, name)), (result, finished)
            if now == before:
                continue
            self._steps[job_id, name] = now
            if before is not None and before[1]:
                self.blame(job_id, "step.changed", f"{name}: {before[0]} became {result}")
            told = json.loads(result) if result else None
            by = told.get("told_by") if isinstance(told, dict) else token
            if by != token or phase != Phase.LEASED:
                self.blame(job_id, "step.stale", f"{name} was recorded by {by}, the job was {phase} under {token}")

    def steps_are_told(self) -> None:
        """What a success says of its steps is what is on record, whoever recorded it."""
        for job_id, name, result, told in self._connection.execute(_TOLD):
            if json.loads(told).get(name, _NOTHING) not in (_NOTHING, json.loads(result)):
                self.blame(job_id, "step.differs", f"{name} is recorded as {result}, the result says {told}")

    def between_tries(self) -> list[str]:
        """Jobs that have run, have not ended, and that nobody holds."""
        at_rest = (Phase.CLAIMABLE, Phase.BLOCKED)
        return [job_id for job_id, row in self._rows.items() if row.execution_no and row.phase in at_rest]

    def final_check(self) -> None:
        """Everything once more, from scratch."""
        self.steps_are_told()
        self.violations += check_database(self._connection, self._contracts, self.acknowledged)
        for finding in self._fires.final_check():
            self.blame(*finding)

    def stuck(self) -> list[Row]:
        """Jobs that have not ended."""
        found = self._connection.execute(ROWS + " WHERE phase <> ? ORDER BY id", (str(Phase.FINAL),))
        return [Row(*values) for values in found]


_NOTHING = object()
_STEPS = "SELECT s.job_id, s.name, s.result, s.finished, j.token, j.phase FROM steps s JOIN jobs j ON j.id = s.job_id"
_STEP_SUMS = "SELECT count(*), sum(finished), sum(at), sum(length(result)) FROM steps"
_TOLD = (
    "SELECT s.job_id, s.name, s.result, j.result FROM steps s JOIN jobs j ON j.id = s.job_id "
    "WHERE s.finished AND j.result IS NOT NULL"
)
_LEASES = "SELECT id, lease_until FROM jobs WHERE phase = ?"
