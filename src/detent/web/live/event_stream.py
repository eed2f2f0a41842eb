"""The event tail of a process: reads new events from the store once and serves them to all event streams."""

import asyncio
import json
import logging
from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from detent.core.contract.model import Contract, Phase
from detent.core.errors import DetentError
from detent.engine.payload_access import redact_entry, redact_job
from detent.engine.reads.views import event_view, published
from detent.ports.tail import Position, TailEvent

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
_DATA = b"\ndata: "


class FellBehind(Exception):
    """The client reads too slowly: frames it has not read were dropped. It reconnects with the last id it saw."""


@dataclass(frozen=True, slots=True)
class Frame:
    """An event encoded as a server-sent event: `full`, and `redacted` for tokens that may not see payloads."""

    position: Position
    tenant_id: str
    queue: str
    job_type: str
    contract: str
    job_id: str
    has_envelopes: bool
    is_final: bool
    """Whether the job is finished after this event."""
    full: bytes
    redacted: bytes


FrameFilter = Callable[[Frame], bool]
FrameEncoder = Callable[[Frame], bytes]
"""The bytes of a frame that a client gets; empty if the event is not sent to it."""


class EventTail:
    """The newest events. A client keeps a position among them instead of a buffer, so it needs almost no memory."""

    def __init__(self, web: "Web") -> None:
        self._web = web
        self._frames: list[Frame] = []
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
        self, start: Position | None, matches: FrameFilter, encode: FrameEncoder, *, heartbeat_seconds: float
    ) -> AsyncGenerator[bytes, None]:
        """Chunks of the matching events after `start` (None: new events only), and a comment as heartbeat when idle."""
        self.listeners += 1
        try:
            await self._ensure_running()
            position = self._head if start is None else start
            yield b": following\n\n"
            while position < self._floor:  # read from the database up to the first kept frame
                frames, position = await self._read_after(position)
                yield _chunk(frames, matches, encode)
            number = self._dropped + bisect_right(self._frames, position, key=lambda frame: frame.position)
            while True:
                if number < self._dropped:
                    raise FellBehind
                index = number - self._dropped
                frames = self._frames[index : index + _CHUNK_FRAMES]
                if frames:
                    number += len(frames)
                    unsent = [frame for frame in frames if frame.position > position]
                    position = max(position, frames[-1].position)
                    yield _chunk(unsent, matches, encode)
                elif not await self._wait(heartbeat_seconds):
                    yield f"id: {max(position, self._head)}\n: beat\n\n".encode()
        finally:
            self.listeners -= 1

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

    async def _read_after(self, after: Position) -> tuple[list[Frame], Position]:
        engine = await self._web.engine()
        events, position = await engine.store.read(lambda tx: tx.log.tail(after, _PAGE))
        return [frame_of(engine.contract(event.job.contract), event) for event in events], position

    async def _wait(self, seconds: float) -> bool:
        """Wait for new frames; False on timeout."""
        try:
            async with asyncio.timeout(seconds):
                return await self._has_new_frames.wait()
        except TimeoutError:
            return False

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
                if not await self._read_new():
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
        if frames:
            notified, self._has_new_frames = self._has_new_frames, asyncio.Event()
            notified.set()
        return bool(frames)

    def _drop_older_half(self) -> None:
        """Drop the older half of the frames; clients that have not read them get FellBehind."""
        half = len(self._frames) - min(len(self._frames) // 2, _MAX_FRAMES)
        self._floor = self._frames[half - 1].position
        self._dropped += half
        self._frames = self._frames[half:]
        self._bytes = _size(self._frames)


def _size(frames: Iterable[Frame]) -> int:
    return sum(len(frame.full) + len(frame.redacted) for frame in frames)


def _chunk(frames: Iterable[Frame], matches: FrameFilter, encode: FrameEncoder) -> bytes:
    return b"".join(encode(frame) for frame in frames if matches(frame))


def encode_event(frame: Frame, *, payloads: bool) -> bytes:
    """The event as the job's log shows it."""
    return frame.full if payloads else frame.redacted


def encode_envelope(frame: Frame, *, payloads: bool) -> bytes:
    """The event under the name and with the body that its contract publishes."""
    view = json.loads(encode_event(frame, payloads=payloads).partition(_DATA)[2])
    message = published(view, has_envelopes=frame.has_envelopes)
    return _server_sent(frame.position, *message) if message else b""


def frame_of(contract: Contract, tail_event: TailEvent) -> Frame:
    job, event = tail_event.job, tail_event.event
    full = _encode(contract, tail_event)
    redacted = _encode(contract, TailEvent(tail_event.position, redact_entry(event), redact_job(job)))
    names = (job.tenant_id, job.queue, job.job_type, job.contract, job.id)
    has_envelopes, is_final = contract.envelope is not None, job.phase is Phase.FINAL
    return Frame(tail_event.position, *names, has_envelopes, is_final, full, full if redacted == full else redacted)


def _encode(contract: Contract, tail_event: TailEvent) -> bytes:
    job = tail_event.job
    names = {name: getattr(job, name) for name in ("job_type", "contract", "queue", "tenant_id")}
    data = {"job_id": job.id, **names, **event_view(contract, job, tail_event.event)}
    return _server_sent(tail_event.position, tail_event.event.event, data)


def _server_sent(position: Position, name: str, data: Mapping[str, Any]) -> bytes:
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    head = f"id: {position}\nevent: {''.join(name.splitlines())}"
    return head.encode("utf-8", "backslashreplace") + _DATA + text.encode("utf-8", "backslashreplace") + b"\n\n"
