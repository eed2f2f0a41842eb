"""Checks of dead letters: each belongs to a job that failed, and its requeue or discard is recorded on both sides."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from detent.core.access import same_person
from detent.core.job import Job
from detent.ports.verification import DeadLetterLink, DeadLetterRow, DiscardEntry, JobRow, RequeuedRow

from .fold import ContractTable, FoldedLog
from .rules import Report

REQUEUED, DISCARDED = "requeued", "discarded"
PROPOSE, CONFIRM = "dlq.discard.propose", "dlq.discard"


def by_job(rows: Iterable[DeadLetterRow]) -> dict[str, list[DeadLetterRow]]:
    groups: dict[str, list[DeadLetterRow]] = defaultdict(list)
    for row in rows:
        groups[row.job_id].append(row)
    return groups


def check_dead_letters(row: JobRow, folded: FoldedLog, dead_letters: Sequence[DeadLetterRow], report: Report) -> None:
    """A job must have one dead letter for each time that it failed according to its log."""
    job_id, dlq_id = row.id, row.dlq_id
    retry_counts = folded.dead_letter_counts
    if not retry_counts:
        if dlq_id is not None or dead_letters:
            name = dlq_id or dead_letters[0].id
            report.add(job_id, None, "dead-letter-unearned", f"dead letter {name}, but the job never failed")
        return
    counts = [dead_letter.retries for dead_letter in dead_letters]
    for count in sorted(set(counts)):
        if counts.count(count) > 1:
            detail = f"{counts.count(count)} dead letters for retry count {count}"
            report.add(job_id, None, "dead-letter-twice", detail)
    if dlq_id is None or dlq_id not in [dead_letter.id for dead_letter in dead_letters]:
        problem = "is empty" if dlq_id is None else f"is {dlq_id}, which does not exist or belongs to another job"
        report.add(job_id, None, "dead-letter-missing", f"the job failed, but its dlq_id {problem}")
    elif len(dead_letters) < len(retry_counts):
        detail = f"the job failed {len(retry_counts)} times and has {len(dead_letters)} dead letters"
        report.add(job_id, None, "dead-letter-missing", detail)
    for dead_letter_id, _, contract, tenant, count in dead_letters:
        problems = [
            f"{name} {actual!r} instead of {expected!r}"
            for name, actual, expected in (("contract", contract, row.contract), ("tenant", tenant, row.tenant_id))
            if actual != expected
        ]
        if count not in retry_counts:
            problems.append(f"retry count {count}, the log gives {', '.join(map(str, retry_counts))}")
        if problems:
            report.add(job_id, None, "dead-letter-differs", f"dead letter {dead_letter_id} has {'; '.join(problems)}")


def check_requeued(rows: Iterable[RequeuedRow], origins: Mapping[str, Job], pruned: str, report: Report) -> None:
    """A job was requeued from a dead letter that names it, or from a job."""
    for job_id, origin, dlq_id, requeued_as in rows:
        if dlq_id is None and origin not in origins and origin > pruned:
            detail = f"requeued from {origin}, which is neither a dead letter nor a job"
            report.add(job_id, None, "requeue-link", detail)
        elif dlq_id is not None and requeued_as != job_id:
            detail = f"requeued from dead letter {dlq_id}, which was requeued as {requeued_as or 'nothing'}"
            report.add(job_id, None, "requeue-link", detail)


def check_dead_letter_rows(
    rows: Iterable[DeadLetterLink],
    new_jobs: Mapping[str, Job],
    tables: Mapping[str, ContractTable],
    pruned: str,
    report: Report,
) -> None:
    """Each dead letter's job exists and names it; a requeued one names its new job."""
    for dlq_id, job_id, contract, status, new_id, owner, named in rows:
        if owner is None:
            report.add(job_id, None, "dead-letter-orphan", f"dead letter {dlq_id} belongs to a job that is gone")
            continue
        table = tables.get(contract)
        if named != dlq_id and not (table and table.reopens and named is not None):
            detail = f"dead letter {dlq_id} belongs to this job, whose dlq_id is {named or 'empty'}"
            report.add(job_id, None, "dead-letter-differs", detail)
        new_job = new_jobs.get(new_id or "")
        missing = new_id is not None and not new_job and new_id > pruned
        if (status == REQUEUED) != (new_id is not None) or missing:
            detail = f"dead letter {dlq_id} is {status} and its requeued_as is {new_id or 'empty'}"
            report.add(job_id, None, "requeue-link", f"{detail}{', a job that does not exist' if missing else ''}")
        elif new_job and new_job.requeued_from != dlq_id:
            origin = new_job.requeued_from or "empty"
            detail = f"dead letter {dlq_id} was requeued as {new_id}, whose requeued_from is {origin}"
            report.add(job_id, None, "requeue-link", detail)


def check_discards(
    rows: Iterable[DeadLetterLink],
    audit: Iterable[DiscardEntry],
    tables: Mapping[str, ContractTable],
    report: Report,
) -> None:
    """The discarded dead letters, compared with the audit log."""
    acts: dict[str, list[tuple[str, str, str | None]]] = defaultdict(list)
    for subject, act, actor, reason in audit:
        acts[subject].append((act, actor, reason))
    for dlq_id, job_id, contract, status, *_ in rows:
        if status != DISCARDED:
            continue
        required = tables[contract].contract.discard_people if contract in tables else 1
        done = acts[dlq_id]
        people = {actor for act, actor, _ in done if actor.strip() and (act == CONFIRM or required > 1)}
        if len(set(map(same_person, people))) < required or CONFIRM not in [act for act, _, _ in done]:
            names = ", ".join(sorted(people)) or "nobody"
            detail = f"dead letter {dlq_id} was discarded by {names}; {required} people must agree"
            report.add(job_id, None, "discard-people", detail)
        without_reason = sorted({actor for _, actor, reason in done if not (reason and reason.strip())})
        if without_reason:
            detail = f"dead letter {dlq_id} was discarded without a reason by {', '.join(without_reason)}"
            report.add(job_id, None, "discard-reason", detail)
