"""Notices a handler that blocks the event loop: a thread samples the loop's stack, logs it and keeps it for `why`."""

import asyncio
import json
import logging
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from detent.core.job import Micros
from detent.core.times import SECOND
from detent.observability.histograms import ExecutionHistograms
from detent.observability.job_logs import current_job
from detent.ports.claims import Claimed
from detent.ports.clock import Clock

log = logging.getLogger("detent.worker.loop_watch")
_MAX_FRAMES = 30
_MAX_LOCATION = 300
_STANDARD_LIBRARY = str(Path(threading.__file__).parent)
_RUNNER = str(Path(__file__).with_name("runner.py"))


class LoopWatch:
    """Watches one event loop, on which `tick` is called often. seconds: how long it may be blocked; 0: not watched."""

    def __init__(
        self,
        seconds: float,
        clock: Clock,
        now: Callable[[], Micros],
        histograms: ExecutionHistograms,
        running: Callable[[], Iterable[tuple["asyncio.Task[Any]", Claimed]]],
    ) -> None:
        """running: the task and the job of each handler. Called in the thread."""
        self._seconds = seconds
        self._running = running
        self._clock = clock
        self._now = now
        self._histograms = histograms
        self._ticked_at = clock.monotonic()
        self._job: Claimed | None = None
        self.report: str | None = None
        """JSON while the loop is blocked: since, location and, if a handler blocks it, job_id and job_type."""
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start to watch the event loop that runs in this thread."""
        self._ticked_at = self._clock.monotonic()
        target = (asyncio.get_running_loop(), threading.get_ident())
        if self._seconds > 0:
            threading.Thread(target=self._watch, args=target, name="detent-loop-watch", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def tick(self) -> None:
        """The loop runs. Called on the loop."""
        now = self._clock.monotonic()
        blocked_seconds, self._ticked_at = now - self._ticked_at, now
        if self.report is not None:
            job, self.report = self._job, None
            self._histograms.record_block(job, blocked_seconds)
            log.info("the event loop was blocked for %.1f s by %s", blocked_seconds, _named(job))

    def _watch(self, loop: asyncio.AbstractEventLoop, thread_id: int) -> None:
        task: asyncio.Task[Any] | None = None
        while not self._stopped.wait(self._seconds / 4):
            late = self._clock.monotonic() - self._ticked_at
            previous, task = task, asyncio.current_task(loop)
            if late < self._seconds or self.report is not None:
                continue
            frame = sys._current_frames().get(thread_id)
            if task is None or task is not previous or frame is None:  # no task blocks it: this process had no CPU
                continue
            frames = traceback.extract_stack(frame)
            inner = max((place for place, entry in enumerate(frames) if entry.filename == _RUNNER), default=-1) + 1
            self._job = self._job_of(task)
            self._report(late, (frames[inner:] or frames)[-_MAX_FRAMES:])

    def _job_of(self, task: "asyncio.Task[Any]") -> Claimed | None:
        """The job of a handler's task, or of a task that the handler has started, which Python tells from 3.12 on."""
        get_context = getattr(task, "get_context", None)
        inherited: Claimed | None = get_context().get(current_job) if get_context is not None else None
        return next((job for handler_task, job in self._running() if handler_task is task), inherited)

    def _report(self, late: float, frames: list[traceback.FrameSummary]) -> None:
        job, frame = self._job, next((frame for frame in reversed(frames) if not _is_library(frame)), frames[-1])
        where = {"job_id": job.id, "job_type": job.job_type} if job else {}
        location = f"{frame.filename}:{frame.lineno} in {frame.name}"[-_MAX_LOCATION:]
        report = {"since": self._now() - int(late * SECOND), "location": location, **where}
        self.report = json.dumps(report)
        message = (
            f"{_named(job)} has blocked the event loop for {late:.1f} s at {location}; no other job of this worker"
        )
        message += " runs meanwhile: make the handler a plain `def`, which runs in a thread, or await"
        fields = {"event": "loop_blocked", "blocked_seconds": round(late, 3), **where}
        stack = "Stack (most recent call last):\n" + "".join(traceback.format_list(frames)).rstrip("\n")
        log.handle(log.makeRecord(log.name, logging.WARNING, __file__, 0, message, (), None, extra=fields, sinfo=stack))


def _is_library(frame: traceback.FrameSummary) -> bool:
    return frame.filename.startswith(_STANDARD_LIBRARY) or "site-packages" in frame.filename


def _named(job: Claimed | None) -> str:
    return "code of no known job" if job is None else f"the handler of job {job.id} ({job.job_type})"
