"""Schedules and fires: every fire has one job that bears its key, and a schedule stands at a fire of its own."""

import re
from collections.abc import Iterable, Mapping

from detent.core.errors import DetentError
from detent.core.schedule import FIRE_KEY, Schedule, fire_key, next_fire
from detent.core.times import iso

from .rows import ID, KEY, Row
from .rules import Report

_KEY = re.compile(re.escape(FIRE_KEY) + r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:\d{4}-\d\d-\d\dT[\d:.]+Z")


def fired(rows: Iterable[Row]) -> dict[str, str]:
    """The jobs among these that say they were made by a fire, and its key."""
    return {row[ID]: row[KEY] for row in rows if row[KEY] and _KEY.fullmatch(row[KEY])}


def check_fired(jobs: Mapping[str, str], fires: Iterable[Row], report: Report) -> None:
    """Rows of the query verify_fired: a fire makes one job, so no other job can say it was made by it."""
    known = {job_id: fire_key(schedule_id, fire_at) for schedule_id, fire_at, job_id in fires}
    for job_id, key in jobs.items():
        if known.get(job_id) != key:
            told = f"the job bears the key {key}, but that fire is not on record with it"
            report.add(job_id, None, "fire-missing", told)


def check_fires(rows: Iterable[Row], pruned: str, report: Report) -> None:
    """Rows of the query verify_fires: the job of a fire exists unless it was pruned, and agrees with it."""
    for schedule_id, fire_at, job_id, there, scheduled_at, key in rows:
        if there is None:
            if job_id > pruned:
                told = f"the fire of {iso(fire_at)} of schedule {schedule_id} names a job that does not exist"
                report.add(job_id, None, "fire-without-job", told)
        elif scheduled_at != fire_at or key != fire_key(schedule_id, fire_at):
            told = (
                f"made by the fire of {iso(fire_at)} of schedule {schedule_id}, the job says {iso(scheduled_at)}, {key}"
            )
            report.add(job_id, None, "fire-differs", told)


def check_schedule(schedule: Schedule, last: int | None, report: Report) -> None:
    """A schedule, and the moment of the fire on record with its last job."""
    moment = schedule.next_fire_at
    try:
        astray = moment is not None and next_fire(schedule, moment - 1) != moment
    except DetentError:
        astray = True
    if astray:
        told = f"schedule {schedule.name} is to fire at {iso(moment)}, which is no moment of its own"
        report.add(None, None, "schedule-astray", told)
    if moment is not None and schedule.last_fire_at is not None and schedule.last_fire_at >= moment:
        told = f"schedule {schedule.name} is to fire at {iso(moment)}, but fired at {iso(schedule.last_fire_at)} before"
        report.add(None, None, "schedule-set-back", told)
    if schedule.last_fire_at != last:
        told = f"schedule {schedule.name} says it fired last at {iso(schedule.last_fire_at)}, its job is of {iso(last)}"
        report.add(None, None, "schedule-unfired", told)
