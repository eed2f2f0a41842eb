"""Names for the subjects of audit entries, which are ids of jobs, dead letters, schedules and tokens."""

from collections.abc import Sequence

from detent.engine.runtime import Runtime
from detent.ports.access import AuditRow
from detent.ports.tx import Tx


async def read_subject_names(runtime: Runtime, rows: Sequence[AuditRow]) -> dict[str, str]:
    """Subject -> its name: job type, name of the schedule, person of the token. Unknown ids are left out."""
    subjects: dict[str, set[str]] = {}
    for row in rows:
        subjects.setdefault(row.entry.act.partition(".")[0], set()).add(row.entry.subject)

    async def read(tx: Tx) -> dict[str, str]:
        jobs = (await tx.jobs.lock(sorted(subjects.get("job", ())))).values()
        names = {job.id: job.job_type for job in jobs if runtime.sees(job)}
        for item in await tx.dead_letters.dead_letters_by_id(sorted(subjects.get("dlq", ()))):
            if runtime.sees(item):
                names[item.id] = item.job_type
        for schedule_id in subjects.get("schedule", ()):
            found = [one for one in await tx.schedules.schedules_matching(schedule_id) if one.id == schedule_id]
            names |= {schedule.id: schedule.name for schedule in found if runtime.sees(schedule)}
        for token_id in subjects.get("token", set()) | subjects.get("session", set()):
            token = await tx.tokens.token(token_id)
            if token is not None and runtime.tenant in (None, token.tenant_id):
                names[token_id] = token.person
        return names

    return await runtime.store.read(read)
