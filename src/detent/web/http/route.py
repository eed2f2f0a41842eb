"""The door every route has: who asks, may they, how often, how much; then the route; and an answer, whatever comes."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from detent.core.access import POWERS, Power
from detent.core.errors import InvalidInput, StoreUnavailable
from detent.engine import Engine
from detent.engine.control.access import Forbidden
from detent.web.openapi.schemas import PROBLEMS

from .authentication import SAFE, Caller
from .idempotency import replayed
from .limits import WrongMedia, is_json, read_body, strict_json
from .problems import new_trace, problem_of
from .state import Web

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
PREFIX = "/api/v1"
POWER = "x-detent-power"
_LATE_SECONDS = 0.1
_NOTHING = (b"", b"{}", b"null")
PUBLIC = "public"
"""What a route declares that asks nobody's name: liveness, readiness, the document itself."""


class ApiRequest(Request):
    """A request that has passed the door: its caller is known, its body is read and within the limits."""

    caller: Caller
    web: Web
    trace_id: str
    raw: bytes = b""
    fresh_id: str | None = None
    """An id for whatever this request makes, the same if it is asked again under its idempotency key."""

    async def body(self) -> bytes:
        return self.raw

    async def json(self) -> Any:
        return strict_json(self.raw, self.web.settings.max_depth)

    async def engine(self) -> Engine:
        return await self.web.engine()


class ApiRoute(APIRoute):
    """A route that declares what power it needs; one that does not cannot be made."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        declared = (self.openapi_extra or {}).get(POWER)
        if declared is None:
            raise TypeError(f"{self.path} declares no power; make it with Router.route(..., needs=)")
        self.needs = None if declared == PUBLIC else Power(declared)
        self.takes_body = self.body_field is not None or "requestBody" in (self.openapi_extra or {})

    def get_route_handler(self) -> Handler:
        inner = super().get_route_handler()

        async def apply_policy(request: Request) -> Response:
            asked = ApiRequest(request.scope, request.receive)
            asked.web = request.app.state.web
            asked.trace_id = new_trace()
            try:
                return await self._through(asked, inner)
            except ClientDisconnect:
                return Response(status_code=499)
            except Exception as error:
                return problem_of(error, asked.trace_id)

        return apply_policy

    async def _through(self, asked: ApiRequest, inner: Handler) -> Response:
        web, method = asked.web, asked.method
        if method not in SAFE:
            await _take_body(asked)
        return await answered(web, self._inside(asked, inner))

    async def _inside(self, asked: ApiRequest, inner: Handler) -> Response:
        web, method = asked.web, asked.method
        if self.needs is not None:
            asked.caller = caller = await web.people.caller(asked, method)
            if not caller.may(self.needs):
                raise Forbidden(_reach(caller, self.needs))
            web.buckets.take(caller.token_id or _address(asked))
        if asked.raw and not is_json(asked.headers.get("content-type")):
            raise WrongMedia("send the body as JSON, with `Content-Type: application/json`")
        if asked.raw and not self.takes_body and asked.raw.strip() not in _NOTHING:
            raise InvalidInput("nothing is asked for here that a body could say; send none", code="BODY_UNEXPECTED")
        if method == "POST" and self.needs is not None and "idempotency-key" in asked.headers:
            return await replayed(asked, lambda: inner(asked))
        return await inner(asked)


async def _take_body(asked: ApiRequest) -> None:
    settings = asked.web.settings
    asked.raw = await read_body(asked, settings.max_body, settings.body_seconds)


async def answered(web: Web, work: Coroutine[Any, Any, Response]) -> Response:
    """The work's answer; or, if the store is found to be gone meanwhile, that, without waiting for the work to end."""
    task = asyncio.create_task(work)
    watchdog = Watchdog(web, task)
    try:
        return await watchdog.answer
    finally:
        watchdog.stop()
        if not task.done():
            task.cancel()
            web.keep(task)


class Watchdog:
    """Looks up when a request takes long: if the store is gone, the request ends; if it is only slow, it goes on."""

    def __init__(self, web: Web, task: "asyncio.Task[Response]") -> None:
        self._web = web
        self._loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[Response] = self._loop.create_future()
        self._left = web.settings.request_seconds
        self._looking: asyncio.Task[None] | None = None
        self._start()
        task.add_done_callback(self._done)

    def _start(self) -> None:
        self._due = self._loop.time() + self._web.settings.doubt_seconds
        self._timer = self._loop.call_at(self._due, self._doubt)

    def stop(self) -> None:
        self._timer.cancel()
        if self._looking is not None:
            self._looking.cancel()

    def _done(self, task: "asyncio.Task[Response]") -> None:
        problem = None if task.cancelled() else task.exception()
        if self.answer.done():
            return
        if task.cancelled():
            self.answer.cancel()
        elif problem is not None:
            self.answer.set_exception(problem)
        else:
            self._web.alive_at = self._loop.time()
            self.answer.set_result(task.result())

    def _doubt(self) -> None:
        """While others are answered the store is there; and a late alarm says that we ourselves are slow."""
        now = self._loop.time()
        self._left -= self._web.settings.doubt_seconds
        if self._left > 0 and (now - self._due > _LATE_SECONDS or now - self._web.alive_at < _LATE_SECONDS):
            self._start()
        else:
            self._looking = self._loop.create_task(self._look())

    async def _look(self) -> None:
        if self._left <= 0:
            self._give_up("the request took too long and was given up")
        elif await self._web.is_there():
            self._start()
        else:
            self._give_up("the store does not answer")

    def _give_up(self, why: str) -> None:
        if not self.answer.done():
            self.answer.set_exception(StoreUnavailable(why))


def _reach(caller: Caller, needs: Power) -> str:
    roles = " or ".join(str(role) for role, powers in POWERS.items() if needs in powers)
    return f"{caller.person} is {caller.role}; this needs {roles}"


def _address(asked: ApiRequest) -> str:
    return asked.client.host if asked.client else ""


class Router(APIRouter):
    """Routes by method and path, each with the power it needs and the answers it gives."""

    def __init__(self, prefix: str = PREFIX, **options: Any) -> None:
        super().__init__(prefix=prefix, route_class=ApiRoute, **options)

    def route_for(
        self,
        method: str,
        path: str,
        *,
        needs: Power | None,
        answers: dict[int, Any],
        extra: dict[str, Any] | None = None,
        **options: Any,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """answers: status -> model of the body, or a whole OpenAPI response. needs None: open to everybody."""
        told: dict[int | str, dict[str, Any]] = {
            status: one if isinstance(one, dict) else {"model": one} for status, one in answers.items()
        }
        declared = {POWER: PUBLIC if needs is None else str(needs), **(extra or {})}
        if needs is not None:
            declared.setdefault("security", [{"bearer": []}])
        return self.api_route(
            path,
            methods=[method],
            response_model=None,
            status_code=min(answers),
            responses={**told, **{status: one for status, one in PROBLEMS.items() if status not in told}},
            openapi_extra=declared,
            **options,
        )


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON as it is, without a second look at its shape."""
    return Response(_encode(value).encode("utf-8", "backslashreplace"), status, headers, "application/json")


_encode = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode
