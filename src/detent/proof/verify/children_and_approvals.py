"""Checks of parents and their children, and of approval requests and their votes."""

from collections.abc import Iterable

from detent.core.approval import APPROVE
from detent.ports.verification import AdriftChild, ApprovalRow, MissingApproval, StrandedParent, StrayVote

from .rules import Report

Fault = StrandedParent | AdriftChild | MissingApproval | StrayVote
FAULTS: dict[str, tuple[type[Fault], str]] = {
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
"""Rule -> (rows that break it, detail). Each is a single query, so it sees a change of several rows completely."""


def check_approvals(rows: Iterable[ApprovalRow], report: Report) -> None:
    """An approval belongs to a job, and was decided as its votes or its deadline say."""
    for job_id, name, quorum, decision, expired, on_expiry, approvals, rejections, owner in rows:
        if owner is None:
            report.add(job_id, None, "approval-orphan", f"approval request {name!r} of a job that does not exist")
        if expired:
            correct = decision == on_expiry
        else:
            correct = (approvals >= quorum and not rejections) if decision == APPROVE else rejections > 0
        if decision is None:  # votes of people whose names are not proven may exceed the quorum
            correct = not rejections
        if not correct:
            votes = f"{approvals} of {quorum} approvals and {rejections} rejections"
            report.add(job_id, None, "approval-uncounted", f"{name!r} was decided as {decision} with {votes}")
