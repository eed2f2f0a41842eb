"""The rule for callers that may not see payloads: payloads are not searched, compared or shown for them.

The same holds for what is made from payloads: results, steps, error messages, data of events, questions of approvals,
and digests of any of them. Every search, comparison and view of the engine uses the functions of this module.
"""

from dataclasses import replace
from typing import TypeVar

from detent.core.access import same_person
from detent.core.approval import Approval
from detent.core.errors import InvalidInput
from detent.core.job import DeadLetter, Event, Job, Note, Progress
from detent.ports.access import AuditRow
from detent.ports.listing import Filter
from detent.ports.tx import Tx

Entry = TypeVar("Entry", Event, Note)
_SHOWN_DATA = frozenset(
    {"error_code", "error_class", "retryable", "approved", "reason_code", "due_at", "charged", "started_at", "share"}
)
"""The data of events and notes that is shown: codes and times, never texts from a handler."""
_HIDDEN_AUDIT_DATA = frozenset({"payload", "digest"})


def searched_outside(filter: Filter) -> Filter:
    """The filter that searches its text in ids, names, keys and codes only.

    Raises InvalidInput (FILTER_INVALID) for an error group, which is a digest of messages.
    """
    if filter.error_group is not None:
        raise InvalidInput(
            "this token may not see error messages, which error groups are made of; filter by job_type and error_code",
            code="FILTER_INVALID",
            field="error_group",
        )
    return replace(filter, text=None, text_outside=filter.text_outside or filter.text)


async def submitted_by(tx: Tx, job: Job, person: str | None) -> bool:
    """Whether this person submitted the job. Decides a taken key, because payloads may not be compared."""
    creator = next((event.actor for event in await tx.log.events(job.id) if event.seq == 1), None)
    return creator is not None and person is not None and same_person(creator) == same_person(person)


def redact_job(job: Job) -> Job:
    """The job without payload, result and error message, so that no view of it can leak them."""
    return replace(job, payload="{}", result=None, error_message=None)


def redact_entry(entry: Entry) -> Entry:
    data = entry.data
    return replace(entry, data=data and {name: value for name, value in data.items() if name in _SHOWN_DATA})


def redact_progress(progress: Progress) -> Progress:
    return replace(progress, message="")


def redact_dead_letter(item: DeadLetter) -> DeadLetter:
    return replace(item, error_message=None, payload="null", context="null", error_group="")


def redact_approval(approval: Approval) -> Approval:
    """The approval without its question, the digest of the question, and the reasons of votes."""
    votes = tuple(replace(vote, reason=None) for vote in approval.votes)
    return replace(approval, request=replace(approval.request, summary="", about="null", digest=""), votes=votes)


def redact_audit(row: AuditRow) -> AuditRow:
    data = row.entry.data
    shown = data and {name: value for name, value in data.items() if name not in _HIDDEN_AUDIT_DATA}
    return row._replace(entry=replace(row.entry, data=shown))
