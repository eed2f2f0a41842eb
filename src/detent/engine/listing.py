"""Pages of jobs, newest first, however many there are: a rare match costs a bounded look, not the whole table."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ..clock import SystemClock
from ..core.errors import InvalidInput
from ..core.job import Job
from ..ports import Filter, Tx

if TYPE_CHECKING:
    from . import Engine

_WINDOW = 5_000
_CHOICES = ("contract", "status", "phase", "queue", "tenant_id", "job_type", "text", "text_outside")


async def list_jobs(engine: "Engine", chosen: Filter, *, seconds: float = 0.15) -> tuple[list[Job], str | None]:
    """(a page, where the next one begins). With a filter a page may be short of its limit, or empty, and yet
    have a next one: so many jobs were looked at, and the time for one page was over."""
    if chosen.limit < 1:
        raise InvalidInput("a page has at least one job", code="LIMIT_INVALID", field="limit")
    if all(getattr(chosen, name) is None for name in _CHOICES):
        found = await engine.jobs(replace(chosen, limit=chosen.limit + 1))
        page = found[: chosen.limit]
        return page, page[-1].id if len(found) > chosen.limit else None
    clock = SystemClock()
    end = clock.monotonic() + seconds
    page, cursor, window = [], chosen.before, _WINDOW
    while True:
        asked = replace(chosen, before=cursor, limit=chosen.limit + 1 - len(page))
        found, last = await engine.store.read(partial(_window, asked, window))
        page += found
        if len(page) > chosen.limit:
            return page[: chosen.limit], page[chosen.limit - 1].id
        if last is None or (last == cursor):
            return page, None
        cursor = last
        if clock.monotonic() >= end:
            return page, cursor
        window = min(window * 2, 40_000)


async def _window(asked: Filter, scan: int, tx: Tx) -> tuple[list[Job], str | None]:
    return await tx.job_window(asked, scan)
