"""The event tail of a process: reads new events from the store once and serves them to all event streams."""

import asyncio
import logging
from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from detent.core.errors import DetentError
from detent.ports.tail import Position
from detent.system.tasks import wait_for_event

from .frames import EventFrame, Frame, FrameEncoder, FrameFilter, frame_of
from .progress_reports import ProgressReports

if TYPE_CHECKING:
    from detent.web.http.state import Web

log = logging.getLogger("detent.web")
_PAGE = 500
_MAX_FRAMES = 4_096
_MAX_FRAME_BYTES = 16 << 20
_CHUNK_FRAMES = 128
"""How many events are sent in one write; other clients are served between two writes."""
_POLL_SECONDS = 0.1
_RETRY_SECONDS = 0.5


class FellBehind(Exception):
    """The client reads too slowly: frames it has not read were dropped. It reconnects with the last id it saw."""


class EventTail:
    """The newest events. A client keeps a position among them instead of a buffer, so it needs almost no memory."""

    def __init__(self, web: "Web") -> None:
        self._web = web
        self._frames: list[EventFrame] = []
        self._reports = ProgressReports()
        self._report_listeners = 0
        self._dropped = 0
        """How many frames were dropped before the first one that is still kept."""
        self._bytes = 0
        self._floor = self._head = Position(0)
        """All events with `_floor < position <= _head` are in `_frames`."""
        self._has_new_frames = asyncio.Event()
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._job_watches: dict[str, set[asyncio.Event]] = {}
        self.listeners = 0

    async def follow(
        self,
        start: Position | None,
        matches: FrameFilter,
        encode: FrameEncoder,
        *,
        with_progress: bool,
        heartbeat_seconds: float,
    ) -> AsyncGenerator[bytes, None]:
        """Chunks of the matching events after `start` (None: new events only) and of new progress reports; a comment as
        heartbeat when idle."""
        self.listeners += 1
        self._report_listeners += with_progress
        try:
            await self._ensure_running()
            position = self._head if start is None else start
            yield b": following\n\n"
            while position < self._floor:  # read from the database up to the first kept frame
                frames, position = await self._read_after(position)
                yield _chunk(frames, matches, encode)
            number = self._dropped + bisect_right(self._frames, position, key=lambda frame: frame.position)
            report_number = self._reports.number
            clock = asyncio.get_running_loop().time
            beat_at = clock() + heartbeat_seconds
            while True:
                if number < self._dropped:
                    raise FellBehind
                index = number - self._dropped
                frames = self._frames[index : index + _CHUNK_FRAMES]
                reports = self._reports.after(report_number, _CHUNK_FRAMES) if with_progress else []
                chunk = b""
                if frames or reports:
                    number += len(frames)
                    unsent = [frame for frame in frames if frame.position > position]
                    position = max([position, *(frame.position for frame in frames[-1:])])
                    report_number = max([report_number, *(report.number for report in reports[-1:])])
                    chunk = _chunk([*unsent, *(report.frame for report in reports)], matches, encode)
                elif not await wait_for_event(self._has_new_frames, max(0.0, beat_at - clock())) and (
                    number == self._dropped + len(self._frames)
                ):
                    position = max(position, self._head)
                if not chunk and clock() >= beat_at:  # also while others' events flow: a client drops a silent stream
                    chunk = f"id: {position}\n: beat\n\n".encode()
                if chunk:
                    beat_at = clock() + heartbeat_seconds
                yield chunk
        finally:
            self.listeners -= 1
            self._report_listeners -= with_progress

    @asynccontextmanager
    async def watch_end(self, job_id: str) -> AsyncIterator[asyncio.Event]:
        """An Event that is set when the tail reads that the job is finished. Watching needs no query of its own; read
        the job within the context, because it may have finished before."""
        ended = asyncio.Event()
        self._job_watches.setdefault(job_id, set()).add(ended)
        self.listeners += 1
        try:
            await self._ensure_running()
            yield ended
        finally:
            self.listeners -= 1
            self._job_watches[job_id].discard(ended)
            if not self._job_watches[job_id]:
                del self._job_watches[job_id]

    async def _read_after(self, after: Position) -> tuple[list[EventFrame], Position]:
        engine = await self._web.engine()
        events, position = await engine.store.read(lambda tx: tx.log.tail(after, _PAGE))
        return [frame_of(engine.contract(event.job.contract), event) for event in events], position

    async def _ensure_running(self) -> None:
        if self._task is None or self._task.done():
            self._ready.clear()
            self._task = self._web.start(self._run(), "tail")
        await self._ready.wait()

    async def _run(self) -> None:
        """Read new events while at least one client follows."""
        engine = await self._web.engine()
        watch = engine.store.watch()
        started = False
        while self.listeners:
            try:
                if not started:
                    self._floor = self._head = await engine.store.read(lambda tx: tx.log.tail_end())
                    self._dropped += len(self._frames)
                    self._frames, self._bytes, started = [], 0, True
                    self._ready.set()
                has_frames = await self._read_new()
                has_reports = await self._read_reports()
                if has_frames or has_reports:
                    notified, self._has_new_frames = self._has_new_frames, asyncio.Event()
                    notified.set()
                if not has_frames:
                    await watch.changed(_POLL_SECONDS)
            except DetentError as error:
                log.warning("reading new events failed, retrying in %s s: %s", _RETRY_SECONDS, error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _read_new(self) -> bool:
        frames, position = await self._read_after(self._head)
        self._frames += frames
        self._bytes += _size(frames)
        self._head = max(self._head, position)
        if len(self._frames) > 2 * _MAX_FRAMES or self._bytes > _MAX_FRAME_BYTES:
            self._drop_older_half()
        for frame in frames if self._job_watches else ():
            for ended in self._job_watches.get(frame.job_id, ()) if frame.is_final else ():
                ended.set()
        self._reports.drop({frame.job_id for frame in frames})
        return bool(frames)

    async def _read_reports(self) -> bool:
        if not self._report_listeners:
            self._reports.stop()
            return False
        return await self._reports.read(await self._web.engine())

    def _drop_older_half(self) -> None:
        """Drop the older half of the frames; clients that have not read them get FellBehind."""
        half = len(self._frames) - min(len(self._frames) // 2, _MAX_FRAMES)
        self._floor = self._frames[half - 1].position
        self._dropped += half
        self._frames = self._frames[half:]
        self._bytes = _size(self._frames)


def _size(frames: Iterable[EventFrame]) -> int:
    return sum(len(frame.full) + len(frame.redacted) for frame in frames)


def _chunk(frames: Iterable[Frame], matches: FrameFilter, encode: FrameEncoder) -> bytes:
    return b"".join(encode(frame) for frame in frames if matches(frame))
