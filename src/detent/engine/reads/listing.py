"""Pages of jobs and dead letters, newest first. A filter with rare matches reads a bounded number of rows per page."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import TypeVar

from detent.core.contract.model import Contract
from detent.core.errors import InvalidInput
from detent.core.job import DeadLetter, Job, Micros
from detent.core.times import DAY, SECOND, first_id, moment_of_id
from detent.engine.runtime import Runtime
from detent.ports.listing import Filter
from detent.ports.tx import Tx
from detent.system.clock import SystemClock

_WINDOW, _MAX_WINDOW = 5_000, 40_000
_TEXT_WINDOW, _MAX_TEXT_WINDOW = 500, 5_000
"""Smaller, because a text search reads payloads, which may be large."""
_FILTER_FIELDS = tuple(field.name for field in fields(Filter) if field.name not in ("before", "limit"))
Row = TypeVar("Row", Job, DeadLetter)
ReadWindow = Callable[[Tx, Filter, int, str | None], Awaitable[tuple[list[Row], str | None]]]
_EARLIER_ID: Micros = DAY
"""How much older than its job an id may be, unless it is a child: its id has the time of its parent."""
_MILLISECOND: Micros = 1_000
_LATER_ID: Micros = 600 * SECOND
"""How much younger: ids are made by the clocks of clients."""


async def read_page(
    runtime: Runtime,
    filter: Filter,
    seconds: float,
    read_window: ReadWindow[Row],
    has_older: Callable[[str], Awaitable[bool]] | None = None,
) -> tuple[list[Row], str | None]:
    """(a page, the cursor of the next page or None). With a filter, a page that has a next one may be shorter than the
    limit or empty: reading stops when the time for one page is over.

    A filter by time reads the ids of that time. has_older: whether rows below this id may match nevertheless; then
    they are read, too.
    """
    chosen = runtime.visible(filter)
    if chosen.limit < 1:
        raise InvalidInput("limit must be at least 1", code="LIMIT_INVALID", field="limit")
    clock = SystemClock()
    end = clock.monotonic() + seconds
    page: list[Row] = []
    lowest, cursor = id_range(chosen)
    window, widest = _windows(chosen)
    while True:
        page_filter = replace(chosen, before=cursor, limit=chosen.limit + 1 - len(page))
        rows, last = await runtime.store.read(lambda tx: read_window(tx, page_filter, window, lowest))  # noqa: B023
        page += rows
        if len(page) > chosen.limit:
            return page[: chosen.limit], page[chosen.limit - 1].id
        if last is None or last == cursor:
            bound = lowest if cursor is None or lowest is None else min(lowest, cursor)
            if bound is None or has_older is None or not await has_older(bound):
                return page, None
            cursor, lowest, is_resumed = bound, None, cursor == bound
            if is_resumed:
                continue
        else:
            cursor = last
        if clock.monotonic() >= end:
            return page, cursor
        window = min(window * 2, widest)


def read_job_page(runtime: Runtime, filter: Filter, seconds: float) -> Awaitable[tuple[list[Job], str | None]]:
    """A page of jobs, see `read_page`. The id of a child has the time of its parent, so that it may be much older."""

    async def has_children_of_older(some_id: str) -> bool:
        following = first_id((moment_of_id(some_id) or 0) + _MILLISECOND)
        return not filter.roots and await runtime.store.read(lambda tx: tx.jobs.has_children_of_jobs_below(following))

    return read_page(runtime, filter, seconds, lambda tx, *window: tx.jobs.job_window(*window), has_children_of_older)


def id_range(chosen: Filter) -> tuple[str | None, str | None]:
    """(the lowest id, the id below which to begin) of what a filter with times can match; None: no such bound.

    Ids begin with their time, so that a filter by time reads only the ids of that time.
    """
    lowest = None if chosen.since is None else _first_timed_id(chosen.since - _EARLIER_ID)
    until = None if chosen.until is None else first_id(chosen.until + _LATER_ID)
    return lowest, min((bound for bound in (chosen.before, until) if bound is not None), default=None)


def _first_timed_id(moment: Micros) -> str:
    """The lowest UUIDv7 of this moment, so that it can be a cursor that tells its time."""
    lowest = first_id(moment)
    return f"{lowest[:14]}7{lowest[15:]}"


def _windows(chosen: Filter) -> tuple[int, int]:
    """(rows read by the first query, most rows read by one query)."""
    if all(getattr(chosen, name) is None for name in _FILTER_FIELDS):
        return chosen.limit + 1, _MAX_WINDOW
    searched = chosen.text is not None or chosen.text_outside is not None
    return (_TEXT_WINDOW, _MAX_TEXT_WINDOW) if searched else (_WINDOW, _MAX_WINDOW)


def check_statuses(contracts: Mapping[str, Contract], statuses: Sequence[str]) -> None:
    """Raise InvalidInput (STATUS_UNKNOWN) for a status that none of these contracts has."""
    defined = {name for contract in contracts.values() for name in contract.statuses}
    for status in statuses:
        if status not in defined:
            message = f"no contract has the status {status!r}; the statuses are {', '.join(sorted(defined))}"
            raise InvalidInput(message, code="STATUS_UNKNOWN", field="status")
