"""The last progress report of each running job, read from the store once a second for all event streams."""

import asyncio
from collections.abc import Collection
from itertools import takewhile
from typing import NamedTuple

from detent.core.job import Progress
from detent.core.times import SECOND
from detent.engine.engine import Engine

from .frames import Frame, progress_frame

_READ_SECONDS = 1.0
_LATE = 5 * SECOND
"""A report whose transaction commits later than this after its time is not sent; the next one is."""
_PAGE, _PAGES = 500, 4
_MAX_REPORTS = 8_192


class NumberedFrame(NamedTuple):
    number: int
    frame: Frame


class ProgressReports:
    """Keeps one report per job, so a client that reads slowly gets the last one of each job only."""

    def __init__(self) -> None:
        self._frames: dict[str, NumberedFrame] = {}
        """By job id, in the order of their numbers."""
        self._seen: dict[str, Progress] = {}
        """What was read after the cursor: the next read returns these again."""
        self._cursor = (0, "")
        self._first = 0
        """Reports before this time are not sent."""
        self._next_read = float("-inf")
        self._is_reading = False
        self.number = 0

    def stop(self) -> None:
        """Forget all reports. The next `read` starts with the reports after it."""
        self._frames.clear()
        self._seen.clear()
        self._is_reading = False

    async def read(self, engine: Engine) -> bool:
        """Read new reports if the last read is a second ago: at most 2,000, the rest in the next second. True: there
        are new ones."""
        now = asyncio.get_running_loop().time()
        if self._is_reading and now < self._next_read:
            return False
        self._next_read = now + _READ_SECONDS
        if not self._is_reading:
            self._first, self._is_reading = engine.store.now() - SECOND, True
            self._cursor = (self._first, "")
        before = self.number
        for _ in range(_PAGES):
            if await self._read_page(engine):
                break
        return self.number > before

    async def _read_page(self, engine: Engine) -> bool:
        """Read one page; True if it was the last one. Then the cursor goes back, because transactions commit late."""
        at, job_id = self._cursor
        until = engine.store.now()
        reports = await engine.store.read(lambda tx: tx.output.progress_after(at, job_id, _PAGE))
        for report in reports:
            progress = report.progress
            if report.is_running and self._seen.get(progress.job_id) != progress:
                self._add(progress.job_id, progress_frame(report))
            self._seen[progress.job_id] = progress
        is_last = len(reports) < _PAGE
        if is_last:
            self._cursor = (max(self._first, until - _LATE), "")
            self._seen = {id_: progress for id_, progress in self._seen.items() if progress.at >= self._cursor[0]}
        else:
            self._cursor = (reports[-1].progress.at, reports[-1].progress.job_id)
        return is_last

    def _add(self, job_id: str, frame: Frame) -> None:
        self.number += 1
        self._frames.pop(job_id, None)
        self._frames[job_id] = NumberedFrame(self.number, frame)
        if len(self._frames) > _MAX_REPORTS:
            del self._frames[next(iter(self._frames))]

    def drop(self, job_ids: Collection[str]) -> None:
        """Drop the reports of jobs whose status has changed since."""
        for job_id in job_ids:
            self._frames.pop(job_id, None)

    def after(self, number: int, limit: int) -> list[NumberedFrame]:
        """The reports with greater numbers, oldest first."""
        newest_first = takewhile(lambda numbered: numbered.number > number, reversed(self._frames.values()))
        return list(newest_first)[::-1][:limit]
