"""Checks of parents and their children, and of approval requests and their votes."""

from collections.abc import Iterator
from typing import Any

from detent.core.approval import APPROVE
from detent.ports.store import Store
from detent.ports.tx import Tx

from .rules import Report

Finding = tuple[str, str, str]
"""(job id, rule, detail)"""


async def check_children_and_approvals(store: Store, report: Report, chunk: int) -> None:
    """Each check is a single query, so it sees a change of several rows completely or not at all."""
    for rule, query in _QUERIES.items():
        for job_id, detail in await store.read(lambda tx, query=query: _run(tx, query, chunk)):  # type: ignore[misc]
            report.add(job_id, None, rule, detail)
    after: tuple[str, str] | None = None
    while True:
        rows = await store.read(lambda tx, after=after: _approvals(tx, after, chunk))  # type: ignore[misc]
        for row in rows:
            for job_id, rule, detail in _check_approval(*row):
                report.add(job_id, None, rule, detail)
        if len(rows) < chunk:
            return
        after = (rows[-1][0], rows[-1][1])


_QUERIES = {
    "parent-stranded": "verify_stranded",
    "awaited-adrift": "verify_adrift",
    "approval-missing": "verify_asking",
    "approval-orphan": "verify_votes",
}


async def _run(tx: Tx, query: str, limit: int) -> list[tuple[str, str]]:
    return [(row[0], _DETAILS[query].format(*row[1:])) for row in await tx.query(query, limit=limit)]


_DETAILS = {
    "verify_stranded": "it waits for children under {!r}, but all of them have ended and no child event is pending",
    "verify_adrift": "child {} is awaited, but the job does not wait for children, or is not its parent",
    "verify_asking": "it waits for the approval {!r}, but has no undecided approval request of that name",
    "verify_votes": "{1} voted on {0!r}, but no approval request has that name",
}


async def _approvals(tx: Tx, after: tuple[str, str] | None, limit: int) -> list[Any]:
    if after is None:
        return await tx.query("verify_questions", "true", limit=limit)
    where = "(a.job_id, a.name) > (:job_id, :name)"
    return await tx.query("verify_questions", where, job_id=after[0], name=after[1], limit=limit)


def _check_approval(
    job_id: str,
    name: str,
    quorum: int,
    decision: str | None,
    expired: bool,
    on_expiry: str,
    approvals: int,
    rejections: int,
    owner: str | None,
) -> Iterator[Finding]:
    if owner is None:
        yield job_id, "approval-orphan", f"approval request {name!r} of a job that does not exist"
    if decision is None:
        return
    if expired:
        correct = decision == on_expiry
    else:
        correct = (approvals >= quorum and not rejections) if decision == APPROVE else rejections > 0
    if not correct:
        votes = f"{approvals} of {quorum} approvals and {rejections} rejections"
        yield job_id, "approval-uncounted", f"{name!r} was decided as {decision} with {votes}"
