"""GET /events/stream: every change of status as it is committed, from a position on, none lost and none twice."""

import asyncio
from contextlib import suppress
from typing import Annotated

from fastapi import Header, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from detent.core.access import Power
from detent.core.errors import DetentError
from detent.engine.control.access import Forbidden, Unauthorized
from detent.ports.tail import Position, position_from
from detent.web.http.route import ApiRequest, Router
from detent.web.live.event_stream import Choice, FellBehind, Frame, Stream
from detent.web.openapi import schemas

router = Router(tags=["events"])
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_POSITION = r"^[0-9]{1,18}(\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.[0-9]{1,9})?$"


class TooManyStreams(DetentError):
    code = "STREAMS_FULL"
    http_status = 503
    retryable = True


class Wanted(BaseModel):
    """Which events; without a choice all that the token may see."""

    model_config = ConfigDict(extra="forbid")
    after: str | None = Field(None, pattern=_POSITION, description="Start behind this id; 0 is the beginning.")
    job_id: str | None = Field(None, min_length=1, max_length=200, pattern="^[!-~]+$")
    queue: schemas.Name | None = None
    job_type: schemas.Name | None = None
    contract: schemas.Name | None = None
    tenant: schemas.Name | None = None


@router.route_for(
    "GET",
    "/events/stream",
    needs=Power.READ,
    answers={200: {"description": "server-sent events", "content": {"text/event-stream": {}}}},
    include_in_schema=False,  # it has no end, which the document has no word for; docs/rest.md describes it
)
async def stream(
    asked: ApiRequest,
    wanted: Annotated[Wanted, Query()],
    last_event_id: Annotated[str | None, Header(pattern=_POSITION)] = None,
) -> Response:
    """Follow all changes of status. Come back with Last-Event-ID and nothing is missed."""
    web, caller = asked.web, asked.caller
    if web.stream.listeners >= web.settings.max_streams:
        raise TooManyStreams("as many clients follow the stream as this server takes; come back later")
    said = last_event_id or wanted.after
    start = None if said is None else position_from(said)
    chosen = {
        name: value
        for name, value in (
            ("tenant_id", caller.tenant_for(wanted.tenant)),
            ("queue", wanted.queue),
            ("job_type", wanted.job_type),
            ("contract", wanted.contract),
            ("job_id", wanted.job_id),
        )
        if value is not None
    }
    return EventStream(asked, web.stream, start, _choice(chosen))


def _choice(chosen: dict[str, str]) -> Choice:
    tests = list(chosen.items())

    def choose(frame: Frame) -> bool:
        return all(getattr(frame, name) == value for name, value in tests)

    return choose


class EventStream(Response):
    """Writes as fast as its client reads, and lets go of one that does not read."""

    media_type = "text/event-stream"

    def __init__(self, asked: ApiRequest, stream: Stream, start: Position | None, choose: Choice) -> None:
        super().__init__()
        self._asked = asked
        self._settings = asked.web.settings
        self._leaving = asked.web.leaving
        self._follow = stream.follow(start, choose, payloads=asked.caller.payloads, beat=self._settings.beat_seconds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writing = asyncio.create_task(self._write(send))
        ends = (_left(receive), self._leaving.wait(), self._refused())
        others = {asyncio.create_task(end) for end in ends}
        try:
            await asyncio.wait({writing, *others}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (writing, *others):
                task.cancel()
            await asyncio.gather(writing, *others, return_exceptions=True)
        if writing.cancelled():
            with suppress(OSError):
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        try:
            async for chunk in self._follow:
                if chunk:
                    await self._send(send, chunk)
        except (FellBehind, TimeoutError, DetentError):
            pass  # the client comes back with the last id it saw
        finally:
            await self._follow.aclose()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _refused(self) -> None:
        """Until the caller's token no longer stands; coming back they are told so."""
        asked = self._asked
        while True:
            await asyncio.sleep(self._settings.beat_seconds)
            try:
                if await asked.web.people.caller(asked, "GET") != asked.caller:
                    return
            except (Unauthorized, Forbidden):
                return
            except DetentError:
                continue  # a store that does not answer now says nothing about the token

    async def _send(self, send: Send, chunk: bytes) -> None:
        async with asyncio.timeout(self._settings.send_seconds):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
