"""Dead letters: each belongs to a job that was given up, and what became of it has two witnesses."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from detent.core.job import Job

from .fold import ContractTable, Fold
from .rows import CONTRACT, DLQ_ID, ID, TENANT, Row
from .rules import Report

Rows = Iterable[Row]
REQUEUED, DISCARDED = "requeued", "discarded"
PROPOSE, CONFIRM = "dlq.discard.propose", "dlq.discard"


def by_job(rows: Rows) -> dict[str, list[Row]]:
    """Rows of the query verify_letters, per job."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row[1]].append(row)
    return found


def check_burial(row: Row, walk: Fold, dead_letters: Sequence[Row], report: Report) -> None:
    """A job and the dead letters that bear its id: one for each time its log says it was given up."""
    job_id, dlq_id = row[ID], row[DLQ_ID]
    if not walk.burials:
        if dlq_id is not None or dead_letters:
            named = dlq_id or dead_letters[0][0]
            report.add(job_id, None, "dead-letter-unearned", f"dead letter {named}, but the log never gave the job up")
        return
    counts = [dead_letter[4] for dead_letter in dead_letters]
    for count in sorted(set(counts)):
        if counts.count(count) > 1:
            told = f"{counts.count(count)} dead letters for retry count {count}"
            report.add(job_id, None, "dead-letter-twice", told)
    if dlq_id is None or dlq_id not in [dead_letter[0] for dead_letter in dead_letters]:
        named = "names none" if dlq_id is None else f"names {dlq_id}, which is not its own or does not exist"
        report.add(job_id, None, "dead-letter-missing", f"the job was given up, but {named}")
    elif len(dead_letters) < len(walk.burials):
        told = f"given up {len(walk.burials)} times, {len(dead_letters)} dead letters"
        report.add(job_id, None, "dead-letter-missing", told)
    for dead, _, contract, tenant, count in dead_letters:
        differ = [
            f"{name} {found!r} instead of {wanted!r}"
            for name, found, wanted in (("contract", contract, row[CONTRACT]), ("tenant", tenant, row[TENANT]))
            if found != wanted
        ]
        if count not in walk.burials:
            differ.append(f"retry count {count}, the log says {', '.join(map(str, walk.burials))}")
        if differ:
            report.add(job_id, None, "dead-letter-differs", f"dead letter {dead} has {'; '.join(differ)}")


def check_requeued(rows: Rows, origins: Mapping[str, Job], pruned: str, report: Report) -> None:
    """Rows of the query verify_requeued: a job was made from a dead letter that names it, or from a job that exists."""
    for job_id, origin, dlq_id, made in rows:
        if dlq_id is None and origin not in origins and origin > pruned:
            report.add(job_id, None, "requeue-link", f"made from {origin}, which is no dead letter and no job")
        elif dlq_id is not None and made != job_id:
            told = f"made from dead letter {dlq_id}, which was requeued as {made or 'nothing'}"
            report.add(job_id, None, "requeue-link", told)


def check_fates(
    rows: Rows, made: Mapping[str, Job], tables: Mapping[str, ContractTable], pruned: str, report: Report
) -> None:
    """Rows of the query verify_fates: does every dead letter belong to a job, and the requeued ones lead to one?"""
    for dlq_id, job_id, contract, fate, new_id, owner, named in rows:
        if owner is None:
            report.add(job_id, None, "dead-letter-orphan", f"dead letter {dlq_id} belongs to a job that is gone")
            continue
        table = tables.get(contract)
        if named != dlq_id and not (table and table.reopens and named is not None):
            told = f"dead letter {dlq_id} is of this job, which names {named or 'none'}"
            report.add(job_id, None, "dead-letter-differs", told)
        new = made.get(new_id or "")
        lost = new_id is not None and not new and new_id > pruned
        if (fate == REQUEUED) != (new_id is not None) or lost:
            told = f"dead letter {dlq_id} is {fate}, and job {new_id or 'none'} was made of it"
            report.add(job_id, None, "requeue-link", f"{told}{'' if new else ', which does not exist'}")
        elif new and new.requeued_from != dlq_id:
            told = (
                f"dead letter {dlq_id} was requeued as {new_id}, which was made from {new.requeued_from or 'nothing'}"
            )
            report.add(job_id, None, "requeue-link", told)


def check_discards(rows: Rows, audit: Rows, tables: Mapping[str, ContractTable], report: Report) -> None:
    """The discarded ones among rows of verify_fates, held against the audit."""
    acts: dict[str, list[tuple[str, str, str | None]]] = defaultdict(list)
    for subject, act, actor, reason in audit:
        acts[subject].append((act, actor, reason))
    for dlq_id, job_id, contract, fate, *_ in rows:
        if fate != DISCARDED:
            continue
        rule = tables[contract].contract.dead_letters if contract in tables else None
        needed = rule.discard_people if rule else 1
        done = acts[dlq_id]
        people = {actor for act, actor, _ in done if actor.strip() and (act == CONFIRM or needed > 1)}
        if len(people) < needed or CONFIRM not in [act for act, _, _ in done]:
            told = f"dead letter {dlq_id} was discarded by {', '.join(sorted(people)) or 'nobody'}, {needed} must agree"
            report.add(job_id, None, "discard-people", told)
        silent = sorted({actor for _, actor, reason in done if not (reason and reason.strip())})
        if silent:
            told = f"dead letter {dlq_id} was discarded without a reason by {', '.join(silent)}"
            report.add(job_id, None, "discard-reason", told)
