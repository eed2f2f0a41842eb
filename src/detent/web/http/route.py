"""What every route does around its handler: authentication, permission, rate and body limits, error responses."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from enum import Enum
from functools import wraps
from typing import Any, TypeVar, cast, get_args, get_origin

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope as AsgiScope

from detent.core.access import WARNED, Power, Scope, least_roles
from detent.core.errors import DetentError, InvalidInput, StoreUnavailable
from detent.core.job import DeadLetter, Job, Micros
from detent.core.schedule import Schedule
from detent.core.times import iso
from detent.engine import Engine
from detent.engine.control.access import Forbidden, Unauthorized
from detent.engine.reads import responses, views
from detent.engine.reads.responses import JsonObject
from detent.engine.schedules.schedules import schedule_view
from detent.engine.submit.prepare import Submitted
from detent.web.openapi.schemas import (
    IDEMPOTENCY_KEY,
    ROLES,
    ReasonRequest,
    is_list_type,
    item_type,
    list_model,
    list_signature,
    model_of,
    operation_id,
    problems_of,
    summary_of,
)

from .authentication import SAFE, Caller
from .idempotency import ViewReference, run_idempotent
from .json_response import JsonResponse
from .limits import is_json, read_body, strict_json
from .problems import problem_of
from .requests import ADDED_HEADERS, REQUEST_ID, path_parameters
from .state import Web

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
H = TypeVar("H", bound=Callable[..., Coroutine[Any, Any, Any]])
T = TypeVar("T")
V = TypeVar("V", bound=Mapping[str, Any])
PREFIX = "/api/v1"
POWER = "x-detent-power"
_LATE_SECONDS = 0.1
_LIST_KEYS = ("items", "next_cursor", "searched_until")
_EMPTY_BODIES = (b"", b"{}", b"null")
_PRECONDITIONS = ("If-Match", "If-Unmodified-Since")
HTML_PAGE = {"description": "HTML page", "content": {"text/html": {}}}
_NOT_KEPT = (None, Power.READ, Power.WORK, Power.ADMIN)
"""Powers of routes that refuse an Idempotency-Key: reading, leases, and what contains or concerns secrets."""
PUBLIC = "public"
"""Declared by routes that need no authentication: liveness, readiness, the OpenAPI document."""


class ApiRequest(Request):
    """A request as its handler gets it: authenticated, with a body that was read and is within the limits.

    `caller` and `engine` are not set on public routes.
    """

    caller: Caller
    engine: Engine
    """Limited to the caller's tenant if its token is bound to one."""
    web: Web
    trace_id: str
    raw: bytes = b""
    fresh_id: str | None = None
    """The id for what this request creates; the same for every request with one Idempotency-Key, None without one."""
    views: dict[int, tuple[Any, ViewReference]]
    """With an Idempotency-Key: the views in the answer by `id()`, and what is stored in their place."""

    async def body(self) -> bytes:
        return self.raw

    async def json(self) -> Any:
        return strict_json(self.raw, self.web.settings.max_depth)

    async def reauthenticate(self) -> None:
        """Raise Unauthorized or Forbidden if the caller's token became invalid, or has other permissions, since the
        request began; for requests that wait."""
        if await self.web.authenticator.authenticate(self, self.method) != self.caller:
            raise Unauthorized("the permissions of the token have changed; send the request again")

    def acting(self, body: ReasonRequest | None = None) -> Scope:
        """The scope of a change: the caller, and the reason in the body."""
        return Scope(self.caller.person, body.reason if body else None, shared_with=self.caller.shared_with)

    @property
    def shows_payloads(self) -> bool:
        """Whether answers show payloads: not to a caller that may not read, whom a key leads to jobs of others."""
        return self.engine.payloads and self.caller.may(Power.READ)

    def job_view(self, job: Job, **more: Any) -> responses.Job:
        """The job as the caller may see it, and further members."""
        view = views.job_view(self.engine.contract(job.contract), job, payloads=self.shows_payloads)
        return self._noted(cast(responses.Job, {**view, **more}), "job", job.id, more)

    def task_view(self, job: Job) -> JsonObject:
        """The job in its contract's own shape."""
        contract = self.engine.contract(job.contract)
        return self._noted(views.job_view(contract, job, payloads=self.shows_payloads)["view"], "task", job.id)

    def dead_letter_view(self, item: DeadLetter) -> responses.DeadLetter:
        return self._noted(views.dead_letter_view(item, payloads=self.engine.payloads), "dead_letter", item.id)

    def schedule_view(self, schedule: Schedule) -> responses.Schedule:
        return self._noted(schedule_view(schedule, payloads=self.engine.payloads), "schedule", schedule.id)

    def submitted_view(self, submitted: Submitted) -> responses.SubmitResponse:
        view: responses.SubmitResponse = {"idempotent_hit": submitted.hit, "job": self.job_view(submitted.job)}
        if submitted.warnings:
            view["warnings"] = list(submitted.warnings)
        if self.engine.contract(submitted.job.contract).keys.task_id_is_key:
            view["task"] = self.task_view(submitted.job)
        return view

    def _noted(self, view: V, kind: str, subject: str, more: dict[str, Any] | None = None) -> V:
        if self.fresh_id is not None:
            self.views[id(view)] = (view, ViewReference(kind, subject, more or {}))
        return view

    async def view_of(self, kind: str, subject: str) -> Any:
        """The view that a stored answer refers to. Raises NotFound if its subject was deleted."""
        if kind == "dead_letter":
            return self.dead_letter_view(await self.engine.dead_letters.get(subject))
        if kind == "schedule":
            return self.schedule_view(await self.engine.schedules.get(subject))
        job = await self.engine.jobs.get(subject)
        return self.task_view(job) if kind == "task" else self.job_view(job)


class ApiRoute(APIRoute):
    """A route that must declare the power it needs, or that it is public."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        declared = (self.openapi_extra or {}).get(POWER)
        if declared is None:
            raise TypeError(f"{self.path} declares no power; create it with Router.route_for")
        self.needs = None if declared == PUBLIC else Power(declared)
        self.takes_body = self.body_field is not None or "requestBody" in (self.openapi_extra or {})
        self.keeps_answer = self.methods == {"POST"} and self.needs not in _NOT_KEPT and "/tokens" not in self.path
        if self.keeps_answer and self.openapi_extra is not None:
            self.openapi_extra.setdefault("parameters", []).append(IDEMPOTENCY_KEY)
        self._query_parameters = _query_parameters(self) if self.include_in_schema else None
        """Name -> whether it may be repeated. None for pages, whose parameters are for their scripts."""

    def matches(self, scope: AsgiScope) -> tuple[Match, AsgiScope]:
        match, child = super().matches(scope)
        if match is not Match.NONE:
            child["path_params"] = path_parameters(scope, child["path_params"])
        return match, child

    def get_route_handler(self) -> Handler:
        handler = super().get_route_handler()

        async def apply_policy(request: Request) -> Response:
            api_request = ApiRequest(request.scope, request.receive)
            api_request.web = request.app.state.web
            api_request.trace_id, api_request.views = request.scope[REQUEST_ID], {}
            try:
                if request.method in SAFE:
                    return await run_watched(api_request.web, self._admit_and_handle(api_request, handler))
                await run_watched(api_request.web, self._admit(api_request))  # nobody else's body is read
                api_request.raw = await read_body(request, api_request.web, anonymous=self.needs is None)
                return await run_watched(api_request.web, self._handle(api_request, handler))
            except ClientDisconnect:
                return Response(status_code=499)
            except Exception as error:
                return problem_of(error, api_request.trace_id)

        return apply_policy

    async def _admit_and_handle(self, request: ApiRequest, handler: Handler) -> Response:
        await self._admit(request)
        return await self._handle(request, handler)

    async def _admit(self, request: ApiRequest) -> None:
        """Authenticate the caller. Raises Unauthorized, Forbidden, or RetryLater if there are too many requests."""
        if self.needs is None:
            return
        web = request.web
        request.caller = caller = await web.authenticator.authenticate(request, request.method)
        name = caller.token_id or (request.client.host if request.client else "")
        try:
            web.rate_limiter.take(name)
        finally:
            request.scope[ADDED_HEADERS].extend(web.rate_limiter.headers(name))
        if not caller.may(self.needs):
            raise Forbidden(_missing_power(caller, self.needs))
        request.engine = (await web.engine()).scoped(tenant=caller.tenant, payloads=caller.payloads, reach=caller.reach)

    def _check_query(self, request: ApiRequest) -> None:
        """Raise InvalidInput for a query parameter that is unknown, or repeated though it has one value."""
        if self._query_parameters is None or not request.scope["query_string"]:
            return
        for name, number in Counter(name for name, _ in request.query_params.multi_items()).items():
            if name not in self._query_parameters:
                known = ", ".join(self._query_parameters) or "none"
                raise InvalidInput(f"query {name[:200]}: unknown parameter; known: {known}", field=name[:200])
            if number > 1 and not self._query_parameters[name]:
                raise InvalidInput(f"query {name}: send it once; it has one value", field=name)

    def _check_headers(self, request: ApiRequest) -> None:
        """Raise InvalidInput for a header that asks for what this route does not do."""
        for name in _PRECONDITIONS:
            if name in request.headers:
                raise InvalidInput(f"this endpoint checks no precondition; leave out {name}", field=name)
        if request.method not in SAFE and not self.keeps_answer and "idempotency-key" in request.headers:
            message = "this endpoint does not repeat answers; leave out Idempotency-Key"
            raise InvalidInput(message, code="IDEMPOTENCY_KEY_INVALID")
        if request.method in SAFE and request.headers.get("content-length", "0") != "0":
            raise InvalidInput("this endpoint takes no request body", code="BODY_UNEXPECTED")

    async def _handle(self, request: ApiRequest, handler: Handler) -> Response:
        self._check_headers(request)
        self._check_query(request)
        if request.raw and not is_json(request.headers.get("content-type")):
            message = "send the body as JSON, with `Content-Type: application/json`"
            raise DetentError(message, code="MEDIA_TYPE_UNSUPPORTED", http_status=415)
        if request.raw and not self.takes_body and request.raw.strip() not in _EMPTY_BODIES:
            raise InvalidInput("this endpoint takes no request body", code="BODY_UNEXPECTED")
        if self.keeps_answer and "idempotency-key" in request.headers:
            return await run_idempotent(request, lambda: handler(request))
        return await handler(request)


def _query_parameters(route: APIRoute) -> dict[str, bool]:
    fields: dict[str, Any] = {}
    for parameter in route.dependant.query_params:
        model: Any = parameter.field_info.annotation
        fields |= model.model_fields
    return {name: _is_sequence(field.annotation) for name, field in fields.items()}


def _is_sequence(annotation: Any) -> bool:
    return get_origin(annotation) is list or any(map(_is_sequence, get_args(annotation)))


async def run_watched(web: Web, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`. Raises StoreUnavailable without waiting for `work` if the store does not respond.

    A slow request is checked again and again: the store is probed, unless another request just finished, or the check
    is late because this process is slow.
    """
    settings, clock = web.settings, asyncio.get_running_loop().time
    task = asyncio.create_task(work)
    seconds_left = settings.request_seconds
    try:
        while True:
            due = clock() + settings.doubt_seconds
            if (await asyncio.wait({task}, timeout=settings.doubt_seconds))[0]:
                break
            seconds_left -= settings.doubt_seconds
            if seconds_left <= 0:
                took = f"the request took longer than {settings.request_seconds:g} seconds and was cancelled"
                raise StoreUnavailable(took)
            if clock() - due <= _LATE_SECONDS <= clock() - web.last_response_at:
                probe = web.probe_store()
                both: set[asyncio.Future[Any]] = {task, probe}
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                if not task.done() and not probe.result():
                    raise StoreUnavailable("the store does not respond")
        result = task.result()
        web.last_response_at = clock()
        return result
    finally:
        if not task.done():
            task.cancel()
            web.track(task)


def _missing_power(caller: Caller, needs: Power) -> str:
    roles = " or ".join(least_roles(needs))
    return f"{caller.person} has the role {caller.role}; this endpoint needs {roles}"


class Router(APIRouter):
    """Routes by method and path, each with the power it needs and the responses it can give."""

    def __init__(self, prefix: str = PREFIX, **options: Any) -> None:
        super().__init__(prefix=prefix, route_class=ApiRoute, **options)

    def route_for(
        self,
        method: str,
        path: str,
        needs: Power | None,
        *,
        status: int = 200,
        shared: str | None = None,
        responses: dict[int, Any] | None = None,
        extra: dict[str, Any] | None = None,
        name: str | None = None,
        tags: list[str | Enum] | None = None,
    ) -> Callable[[H], H]:
        """Declare a route. Its answer, a JSON object, is what the handler returns; the return type documents it.

        A handler of a list returns list[...], or Paged[...] with the cursor of the next page; the answer is
        {"items": [...], "next_cursor": ...}. A handler of a search returns Searched[...].

        needs: the power the caller must have; None makes the route public.
        status: of the answer; a handler that returns a Response chooses its own.
        shared: what the route is about, if tokens that are limited to a tenant, queues or types have no access to it.
        responses: status code -> answer or OpenAPI response object, for handlers that return a Response.
        extra: members to add to the OpenAPI operation.
        """
        declared = {POWER: PUBLIC if needs is None else str(needs), **(extra or {})}
        declared[ROLES] = [] if needs is None else least_roles(needs)
        if needs is not None:
            declared.setdefault("security", [{"bearer": []}])

        def add(handler: H) -> H:
            returned = handler.__annotations__["return"]
            answers = responses or {status: {"model": list_model(returned)} if is_list_type(returned) else returned}
            item = item_type(returned if is_list_type(returned) else answers.get(200) if method == "GET" else None)
            self.api_route(
                path,
                methods=[method],
                response_model=None,
                status_code=min(answers),
                responses={**problems_of(method), **_documented(answers)},
                openapi_extra=declared,
                operation_id=operation_id(handler.__name__),
                summary=summary_of(handler),
                name=name,
                tags=tags,
            )(_endpoint(handler, status, shared, item, is_public=needs is None))
            return handler

        return add


def _endpoint(
    handler: Callable[..., Coroutine[Any, Any, Any]], status: int, shared: str | None, item: Any, *, is_public: bool
) -> Callable[..., Any]:
    """The handler with what `Router.route_for` adds to it: the check of the caller's limits, the choice of the fields
    of items, and the response. item: the type of the items, None if the answer has no list."""
    returned = handler.__annotations__["return"]
    is_list = is_list_type(returned)
    takes_query = "query" in handler.__annotations__

    @wraps(handler)
    async def endpoint(**arguments: Any) -> Response:
        request: Any = arguments.get("request")  # a public route may take none
        if shared is not None:
            request.caller.require_all_tenants(shared)
            request.caller.require_all_queues(shared)
        fields = arguments["query"].fields if item is not None else None
        if item is not None and not takes_query:
            del arguments["query"]
        answer = await handler(**arguments)
        if is_list:
            answer = dict(zip(_LIST_KEYS, answer if isinstance(answer, tuple) else (answer, None), strict=False))
        if fields is not None:
            answer = {**answer, "items": _chosen(answer["items"], fields)}
        response = answer if isinstance(answer, Response) else json_response(answer, status)
        if not is_public and (at := expiry_to_announce(request.caller, request.engine.store.now())):
            response.headers["Detent-Token-Expires"] = at
        return response

    if item is not None:
        endpoint.__signature__ = list_signature(handler, item)  # type: ignore[attr-defined]
    return endpoint


def _chosen(items: Any, fields: list[str]) -> list[dict[str, Any]]:
    return [{name: item[name] for name in fields if name in item} for item in items]


def _documented(answers: dict[int, Any]) -> dict[int | str, dict[str, Any]]:
    """status code -> OpenAPI response object"""
    return {
        code: answer if isinstance(answer, dict) else {"model": model_of(answer)} for code, answer in answers.items()
    }


def expiry_to_announce(caller: Caller, now: Micros) -> str | None:
    """When the caller's token expires, if that is within 14 days."""
    return iso(caller.expires_at) if caller.expires_at is not None and caller.expires_at - now <= WARNED else None


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return JsonResponse(value, status, headers)
