"""Checks of the tables in which a store finds unfinished jobs: queue, timers, claims, awaiting_approval."""

from collections.abc import Iterable
from functools import partial

from detent.ports.store import Store
from detent.ports.tx import Tx
from detent.ports.verification import MisplacedJob, StrayPlace

from .rules import Report

_MISSING = {
    "queue": ("queue-missing", "the job is claimable, but neither queue nor timers has it with its lane and due time"),
    "timers": ("timer-missing", "the job is blocked until its due time, but timers does not have it with this time"),
    "claims": ("claim-missing", "the job is leased, but no row of claims has it and is checked before its lease ends"),
    "awaiting_approval": ("approval-unlisted", "the job waits for an approval, but is not in awaiting_approval"),
}
"""Table -> the rule that is broken by a job that is missing there, what is wrong."""


def check_misplaced(jobs: Iterable[MisplacedJob], report: Report) -> None:
    """Report jobs that nobody would claim, wake, reclaim or show for approval."""
    for job_id, table in jobs:
        rule, detail = _MISSING[table]
        report.add(job_id, None, rule, detail)


async def check_stray_places(store: Store, report: Report, limit: int) -> None:
    """Report rows that would promote, wake or show a job that is in another state. A single query, so it sees a change
    of job and row completely or not at all."""
    for job_id, table, phase, wrong in await store.read(partial(_strays, limit)):
        if phase is None:
            detail = f"a row of {table} of a job that does not exist"
        else:
            detail = f"a row of {table} does not fit: " + (wrong or f"the job is {phase}")
        report.add(job_id, None, "place-stray", detail)


async def _strays(limit: int, tx: Tx) -> list[StrayPlace]:
    return await tx.verification.faults(StrayPlace, limit)
