"""The Idempotency-Key header: a request repeated under its key gets the same answer and changes nothing again.

Stored is the answer with ids in place of jobs, schedules and dead letters. A repeated request shows them as they are
now, as far as the caller may see them. So the table contains no payloads, results or error messages.
"""

import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from fastapi.exceptions import RequestValidationError
from starlette.responses import Response

from detent.core.errors import DetentError, InvalidInput, NotFound
from detent.core.times import SECOND
from detent.ports.access import StoredAnswer
from detent.ports.store import Store
from detent.ports.tx import Tx

from .json_response import JsonResponse
from .problems import RetryLater, problem_of

if TYPE_CHECKING:
    from .route import ApiRequest
    from .settings import Settings

_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_DROP_AT_ONCE = 20
_TRIM_EVERY = 64
_VIEW = "$view"
_MAX_COUNTED = 10_000
_reserved = Counter[str]()
"""Owner -> reserved keys since its answers were trimmed last."""


class ViewReference(NamedTuple):
    """What stands for a view in a stored answer. more: members that the answer has in addition to the view."""

    kind: str
    id: str
    more: dict[str, Any]


async def run_idempotent(request: "ApiRequest", run: Callable[[], Awaitable[Response]]) -> Response:
    """Reserve the key, run the request, store its answer; or rebuild the answer that is stored under the key.

    Retryable failures (429, 5xx) are not stored. The retry gets the same `fresh_id`, so it cannot create a second job.
    """
    key = ", ".join(request.headers.getlist("idempotency-key"))  # two of them are no valid key
    if not _KEY.fullmatch(key):
        raise InvalidInput("Idempotency-Key must be 1 to 255 visible ASCII characters", code="IDEMPOTENCY_KEY_INVALID")
    store, settings, owner = request.engine.store, request.web.settings, request.caller.idempotency_owner
    digest, fresh_id = _digest(request), request.engine.ids.job()
    request.fresh_id, stored = await store.write(lambda tx: _reserve(tx, owner, key, digest, fresh_id, settings))
    if stored is not None:
        return await _rebuild(request, stored)
    kept = False
    try:
        response = await _response_of(run, request.trace_id)
        if response.status_code < 500 and response.status_code != 429 and isinstance(response, JsonResponse):
            until = store.now() + int(settings.answers_kept_seconds * SECOND)
            answer = json.dumps(_without_views(response.value, request.views), ensure_ascii=False, default=str)
            headers = {name: value for name, value in response.headers.items() if name != "content-length"}
            row = (response.status_code, json.dumps(headers), answer, until)
            await store.write(lambda tx: tx.answers.keep_answer(owner, key, *row))
            kept = True
        return response
    finally:
        if not kept:  # not awaited: the store may be unreachable, and the caller must get the error now
            request.web.start(_release(store, owner, key), "release-key")


def _without_views(value: Any, views: dict[int, tuple[Any, ViewReference]]) -> Any:
    if id(value) in views:
        return {_VIEW: views[id(value)][1]}
    if isinstance(value, dict):
        return {name: _without_views(inner, views) for name, inner in value.items()}
    return [_without_views(inner, views) for inner in value] if isinstance(value, list) else value


async def _rebuild(request: "ApiRequest", stored: StoredAnswer) -> Response:
    """The stored answer with its views as they are now. 410 if one of them was deleted since."""

    async def fill(value: Any) -> Any:
        if isinstance(value, dict):
            if _VIEW in value:
                kind, subject, more = value[_VIEW]
                return {**await request.view_of(kind, subject), **more}
            return {name: await fill(inner) for name, inner in value.items()}
        return [await fill(inner) for inner in value] if isinstance(value, list) else value

    try:
        value = await fill(json.loads(stored.answer))
    except NotFound as error:
        message = f"the first request with this Idempotency-Key succeeded, but its result was deleted: {error.message}"
        raise DetentError(message, code="ANSWER_GONE", http_status=410) from None
    headers = {**json.loads(stored.headers), "Idempotency-Replayed": "true"}
    return JsonResponse(value, stored.status or 200, headers, headers["content-type"])


async def _response_of(run: Callable[[], Awaitable[Response]], trace_id: str) -> Response:
    """The response to store. An error that is not retryable becomes a response; a retryable one is raised."""
    try:
        return await run()
    except (DetentError, RequestValidationError) as error:
        if isinstance(error, DetentError) and error.retryable:
            raise
        return problem_of(error, trace_id)


async def _release(store: Store, owner: str, key: str) -> None:
    """Free the key for a retry. Its row keeps the fresh id, so a write whose commit is in doubt is not repeated."""
    await store.write(lambda tx: tx.answers.release_answer(owner, key))


async def _reserve(
    tx: Tx, owner: str, key: str, digest: str, fresh_id: str, settings: "Settings"
) -> tuple[str, StoredAnswer | None]:
    """(the id for what the request creates, the stored answer or None)."""
    until = tx.now + int(settings.answers_kept_seconds * SECOND)
    await tx.answers.drop_old_answers(_DROP_AT_ONCE)
    _reserved[owner] += 1
    if _reserved[owner] >= _TRIM_EVERY or len(_reserved) > _MAX_COUNTED:
        del _reserved[owner]
        await tx.answers.trim_answers(owner, settings.answers_per_caller)
    if await tx.answers.reserve_answer(owner, key, digest, fresh_id, until):
        return fresh_id, None
    first = await tx.answers.answer(owner, key)
    assert first is not None, "the key is reserved"
    if first.digest != digest:
        message = "this Idempotency-Key was sent with another request; use a new key for a new request"
        raise DetentError(message, code="IDEMPOTENCY_KEY_REUSED", http_status=422)
    if first.status is not None:
        return first.fresh_id, first
    abandoned = tx.now - first.made_at > settings.answer_lost_seconds * SECOND
    if abandoned and await tx.answers.take_over_answer(owner, key, first.made_at, until):
        return first.fresh_id, None
    message = "the first request with this Idempotency-Key has not finished; retry later"
    raise RetryLater(message, code="IDEMPOTENCY_KEY_IN_FLIGHT", http_status=409)


def _digest(request: "ApiRequest") -> str:
    digest = blake2b(digest_size=18)
    for part in (request.method.encode(), request.url.path.encode(), request.url.query.encode(), request.raw):
        digest.update(len(part).to_bytes(8) + part)
    return digest.hexdigest()
