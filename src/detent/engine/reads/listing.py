"""Pages of jobs and dead letters, newest first, however many there are: a rare match costs a bounded look."""

from collections.abc import Awaitable, Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, TypeVar

from detent.core.errors import InvalidInput
from detent.core.job import DeadLetter, Job
from detent.ports.listing import Filter
from detent.ports.tx import Tx
from detent.system.clock import SystemClock

if TYPE_CHECKING:
    from detent.engine.engine import Engine

_WINDOW, _WIDEST = 5_000, 40_000
_TEXT_WINDOW, _TEXT_WIDEST = 500, 5_000
"""A text is looked for in payloads, which may be large."""
_CHOICES = tuple(field.name for field in fields(Filter) if field.name not in ("before", "limit"))
Row = TypeVar("Row", Job, DeadLetter)
Look = Callable[[Tx, Filter, int], Awaitable[tuple[list[Row], str | None]]]


async def list_jobs(engine: "Engine", chosen: Filter, *, seconds: float = 0.15) -> tuple[list[Job], str | None]:
    """(a page, where the next one begins). With a filter a page may be short of its limit, or empty, and yet
    have a next one: so many jobs were looked at, and the time for one page was over."""
    return await _page(engine, chosen, seconds, lambda tx, asked, scan: tx.job_window(asked, scan))


async def list_dead_letters(
    engine: "Engine", chosen: Filter, *, seconds: float = 0.15
) -> tuple[list[DeadLetter], str | None]:
    """The same of dead letters."""
    return await _page(engine, chosen, seconds, lambda tx, asked, scan: tx.dead_letter_window(asked, scan))


async def _page(engine: "Engine", chosen: Filter, seconds: float, look: Look[Row]) -> tuple[list[Row], str | None]:
    if chosen.limit < 1:
        raise InvalidInput("a page has at least one job", code="LIMIT_INVALID", field="limit")
    clock = SystemClock()
    end = clock.monotonic() + seconds
    page: list[Row] = []
    cursor, (window, widest) = chosen.before, _windows(chosen)
    while True:
        asked = replace(chosen, before=cursor, limit=chosen.limit + 1 - len(page))
        found, last = await engine.store.read(lambda tx: look(tx, asked, window))  # noqa: B023
        page += found
        if len(page) > chosen.limit:
            return page[: chosen.limit], page[chosen.limit - 1].id
        if last is None or last == cursor:
            return page, None
        cursor = last
        if clock.monotonic() >= end:
            return page, cursor
        window = min(window * 2, widest)


def _windows(chosen: Filter) -> tuple[int, int]:
    """How many rows the first look is at, and the widest one."""
    if all(getattr(chosen, name) is None for name in _CHOICES):
        return chosen.limit + 1, _WIDEST
    searched = chosen.text is not None or chosen.text_outside is not None
    return (_TEXT_WINDOW, _TEXT_WIDEST) if searched else (_WINDOW, _WIDEST)
