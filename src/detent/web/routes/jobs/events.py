"""GET /events/stream: server-sent events for every committed status change after a position, each exactly once, and for
the progress of running jobs."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from functools import partial
from typing import Annotated, Literal

from fastapi import Header, Query
from pydantic import Field
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from detent.core.access import Power
from detent.core.errors import DetentError, InvalidInput
from detent.engine.control.access import Forbidden, Unauthorized
from detent.ports.tail import position_within
from detent.system.tasks import cancel_and_wait
from detent.web.http.problems import RetryLater, problem_of
from detent.web.http.requests import IS_HEAD, disconnected
from detent.web.http.route import ApiRequest, Router
from detent.web.live.event_stream import FellBehind
from detent.web.live.frames import Frame, encode_envelope, encode_event
from detent.web.openapi import schemas

router = Router(tags=["events"])
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_END_SECONDS = 1.0
POSITION = r"^[0-9]{1,18}(\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.[0-9]{1,10})?$"


_STREAM = {
    "description": "Server-sent events without end: id is the position to resume at, event the name, data a JSON "
    "object with job_id, job_type, contract, queue, tenant_id and the fields of the schema Event. Progress of running "
    "jobs is sent as job.progress, without an id and with the fields of the schema ProgressReport.",
    "content": {
        "text/event-stream": {
            "schema": {"type": "string"},
            "example": 'id: 4711\nevent: job.claimed\ndata: {"job_id":"01a1dd37-…","seq":2}\n\n'
            'event: job.progress\ndata: {"job_id":"01a1dd37-…","execution_no":1,"share":0.4,"message":"4 of 10"}\n\n',
        }
    },
}


class EventStreamFilter(schemas.QueryParameters):
    """Which events to send: those that have one of the given values in every given field; default: all that the token
    may see."""

    after: str | None = Field(
        None, pattern=POSITION, description="Start after the event with this id; 0 starts with the first event."
    )
    job_id: schemas.Several[schemas.Name] | None = None
    queue: schemas.Several[schemas.Name] | None = None
    job_type: schemas.Several[schemas.Name] | None = None
    contract: schemas.Several[schemas.Name] | None = None
    tenant_id: schemas.Several[schemas.Name] | None = None
    tenant: schemas.Several[schemas.Name] | None = Field(None, description="Another name of tenant_id.")
    progress: bool = Field(
        True, description="Send job.progress when running jobs report progress; only with format=event."
    )
    format: Literal["event", "envelope"] = Field(
        "event", description="envelope: each event under the name and with the body that its contract publishes."
    )


@router.route_for(
    "GET",
    "/events/stream",
    Power.READ,
    responses={200: _STREAM},
)
async def stream_events(
    request: ApiRequest,
    query: Annotated[EventStreamFilter, Query()],
    last_event_id: Annotated[str | None, Header(pattern=POSITION)] = None,
) -> Response:
    """Send all status changes, and the progress of running jobs at most once a second. A client that reconnects with
    Last-Event-ID gets every later change; progress is not repeated. 422 POSITION_INVALID for an id after the end of the
    log, as in a database that was restored: start again without it."""
    if query.format == "envelope" and query.progress and "progress" in query.model_fields_set:
        raise InvalidInput("no contract publishes progress; leave out progress, or format", field="progress")
    caller = request.caller
    after = last_event_id or query.after
    start = None
    if after is not None:
        start = position_within(after, await request.engine.store.read(lambda tx: tx.log.tail_end()))
    tenants = {caller.tenant_for(name) for name in [*(query.tenant_id or ()), *(query.tenant or ())] or [None]} - {None}
    fields = query.model_dump(exclude={"after", "tenant", "progress", "format"}) | {"tenant_id": tenants}
    required = [(name, frozenset(values)) for name, values in fields.items() if values]
    includes = caller.reach.includes

    def matches(frame: Frame) -> bool:
        return includes(frame.queue, frame.job_type) and all(
            getattr(frame, name) in values for name, values in required
        )

    encode = encode_envelope if query.format == "envelope" else encode_event
    chunks = request.web.event_tail.follow(
        start,
        matches,
        partial(encode, payloads=caller.payloads),
        with_progress=query.progress and query.format == "event",
        heartbeat_seconds=request.web.settings.beat_seconds,
    )
    return EventStreamResponse(request, chunks)


class EventStreamResponse(Response):
    """Sends events as fast as the client reads.

    Ends if the client stops reading or disconnects, if its token becomes invalid, or if the server stops.
    """

    media_type = "text/event-stream"

    def __init__(self, request: ApiRequest, chunks: AsyncGenerator[bytes, None]) -> None:
        super().__init__()
        self._request = request
        self._settings = request.web.settings
        self._stopping = request.web.stopping
        self._chunks = chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count and send the stream. The count is taken here, because nothing runs between the check and the count."""
        if scope[IS_HEAD]:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            return await send({"type": "http.response.body", "body": b""})
        try:
            with self._request.web.stream_slot(self._request.caller):
                await self._run(receive, send)
        except RetryLater as error:
            await problem_of(error, self._request.trace_id)(scope, receive, send)

    async def _run(self, receive: Receive, send: Send) -> None:
        writing = asyncio.create_task(self._write(send))
        ends = (disconnected(receive), self._stopping.wait(), self._token_invalid())
        tasks = {writing, *map(asyncio.ensure_future, ends)}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_and_wait(tasks)
        if writing.cancelled():
            await self._end(send)

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        try:
            async for chunk in self._chunks:
                if chunk:
                    async with asyncio.timeout(self._settings.send_seconds):
                        await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except (FellBehind, TimeoutError, DetentError):
            pass  # the client reconnects with the last id it saw
        finally:
            await self._chunks.aclose()
        await self._end(send)

    async def _token_invalid(self) -> None:
        """Return when the caller's token is no longer valid or has other permissions; a reconnect is then refused."""
        request = self._request
        while True:
            await asyncio.sleep(self._settings.token_check_seconds)
            try:
                await request.reauthenticate()
            except (Unauthorized, Forbidden):
                return
            except DetentError:
                continue  # without the store nothing is known about the token

    async def _end(self, send: Send) -> None:
        """End the response; a client that does not read is not waited for again."""
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
