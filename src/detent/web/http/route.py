"""What every route does around its handler: authentication, permission, rate and body limits, error responses."""

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
from detent.web.openapi.schemas import PROBLEMS, model_of

from .authentication import SAFE, Caller
from .idempotency import run_idempotent
from .limits import WrongMedia, is_json, read_body, strict_json
from .problems import new_trace, problem_of
from .state import Web

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
PREFIX = "/api/v1"
POWER = "x-detent-power"
_LATE_SECONDS = 0.1
_EMPTY_BODIES = (b"", b"{}", b"null")
PUBLIC = "public"
"""Declared by routes that need no authentication: liveness, readiness, the OpenAPI document."""


class ApiRequest(Request):
    """A request as its handler gets it: authenticated, with a body that was read and is within the limits.

    `caller` is not set on public routes.
    """

    caller: Caller
    web: Web
    trace_id: str
    raw: bytes = b""
    fresh_id: str | None = None
    """The id for what this request creates; the same for every request with one Idempotency-Key, None without one."""

    async def body(self) -> bytes:
        return self.raw

    async def json(self) -> Any:
        return strict_json(self.raw, self.web.settings.max_depth)

    async def engine(self) -> Engine:
        """The engine, limited to the caller's tenant if its token is bound to one."""
        return (await self.web.engine()).scoped(tenant=self.caller.tenant)


class ApiRoute(APIRoute):
    """A route that must declare the power it needs, or that it is public."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        declared = (self.openapi_extra or {}).get(POWER)
        if declared is None:
            raise TypeError(f"{self.path} declares no power; create it with Router.route_for(..., needs=)")
        self.needs = None if declared == PUBLIC else Power(declared)
        self.takes_body = self.body_field is not None or "requestBody" in (self.openapi_extra or {})

    def get_route_handler(self) -> Handler:
        handler = super().get_route_handler()

        async def apply_policy(request: Request) -> Response:
            api_request = ApiRequest(request.scope, request.receive)
            api_request.web = request.app.state.web
            api_request.trace_id = new_trace()
            try:
                return await self._respond(api_request, handler)
            except ClientDisconnect:
                return Response(status_code=499)
            except Exception as error:
                return problem_of(error, api_request.trace_id)

        return apply_policy

    async def _respond(self, request: ApiRequest, handler: Handler) -> Response:
        web = request.web
        if request.method not in SAFE:
            request.raw = await read_body(request, web.settings.max_body, web.settings.body_seconds)
        return await run_watched(web, self._handle(request, handler))

    async def _handle(self, request: ApiRequest, handler: Handler) -> Response:
        web, method = request.web, request.method
        if self.needs is not None:
            request.caller = caller = await web.authenticator.authenticate(request, method)
            if not caller.may(self.needs):
                raise Forbidden(_missing_power(caller, self.needs))
            web.rate_limiter.take(caller.token_id or _address(request))
        if request.raw and not is_json(request.headers.get("content-type")):
            raise WrongMedia("send the body as JSON, with `Content-Type: application/json`")
        if request.raw and not self.takes_body and request.raw.strip() not in _EMPTY_BODIES:
            raise InvalidInput("this endpoint takes no request body", code="BODY_UNEXPECTED")
        if method == "POST" and self.needs is not None and "idempotency-key" in request.headers:
            return await run_idempotent(request, lambda: handler(request))
        return await handler(request)


async def run_watched(web: Web, work: Coroutine[Any, Any, Response]) -> Response:
    """The response of `work`. Raises StoreUnavailable without waiting for `work` if the store does not respond."""
    task = asyncio.create_task(work)
    watchdog = Watchdog(web, task)
    try:
        return await watchdog.response
    finally:
        watchdog.stop()
        if not task.done():
            task.cancel()
            web.track(task)


class Watchdog:
    """Checks on a slow request: fails it if the store does not respond, lets it continue if the store is only slow."""

    def __init__(self, web: Web, task: "asyncio.Task[Response]") -> None:
        self._web = web
        self._loop = asyncio.get_running_loop()
        self.response: asyncio.Future[Response] = self._loop.create_future()
        self._seconds_left = web.settings.request_seconds
        self._probe: asyncio.Task[None] | None = None
        self._start_timer()
        task.add_done_callback(self._on_done)

    def _start_timer(self) -> None:
        self._due = self._loop.time() + self._web.settings.doubt_seconds
        self._timer = self._loop.call_at(self._due, self._on_timer)

    def stop(self) -> None:
        self._timer.cancel()
        if self._probe is not None:
            self._probe.cancel()

    def _on_done(self, task: "asyncio.Task[Response]") -> None:
        error = None if task.cancelled() else task.exception()
        if self.response.done():
            return
        if task.cancelled():
            self.response.cancel()
        elif error is not None:
            self.response.set_exception(error)
        else:
            self._web.last_response_at = self._loop.time()
            self.response.set_result(task.result())

    def _on_timer(self) -> None:
        """Probe the store, unless another request just finished, or the timer is late because this process is slow."""
        now = self._loop.time()
        self._seconds_left -= self._web.settings.doubt_seconds
        if self._seconds_left > 0 and (
            now - self._due > _LATE_SECONDS or now - self._web.last_response_at < _LATE_SECONDS
        ):
            self._start_timer()
        else:
            self._probe = self._loop.create_task(self._check_store())

    async def _check_store(self) -> None:
        if self._seconds_left <= 0:
            self._fail(f"the request took longer than {self._web.settings.request_seconds:g} seconds and was cancelled")
        elif await self._web.store_responds():
            self._start_timer()
        else:
            self._fail("the store does not respond")

    def _fail(self, message: str) -> None:
        if not self.response.done():
            self.response.set_exception(StoreUnavailable(message))


def _missing_power(caller: Caller, needs: Power) -> str:
    roles = " or ".join(str(role) for role, powers in POWERS.items() if needs in powers)
    return f"{caller.person} has the role {caller.role}; this endpoint needs {roles}"


def _address(request: ApiRequest) -> str:
    return request.client.host if request.client else ""


class Router(APIRouter):
    """Routes by method and path, each with the power it needs and the responses it can give."""

    def __init__(self, prefix: str = PREFIX, **options: Any) -> None:
        super().__init__(prefix=prefix, route_class=ApiRoute, **options)

    def route_for(
        self,
        method: str,
        path: str,
        *,
        needs: Power | None,
        responses: dict[int, Any],
        extra: dict[str, Any] | None = None,
        **options: Any,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Declare a route.

        needs: the power the caller must have; None makes the route public.
        responses: status code -> answer, or a whole OpenAPI response object.
        extra: members to add to the OpenAPI operation.
        """
        documented: dict[int | str, dict[str, Any]] = {
            status: body if isinstance(body, dict) else {"model": model_of(body)} for status, body in responses.items()
        }
        declared = {POWER: PUBLIC if needs is None else str(needs), **(extra or {})}
        if needs is not None:
            declared.setdefault("security", [{"bearer": []}])
        return self.api_route(
            path,
            methods=[method],
            response_model=None,
            status_code=min(responses),
            responses={**PROBLEMS, **documented},
            openapi_extra=declared,
            **options,
        )


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON response. The value is not validated again against the response model."""
    return Response(_encode(value).encode("utf-8", "backslashreplace"), status, headers, "application/json")


_encode = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode
