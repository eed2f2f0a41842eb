"""Verifying what jobs have to do with others: parents and children, questions and votes."""

from collections.abc import Iterator
from typing import Any

from detent.core.approval import APPROVE
from detent.ports.store import Store
from detent.ports.tx import Tx

from .rules import Report

Finding = tuple[str, str, str]
"""(job id, rule, detail)"""


async def check_relations(store: Store, report: Report, chunk: int) -> None:
    """Each look is one query: a family or a question that is about to change is seen before or after, not between."""
    for rule, query in _LOOKS.items():
        for job_id, detail in await store.read(lambda tx, query=query: _told(tx, query, chunk)):  # type: ignore[misc]
            report.add(job_id, None, rule, detail)
    after: tuple[str, str] | None = None
    while True:
        rows = await store.read(lambda tx, after=after: _questions(tx, after, chunk))  # type: ignore[misc]
        for row in rows:
            for job_id, rule, detail in _counted(*row):
                report.add(job_id, None, rule, detail)
        if len(rows) < chunk:
            return
        after = (rows[-1][0], rows[-1][1])


_LOOKS = {
    "parent-stranded": "verify_stranded",
    "awaited-adrift": "verify_adrift",
    "approval-missing": "verify_asking",
    "approval-orphan": "verify_votes",
}


async def _told(tx: Tx, query: str, limit: int) -> list[tuple[str, str]]:
    return [(row[0], _SAYS[query].format(*row[1:])) for row in await tx.query(query, limit=limit)]


_SAYS = {
    "verify_stranded": "it waits for children under {!r}, none of those is open, and there is no news for it",
    "verify_adrift": "child {} is waited for, but the job waits for no children, or it is none of its own",
    "verify_asking": "it waits for people under {!r}, but there is no open question of that name",
    "verify_votes": "{1} voted on {0!r}, which nobody asked",
}


async def _questions(tx: Tx, after: tuple[str, str] | None, limit: int) -> list[Any]:
    if after is None:
        return await tx.query("verify_questions", "true", limit=limit)
    where = "(a.job_id, a.name) > (:job_id, :name)"
    return await tx.query("verify_questions", where, job_id=after[0], name=after[1], limit=limit)


def _counted(
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
        yield job_id, "approval-orphan", f"question {name!r} of a job that does not exist"
    if decision is None:
        return
    if expired:
        fits = decision == on_expiry
    else:
        fits = (approvals >= quorum and not rejections) if decision == APPROVE else rejections > 0
    if not fits:
        told = f"{name!r} was decided as {decision} with {approvals} of {quorum} approvals and {rejections} rejections"
        yield job_id, "approval-uncounted", told
