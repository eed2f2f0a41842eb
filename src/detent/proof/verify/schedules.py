"""Checks of schedules and their runs (fires): each fire has one job with its key, and a schedule refers to its last."""

import re
from collections.abc import Iterable, Mapping

from detent.core.errors import DetentError
from detent.core.schedule import FIRE_KEY, Schedule, fire_key, next_fire
from detent.core.times import iso
from detent.ports.verification import FiredRow, FireRow, JobRow

from .rules import Report

_KEY = re.compile(re.escape(FIRE_KEY) + r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:\d{4}-\d\d-\d\dT[\d:.]+Z")


def scheduled_jobs(rows: Iterable[JobRow]) -> dict[str, str]:
    """{job id: key} of the jobs that have the key of a fire."""
    return {row.id: key for row in rows if (key := row.idempotency_key) and _KEY.fullmatch(key)}


def check_scheduled_jobs(jobs: Mapping[str, str], fires: Iterable[FiredRow], report: Report) -> None:
    """Every job with the key of a fire is the job of that fire."""
    keys = {job_id: fire_key(schedule_id, fire_at) for schedule_id, fire_at, job_id in fires}
    for job_id, key in jobs.items():
        if keys.get(job_id) != key:
            detail = f"the job has the key {key}, but that run is not recorded with this job"
            report.add(job_id, None, "fire-missing", detail)


def check_fires(rows: Iterable[FireRow], pruned: str, report: Report) -> None:
    """The job of a fire exists unless it was pruned, and has its time and key."""
    for schedule_id, fire_at, job_id, existing_id, scheduled_at, key in rows:
        if existing_id is None:
            if job_id > pruned:
                detail = f"the run at {iso(fire_at)} of schedule {schedule_id} names a job that does not exist"
                report.add(job_id, None, "fire-without-job", detail)
        elif scheduled_at != fire_at or key != fire_key(schedule_id, fire_at):
            job = f"the job has scheduled_at {iso(scheduled_at)} and key {key}"
            report.add(job_id, None, "fire-differs", f"{job}, the run at {iso(fire_at)} of {schedule_id} created it")


def check_schedule(schedule: Schedule, last: int | None, report: Report) -> None:
    """Check one schedule; last: the time of the fire recorded with its last job."""
    moment = schedule.next_fire_at
    try:
        astray = moment is not None and next_fire(schedule, moment - 1) != moment
    except DetentError:
        astray = True
    if astray:
        detail = f"schedule {schedule.name}: the next run is at {iso(moment)}, which its expression does not give"
        report.add(None, None, "schedule-astray", detail)
    if moment is not None and schedule.last_fire_at is not None and schedule.last_fire_at >= moment:
        times = f"the next run is at {iso(moment)}, the last was at {iso(schedule.last_fire_at)}"
        report.add(None, None, "schedule-set-back", f"schedule {schedule.name}: {times}")
    if schedule.last_fire_at != last:
        times = f"the last run was at {iso(schedule.last_fire_at)}, that of its last job at {iso(last)}"
        report.add(None, None, "schedule-unfired", f"schedule {schedule.name}: {times}")
