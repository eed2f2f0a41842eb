"""The part of a transaction that lists jobs and dead letters by filter, and what finds them: thin tables of traces and
error codes, error groups, and the views that people save."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from detent.core.contract.model import Phase
from detent.core.job import Change, DeadLetter, DeadLetterStatus, Job, Micros
from detent.ports.listing import ErrorGroupSlot, Filter, SavedView
from detent.ports.metrics import Group

from .named_queries import REACH_TESTS, NamedQueries, Row
from .rows import job_from

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class ListingQueries(NamedQueries):
    """Windows of rows along a primary key: a filter with few matches reads a bounded number of rows."""

    above_all_ids = "\U0010ffff"
    """A text that sorts after every id."""
    below_all_ids = ""

    async def list_dead_letters(self, filter: Filter) -> list[DeadLetter]:
        return [DeadLetter(*row) for row in await self._filtered("dead_letters", filter, _DEAD_LETTER_FILTERS)]

    async def count_dead_letters(self, filter: Filter) -> dict[str, tuple[int, int]]:
        rows = await self._filtered("count_dead_letters", replace(filter, before=None), _DEAD_LETTER_FILTERS)
        return {row[0]: (row[1], row[2]) for row in rows}

    async def list_jobs(self, filter: Filter) -> list[Job]:
        return [job_from(row) for row in await self._filtered("jobs", filter, _JOB_FILTERS)]

    async def job_window(self, filter: Filter, scan: int, lowest: str | None) -> tuple[list[Job], str | None]:
        name = _source_of(filter)
        trace = filter.trace_id or ""
        named_job = _UUID.search(trace)
        more = {"lowest": lowest or self.below_all_ids, "own_id": named_job[0] if named_job else None}
        rows, last = await self._window(name, filter, _WINDOW_FILTERS, self.above_all_ids, scan, **more)
        return [job_from(row) for row in rows], last

    async def has_children_of_jobs_below(self, parent_id: str) -> bool:
        return bool(await self.query("children_of_jobs_below", parent_id=parent_id))

    async def dead_letter_window(
        self, filter: Filter, scan: int, lowest: str | None
    ) -> tuple[list[DeadLetter], str | None]:
        rows, last = await self._window(
            _dead_letter_source(filter),
            filter,
            _DEAD_LETTER_WINDOW_FILTERS,
            ListingQueries.above_all_ids,
            scan,
            lowest=lowest or "",
        )
        return [DeadLetter(*row) for row in rows], last

    async def error_groups(
        self, filter: Filter, scan: int, since: Micros, width: Micros
    ) -> tuple[list[ErrorGroupSlot], str | None]:
        name = f"{_dead_letter_source(filter)}_groups"
        ends = {"before": filter.before or ListingQueries.above_all_ids, "scan": scan, "lowest": ""}
        slots = {"slots_from": since, "slot_width": width}
        rows = await self._filtered(name, filter, _DEAD_LETTER_WINDOW_FILTERS, **ends, **slots)
        last = await self.query(f"{_dead_letter_source(filter)}_end", **ends)
        return [ErrorGroupSlot(*row) for row in rows], last[0][0] if last else None

    async def error_first_seen(self, groups: Sequence[str], tenant: str | None) -> dict[str, Micros]:
        tests = {"tenant": "tenant_id = :tenant"}
        rows = await self.matching("error_first_seen", tests, groups=json.dumps(list(groups)), tenant=tenant)
        return {row[0]: row[1] for row in rows}

    async def dead_letters_by_id(self, ids: Sequence[str]) -> list[DeadLetter]:
        return await self.fetch(DeadLetter, "dead_letters_by_id", ids=json.dumps(list(ids)))

    async def ids_with_prefix(self, prefix: str, limit: int) -> list[str]:
        ends = (
            f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}" for digits in _ends(prefix)
        )
        first, last = ends
        return [row[0] for row in await self.query("ids_between", first=first, last=last, limit=limit)]

    async def lane_names(self, like: str, limit: int) -> list[Group]:
        test = f"{self.contains}(lower(queue || ' ' || job_type), :like) > 0"
        return await self.fetch(Group, "lane_names", test, like=like.lower(), limit=limit)

    async def tenant_names(self, limit: int) -> list[str]:
        return [row[0] for row in await self.query("tenant_names", limit=limit)]

    async def note_error(self, change: Change) -> None:
        """Remember the error code of a job that ended with it, and the group of its dead letter."""
        before, after, item = change.before, change.after, change.dead_letter
        if change.ended is not None and after.error_code is not None:
            await self.change("put_job_error", error_code=after.error_code, job_id=after.id)
        elif before is not None and before.phase is Phase.FINAL and before.error_code is not None:
            await self.change("drop_job_error", error_code=before.error_code, job_id=after.id)
        if item is not None:
            group = {"error_group": item.error_group, "tenant_id": item.tenant_id, "at": item.created_at}
            await self.change("put_error_group", **group)

    async def put_view(self, view: SavedView) -> None:
        await self.change("put_view", **view._asdict())

    async def views(self, tenant: str, person: str) -> list[SavedView]:
        return await self.fetch(SavedView, "views", tenant_id=tenant, person=person)

    async def drop_view(self, tenant: str, person: str, page: str, name: str) -> bool:
        values = {"tenant_id": tenant, "person": person, "page": page, "name": name}
        return await self.change("drop_view", **values) > 0

    async def _window(
        self, name: str, filter: Filter, tests: Mapping[str, str], above_all_ids: str, scan: int, **more: Any
    ) -> tuple[list[Row], str | None]:
        ends = {"before": filter.before or above_all_ids, "scan": scan, **more}
        rows = await self._filtered(name, filter, tests, **ends)
        keys = {"parent_id": filter.parent_id, "trace_id": filter.trace_id, "error_code": filter.error_code}
        last = await self.query(f"{name}_end", **ends, **keys)
        return rows, last[0][0] if last else None

    async def _filtered(self, name: str, filter: Filter, tests: Mapping[str, str], **more: Any) -> list[Row]:
        given = {**asdict(filter), **more, "now": self.now}
        return await self.matching(name, tests, **given)


def needs_trace_row(job: Job) -> bool:
    """Whether a new job gets a row in job_traces: not if its trace id contains its id, which is most often the case."""
    return job.trace_id is not None and job.id not in job.trace_id


def _source_of(filter: Filter) -> str:
    """The window to read: of the jobs with a parent, a trace or an error code, if the filter has one, else of all."""
    if filter.parent_id is not None:
        return "job_window_of_parent"
    if filter.trace_id is not None:
        return "job_window_of_trace"
    finished = filter.phase in (None, str(Phase.FINAL))
    return "job_window_of_error" if filter.error_code is not None and finished else "job_window"


def _dead_letter_source(filter: Filter) -> str:
    return "open_dead_letter_window" if filter.status == DeadLetterStatus.OPEN else "dead_letter_window"


def _ends(prefix: str) -> tuple[str, str]:
    """The lowest and the highest 32 digits that begin like the prefix of an id."""
    digits = prefix.replace("-", "")[:32]
    return digits.ljust(32, "0"), digits.ljust(32, "f")


_EXACT = ("contract", "status", "queue", "tenant_id", "job_type", "error_code")
_CREATED_FILTERS = {"since": "created_at >= :since", "until": "created_at <= :until", **REACH_TESTS}
_DEAD_LETTER_TEXT = "id || ' ' || cast(job_id AS text) || ' ' || error_code"
_JOB_TEXT = (
    "cast(id AS text) || ' ' || coalesce(idempotency_key, '') || ' ' || coalesce(task_id, '') || ' ' || "
    "coalesce(error_code, '')"
)
_DEAD_LETTER_WINDOW_FILTERS = {
    **{name: f"{name} = :{name}" for name in (*_EXACT, "error_class", "error_group", "proposed_by")},
    **_CREATED_FILTERS,
    "text": f"{{contains}}({_DEAD_LETTER_TEXT} || ' ' || coalesce(error_message, ''), :text) > 0",
    "text_outside": f"{{contains}}({_DEAD_LETTER_TEXT}, :text_outside) > 0",
}
_DEAD_LETTER_FILTERS = {**_DEAD_LETTER_WINDOW_FILTERS, "before": "id < :before"}
_DURATION = "coalesce(finished_at, :now) - started_at"
_WINDOW_FILTERS = {
    **{name: f"{name} = :{name}" for name in _EXACT},
    **_CREATED_FILTERS,
    "phase": "phase = :phase",
    "wait_parked": "wait_parked = :wait_parked",
    "task_id": "task_id = :task_id",
    "statuses": "({contains}(:statuses, '\n' || status || '\n') > 0"
    " OR wait_parked AND {contains}(:statuses, '\n*' || contract || '\n') > 0)",
    "parent_id": "parent_id = :parent_id",
    "trace_id": "trace_id = :trace_id",
    "roots": "(parent_id IS NULL) = :roots",
    "worker": "EXISTS (SELECT 1 FROM detent.events e WHERE e.job_id = looked.id"
    " AND e.actor = (SELECT a.id FROM detent.actors a WHERE a.name = :worker))",
    "min_duration": f"{_DURATION} >= :min_duration",
    "max_duration": f"{_DURATION} <= :max_duration",
    "min_attempts": "execution_no >= :min_attempts",
    "max_attempts": "execution_no <= :max_attempts",
    "text": f"{{contains}}({_JOB_TEXT} || ' ' || payload, :text) > 0",
    "text_outside": f"{{contains}}({_JOB_TEXT}, :text_outside) > 0",
}
_JOB_FILTERS = {**_WINDOW_FILTERS, "before": "id < :before"}
