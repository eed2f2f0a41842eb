"""Retention: deletes finished jobs by the rules of the settings, in batches, and exports them first if configured."""

import asyncio
import json
import logging
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.core.times import iso
from detent.engine import Engine
from detent.engine.metrics.alerts import claim_interval
from detent.engine.pruning import Pruned, PruneOptions, prune
from detent.system.clock import SystemClock

if TYPE_CHECKING:
    from .settings import Settings

log = logging.getLogger("detent.retention")
_MAX_SHARE = 0.1
"""Pruning takes at most this share of the time, so that it does not slow down the jobs."""


class JsonLinesFile:
    """Appends job histories to a file, one JSON object per line. `write` returns after an fsync.

    If the process dies between the write and the delete, a job is written twice; both lines have its id.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, histories: list[dict[str, Any]]) -> None:
        is_new = not self.path.exists()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")  # a crash has left the last line incomplete
            for history in histories:
                file.write(json.dumps(history, ensure_ascii=False, separators=(",", ":"), default=str).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    async def __call__(self, histories: list[dict[str, Any]]) -> None:
        await asyncio.to_thread(self.write, histories)


class Pruner:
    """Prunes by the retention rules; one process at a time, for at most one interval."""

    def __init__(self, engine: Engine, settings: "Settings") -> None:
        self._engine = engine
        self._settings = settings
        self._clock = SystemClock()

    async def run_once(self) -> Pruned | None:
        """What was deleted; None without rules, or if another process prunes in this interval."""
        settings = self._settings
        interval = settings.retention_interval_seconds
        if not settings.retention or not await claim_interval(self._engine, "retention", interval):
            return None
        options = PruneOptions(rules=settings.retention, batch=settings.retention_batch)
        total = Pruned(more=True)
        end = self._clock.monotonic() + interval
        while total.more and self._clock.monotonic() < end:
            began = self._clock.monotonic()
            pruned = await prune(self._engine, options, 1, self._export())
            total.add({name: number for name, number in pruned.as_dict().items() if name != "more"})
            total.more = pruned.more
            if pruned.more:
                await asyncio.sleep((self._clock.monotonic() - began) * (1 / _MAX_SHARE - 1))
        if total.jobs or total.partitions:
            log.info("retention: deleted %d jobs, %d events, %d partitions", total.jobs, total.events, total.partitions)
        return total

    def _export(self) -> JsonLinesFile | None:
        if self._settings.export_to is None:
            return None
        day = (iso(self._engine.store.now()) or "")[:10]
        name = f"pruned-{day}-{socket.gethostname()}-{os.getpid()}.jsonl"
        return JsonLinesFile(Path(self._settings.export_to) / name)
