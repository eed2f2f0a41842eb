"""Checks of parents and their children, and of approval requests and their votes."""

from collections.abc import Iterator, Sequence
from functools import partial

from detent.core.approval import APPROVE
from detent.ports.store import Store
from detent.ports.tx import Tx
from detent.ports.verification import AdriftChild, ApprovalRow, MissingApproval, StrandedParent, StrayVote

from .rules import Report

Finding = tuple[str, str, str]
"""(job id, rule, detail)"""


async def check_children_and_approvals(store: Store, report: Report, chunk: int) -> None:
    """Each check is a single query, so it sees a change of several rows completely or not at all."""
    for rule, (kind, detail) in _CHECKS.items():
        for job_id, *subjects in await store.read(partial(_faults, kind, chunk)):
            report.add(job_id, None, rule, detail.format(*subjects))
    last: ApprovalRow | None = None
    while True:
        rows = await store.read(partial(_approvals, last, chunk))
        for row in rows:
            for job_id, rule, text in _check_approval(row):
                report.add(job_id, None, rule, text)
        if len(rows) < chunk:
            return
        last = rows[-1]


Fault = StrandedParent | AdriftChild | MissingApproval | StrayVote
_CHECKS: dict[str, tuple[type[Fault], str]] = {
    "parent-stranded": (
        StrandedParent,
        "it waits for children under {!r}, but all of them have ended and no child event is pending",
    ),
    "awaited-adrift": (
        AdriftChild,
        "child {} is awaited, but the job does not wait for children, or is not its parent",
    ),
    "approval-missing": (
        MissingApproval,
        "it waits for the approval {!r}, but has no undecided approval request of that name",
    ),
    "approval-orphan": (StrayVote, "{1} voted on {0!r}, but no approval request has that name"),
}


async def _faults(kind: type[Fault], limit: int, tx: Tx) -> Sequence[Fault]:
    return await tx.verification.faults(kind, limit)


async def _approvals(last: ApprovalRow | None, limit: int, tx: Tx) -> list[ApprovalRow]:
    return await tx.verification.page(ApprovalRow, last, limit)


def _check_approval(row: ApprovalRow) -> Iterator[Finding]:
    job_id, name, quorum, decision, expired, on_expiry, approvals, rejections, owner = row
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
