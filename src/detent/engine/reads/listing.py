"""Pages of jobs and dead letters, newest first. A filter with rare matches reads a bounded number of rows per page."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import fields, replace
from typing import TypeVar

from detent.core.contract.model import Contract
from detent.core.errors import InvalidInput
from detent.core.job import DeadLetter, Job
from detent.engine.runtime import Runtime
from detent.ports.listing import Filter
from detent.ports.tx import Tx
from detent.system.clock import SystemClock

_WINDOW, _MAX_WINDOW = 5_000, 40_000
_TEXT_WINDOW, _MAX_TEXT_WINDOW = 500, 5_000
"""Smaller, because a text search reads payloads, which may be large."""
_FILTER_FIELDS = tuple(field.name for field in fields(Filter) if field.name not in ("before", "limit"))
Row = TypeVar("Row", Job, DeadLetter)
ReadWindow = Callable[[Tx, Filter, int], Awaitable[tuple[list[Row], str | None]]]


async def read_page(
    runtime: Runtime, filter: Filter, seconds: float, read_window: ReadWindow[Row]
) -> tuple[list[Row], str | None]:
    """(a page, the cursor of the next page or None). With a filter, a page that has a next one may be shorter than the
    limit or empty: reading stops when the time for one page is over."""
    chosen = runtime.visible(filter)
    if chosen.limit < 1:
        raise InvalidInput("limit must be at least 1", code="LIMIT_INVALID", field="limit")
    clock = SystemClock()
    end = clock.monotonic() + seconds
    page: list[Row] = []
    cursor, (window, widest) = chosen.before, _windows(chosen)
    while True:
        page_filter = replace(chosen, before=cursor, limit=chosen.limit + 1 - len(page))
        rows, last = await runtime.store.read(lambda tx: read_window(tx, page_filter, window))  # noqa: B023
        page += rows
        if len(page) > chosen.limit:
            return page[: chosen.limit], page[chosen.limit - 1].id
        if last is None or last == cursor:
            return page, None
        cursor = last
        if clock.monotonic() >= end:
            return page, cursor
        window = min(window * 2, widest)


def _windows(chosen: Filter) -> tuple[int, int]:
    """(rows read by the first query, most rows read by one query)."""
    if all(getattr(chosen, name) is None for name in _FILTER_FIELDS):
        return chosen.limit + 1, _MAX_WINDOW
    searched = chosen.text is not None or chosen.text_outside is not None
    return (_TEXT_WINDOW, _MAX_TEXT_WINDOW) if searched else (_WINDOW, _MAX_WINDOW)


def check_status(contracts: Mapping[str, Contract], status: str | None) -> None:
    """Raise InvalidInput (STATUS_UNKNOWN) for a status that none of these contracts has."""
    known = {name for contract in contracts.values() for name in contract.statuses}
    if status is not None and status not in known:
        message = f"no contract has the status {status!r}; the statuses are {', '.join(sorted(known))}"
        raise InvalidInput(message, code="STATUS_UNKNOWN", field="status")
