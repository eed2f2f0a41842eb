"""The part of a transaction that `verify` reads: rows of jobs and their logs, and links between tables."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

from detent.core.contract.model import Phase
from detent.ports.verification import (
    AdriftChild,
    ApprovalRow,
    AttemptRow,
    DeadLetterLink,
    DeadLetterRow,
    DiscardEntry,
    EventRow,
    FiredRow,
    FireRow,
    JobRange,
    JobRow,
    KeyRow,
    MisplacedJob,
    MissingApproval,
    RequeuedRow,
    Scope,
    StrandedParent,
    StrayNote,
    StrayOutboxItem,
    StrayPlace,
    StraySignal,
    StrayStep,
    StrayVote,
    UnnamedTakeover,
)

from .named_queries import NamedQueries

T = TypeVar("T")
_OF_JOBS: dict[type, tuple[str, str]] = {
    DeadLetterRow: ("verify_dead_letters", "job_id"),
    RequeuedRow: ("verify_requeued", "j.id"),
    FiredRow: ("verify_fired", "job_id"),
    StrayNote: ("verify_notes", "n.job_id"),
    StraySignal: ("verify_signals", "s.job_id"),
    StrayOutboxItem: ("verify_outbox_items", "o.job_id"),
    StrayStep: ("verify_steps", "s.job_id"),
}
"""Row -> (query, its column of job ids)."""
_PAGES: dict[type, tuple[str, tuple[str, ...]]] = {
    KeyRow: ("verify_keys", ("k.space", "k.key")),
    AttemptRow: ("verify_tasks", ("task_id", "task_attempt", "id")),
    FireRow: ("verify_fires", ("f.schedule_id", "f.fire_at")),
    ApprovalRow: ("verify_questions", ("a.job_id", "a.name")),
}
"""Row -> (query, the columns it is ordered by, which are the first columns of the row)."""
_FAULTS: dict[type, str] = {
    StrandedParent: "verify_stranded",
    AdriftChild: "verify_adrift",
    MissingApproval: "verify_asking",
    StrayVote: "verify_votes",
    StrayPlace: "verify_strays",
}


class VerifyQueries(NamedQueries):
    async def last_pruned_id(self) -> str:
        return (await self.query("verify_pruned"))[0][0] or ""

    async def count_job_rows(self, scope: Scope) -> int:
        return await self.number("verify_size", _all(_tests(scope, "id")), **values_of(scope))

    async def job_rows(self, jobs: JobRange, limit: int) -> list[JobRow]:
        tests = _tests(jobs.scope, "id") + ([] if jobs.after is None else ["id > :after"])
        return await self._tuples(JobRow, "verify_jobs", _all(tests), **values_of(*jobs), limit=limit)

    async def _tuples(self, kind: type[T], name: str, where: str, **values: Any) -> list[T]:
        """As `fetch`, for named tuples and many rows: without a call of Python code for each."""
        return [*map(partial(tuple.__new__, kind), await self.query(name, where, **values))]  # type: ignore[type-var]

    async def rows_of(self, kind: type[T], jobs: JobRange) -> list[T]:
        if kind is EventRow:
            return await self._tuples(kind, "verify_events", _events_in_range(jobs), **values_of(*jobs))
        name, column = _OF_JOBS[kind]
        return await self.fetch(kind, name, in_range(jobs, column), **values_of(*jobs))

    async def misplaced_jobs(self, rows: Sequence[JobRow]) -> list[MisplacedJob]:
        """A job that is ready was found in the queue, so it is not looked for again."""
        leased = [row.id for row in rows if row.phase == Phase.LEASED]
        others = [row.id for row in rows if row.phase in (Phase.CLAIMABLE, Phase.BLOCKED) and not row.ready]
        misplaced: list[MisplacedJob] = []
        for name, ids in (("verify_misplaced", others), ("verify_unclaimed", leased)):
            if ids:
                misplaced += await self.fetch(MisplacedJob, name, ids=json.dumps(ids))
        return misplaced

    async def unnamed_takeovers(self, jobs: JobRange, events: Sequence[str]) -> list[UnnamedTakeover]:
        values = {**values_of(*jobs), "events": json.dumps(list(events))}
        return await self.fetch(UnnamedTakeover, "verify_takeovers", in_range(jobs, "e.job_id"), **values)

    async def dead_letter_links(self, scope: Scope, after: str | None, limit: int) -> list[DeadLetterLink]:
        where = _all(_dead_letter_tests(scope, after))
        return await self.fetch(DeadLetterLink, "verify_fates", where, **values_of(scope, after), limit=limit)

    async def discard_entries(self, scope: Scope, after: str | None, upto: str) -> list[DiscardEntry]:
        where = _all([*_dead_letter_tests(scope, after), "l.id <= :upto"])
        return await self.fetch(DiscardEntry, "verify_discards", where, **values_of(scope, after, upto))

    async def page(self, kind: type[T], after: T | None, limit: int) -> list[T]:
        name, columns = _PAGES[kind]
        values: dict[str, Any] = {}
        if isinstance(after, tuple):
            values = dict(zip((column.replace(".", "_") for column in columns), after, strict=False))
        where = f"({', '.join(columns)}) > ({', '.join(f':{name}' for name in values)})" if values else "true"
        return await self.fetch(kind, name, where, **values, limit=limit)

    async def faults(self, kind: type[T], limit: int) -> list[T]:
        return await self.fetch(kind, _FAULTS[kind], limit=limit)


def _tests(scope: Scope, job_column: str, prefix: str = "") -> list[str]:
    """SQL conditions for a scope."""
    tests = {
        f"{prefix}contract = :contract": scope.contract,
        f"{prefix}updated_at >= :since": scope.since,
        f"{job_column} = :job": scope.job_id,
    }
    return [test for test, value in tests.items() if value is not None]


def values_of(scope: Scope, after: str | None = None, upto: str | None = None) -> dict[str, Any]:
    values = {"contract": scope.contract, "since": scope.since, "job": scope.job_id, "after": after, "upto": upto}
    return {name: value for name, value in values.items() if value is not None}


def in_range(jobs: JobRange, column: str) -> str:
    """An SQL condition on a column of job ids."""
    if jobs.scope.job_id is not None:
        return f"{column} = :job"
    ends = {f"{column} > :after": jobs.after, f"{column} <= :upto": jobs.upto}
    return _all([test for test, value in ends.items() if value is not None])


def _events_in_range(jobs: JobRange) -> str:
    tests = _tests(jobs.scope, "id")
    if jobs.scope.job_id is not None or not tests:
        return in_range(jobs, "job_id")
    return f"job_id IN (SELECT id FROM detent.job_list WHERE {_all([*tests, in_range(jobs, 'id')])})"


def _dead_letter_tests(scope: Scope, after: str | None) -> list[str]:
    tests = _tests(scope, "l.job_id", "l.")
    return [*tests, "l.id > :after"] if after else tests


def _all(tests: Sequence[str]) -> str:
    return " AND ".join(tests) or "true"
