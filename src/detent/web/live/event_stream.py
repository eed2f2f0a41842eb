"""One tail of all events for a process, read once and handed to every client that follows it."""

import asyncio
import json
import logging
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from detent.core.contract.model import Contract
from detent.core.errors import DetentError
from detent.engine.reads.views import blind_event, blind_job, event_view
from detent.ports.tail import Position, TailEvent

if TYPE_CHECKING:
    from detent.web.http.state import Web

log = logging.getLogger("detent.web")
_PAGE = 500
_FRAMES = 4_096
_FRAME_BYTES = 16 << 20
_AT_ONCE = 128
"""How many events go out in one write; between two of them others have their turn."""
_POLL_SECONDS = 0.1
_PAUSE_SECONDS = 0.5


class FellBehind(Exception):
    """The client reads more slowly than things happen; it comes back with the last id it saw."""


@dataclass(frozen=True, slots=True)
class Frame:
    """An event as it goes over the wire, for those who see payloads and for those who do not."""

    position: Position
    tenant_id: str
    queue: str
    job_type: str
    contract: str
    job_id: str
    open: bytes
    blind: bytes

    @property
    def size(self) -> int:
        return len(self.open) + len(self.blind)


Choice = Callable[[Frame], bool]


class Stream:
    """The newest events. Clients keep a place among them, not a buffer, so a thousand cost little more than one."""

    def __init__(self, web: "Web") -> None:
        self._web = web
        self._frames: list[Frame] = []
        self._dropped = 0
        """How many frames were there before the first one that is still kept."""
        self._bytes = 0
        self._floor = self._head = Position(0)
        """Whatever was committed above the floor and up to the head is among the frames."""
        self._grown = asyncio.Event()
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.listeners = 0

    async def follow(
        self, start: Position | None, choose: Choice, *, payloads: bool, beat: float
    ) -> AsyncGenerator[bytes, None]:
        """Everything after `start` (None: from now on) that is chosen; empty beats in between."""
        self.listeners += 1
        try:
            await self._begin()
            position = self._head if start is None else start
            yield b": following\n\n"
            while position < self._floor:  # from the database until the kept frames take over
                frames, position = await self._older(position)
                yield _chunk(frames, choose, payloads)
            number = self._dropped + bisect_right(self._frames, position, key=lambda frame: frame.position)
            while True:
                if number < self._dropped:
                    raise FellBehind
                place = number - self._dropped
                frames = self._frames[place : place + _AT_ONCE]
                if frames:
                    number += len(frames)
                    fresh = [one for one in frames if one.position > position]
                    position = max(position, frames[-1].position)
                    yield _chunk(fresh, choose, payloads)
                elif not await self._wait(beat):
                    yield f"id: {max(position, self._head)}\n: beat\n\n".encode()
        finally:
            self.listeners -= 1

    async def _older(self, after: Position) -> tuple[list[Frame], Position]:
        engine = await self._web.engine()
        told, position = await engine.store.read(lambda tx: tx.tail(after, _PAGE))
        return [frame_of(engine.contract(one.job.contract), one) for one in told], position

    async def _wait(self, seconds: float) -> bool:
        """Until there is more; False when only time went by."""
        grown = self._grown
        try:
            async with asyncio.timeout(seconds):
                await grown.wait()
            return True
        except TimeoutError:
            return False

    async def _begin(self) -> None:
        if self._task is None or self._task.done():
            self._ready.clear()
            self._task = asyncio.create_task(self._run(), name="detent-web-tail")
            self._web.keep(self._task)
        await self._ready.wait()

    async def _run(self) -> None:
        """Read the tail while anybody follows it."""
        engine = await self._web.engine()
        watch = engine.store.watch()
        started = False
        while self.listeners:
            try:
                if not started:
                    self._floor = self._head = await engine.store.read(lambda tx: tx.tail_end())
                    self._dropped += len(self._frames)
                    self._frames, self._bytes, started = [], 0, True
                    self._ready.set()
                if not await self._read():
                    await watch.changed(_POLL_SECONDS)
            except DetentError as error:
                log.warning("the tail cannot be read, trying again: %s", error)
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _read(self) -> bool:
        frames, position = await self._older(self._head)
        self._frames += frames
        self._bytes += sum(frame.size for frame in frames)
        self._head = max(self._head, position)
        if len(self._frames) > 2 * _FRAMES or self._bytes > _FRAME_BYTES:
            self._drop()
        if frames:
            grown, self._grown = self._grown, asyncio.Event()
            grown.set()
        return bool(frames)

    def _drop(self) -> None:
        """The older half goes, and with it whoever has not read that far."""
        half = len(self._frames) - min(len(self._frames) // 2, _FRAMES)
        self._floor = self._frames[half - 1].position
        self._dropped += half
        self._frames = self._frames[half:]
        self._bytes = sum(frame.size for frame in self._frames)


def _chunk(frames: Iterable[Frame], choose: Choice, payloads: bool) -> bytes:
    return b"".join(one.open if payloads else one.blind for one in frames if choose(one))


def frame_of(contract: Contract, told: TailEvent) -> Frame:
    job, event = told.job, told.event
    opened = _frame(contract, told)
    blind = _frame(contract, TailEvent(told.position, blind_event(event), blind_job(job)))
    return Frame(
        told.position,
        job.tenant_id,
        job.queue,
        job.job_type,
        job.contract,
        job.id,
        opened,
        opened if blind == opened else blind,
    )


def _frame(contract: Contract, told: TailEvent) -> bytes:
    job = told.job
    data = {
        "job_id": job.id,
        "job_type": job.job_type,
        "contract": job.contract,
        "queue": job.queue,
        "tenant_id": job.tenant_id,
        **event_view(contract, job, told.event),
    }
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    name = "".join(told.event.event.splitlines())
    return f"id: {told.position}\nevent: {name}\ndata: {text}\n\n".encode("utf-8", "backslashreplace")
