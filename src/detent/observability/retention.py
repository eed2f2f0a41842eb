"""Retention: ended jobs go by rule, batch by batch beside the work, and are written to a file first if asked."""

import asyncio
import json
import logging
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.core.times import iso
from detent.engine import Engine
from detent.engine.metrics.alerts import take_turn
from detent.engine.pruning import Choice, Pruned, prune
from detent.system.clock import SystemClock

if TYPE_CHECKING:
    from .settings import Settings

log = logging.getLogger("detent.retention")
_SHARE = 0.1
"""Of the time, pruning takes no more than this: the work goes first."""


class JsonLines:
    """A file that takes histories of jobs, one a line. A batch is on the disk when `write` returns.

    After a crash a job may be in it twice (its batch was written, not yet deleted); its id tells.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written = 0

    def write(self, histories: list[dict[str, Any]]) -> None:
        new = not self.path.exists()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+") as file:
            if file.tell() and not _ends_a_line(file):
                file.write(b"\n")  # a line that a crash has torn
            for history in histories:
                file.write(json.dumps(history, ensure_ascii=False, separators=(",", ":"), default=str).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        if new:
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        self.written += len(histories)

    async def __call__(self, histories: list[dict[str, Any]]) -> None:
        await asyncio.to_thread(self.write, histories)


def _ends_a_line(file: Any) -> bool:
    file.seek(-1, os.SEEK_END)
    return bool(file.read(1) == b"\n")


class Retainer:
    """Keeps the rules of the settings; one process at a time, for at most one interval."""

    def __init__(self, engine: Engine, settings: "Settings") -> None:
        self._engine = engine
        self._settings = settings
        self._clock = SystemClock()

    async def round(self) -> Pruned | None:
        settings = self._settings
        every = settings.retention_interval_seconds
        if not settings.retention or not await take_turn(self._engine, "retention", every):
            return None
        choice = Choice(rules=settings.retention, batch=settings.retention_batch)
        total = Pruned(more=True)
        end = self._clock.monotonic() + every
        while total.more and self._clock.monotonic() < end:
            began = self._clock.monotonic()
            done = await prune(self._engine, choice, 1, self._export())
            total.add({name: number for name, number in done.as_dict().items() if name != "more"})
            total.more = done.more
            if done.more:
                await asyncio.sleep((self._clock.monotonic() - began) * (1 / _SHARE - 1))
        if total.jobs:
            log.info("retention: %d jobs with %d events are gone", total.jobs, total.events)
        return total

    def _export(self) -> JsonLines | None:
        if self._settings.export_to is None:
            return None
        day = (iso(self._engine.store.now()) or "")[:10]
        name = f"pruned-{day}-{socket.gethostname()}-{os.getpid()}.jsonl"
        return JsonLines(Path(self._settings.export_to) / name)
