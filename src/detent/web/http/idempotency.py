"""The Idempotency-Key header: a request asked again under its key gets the answer it got, and does nothing twice."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from fastapi.exceptions import RequestValidationError
from starlette.responses import Response

from detent.core.errors import DetentError, InvalidInput
from detent.core.times import SECOND

from .problems import problem_of

if TYPE_CHECKING:
    from .route import ApiRequest

_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_TIDY = 20


class KeyInUse(DetentError):
    """The first request under this key is still under way."""

    code = "IDEMPOTENCY_KEY_IN_FLIGHT"
    http_status = 409
    retryable = True


class KeyReused(DetentError):
    """The key belongs to another request."""

    code = "IDEMPOTENCY_KEY_REUSED"
    http_status = 422


async def replayed(asked: "ApiRequest", run: Callable[[], Awaitable[Response]]) -> Response:
    """Reserve the key, run, keep the answer. What may be tried again is not kept, but makes nothing a second time."""
    key = asked.headers["idempotency-key"]
    if not _KEY.fullmatch(key):
        raise InvalidInput("an Idempotency-Key is 1 to 255 visible ASCII characters", code="IDEMPOTENCY_KEY_INVALID")
    engine = await asked.engine()
    store, settings, asker = engine.store, asked.web.settings, asked.caller.asker
    digest, fresh = _digest(asked), engine.ids.job()
    asked.fresh_id, earlier = await store.write(lambda tx: _reserve(tx, asker, key, digest, fresh, settings))
    if earlier is not None:
        status, media, body = earlier
        return Response(body, status, {"Idempotency-Replayed": "true"}, media)
    kept = False
    try:
        answer = await _told(run, asked.trace_id)
        if answer.status_code < 500 and answer.status_code != 429:
            until = store.now() + int(settings.answers_kept_seconds * SECOND)
            told = (answer.status_code, answer.media_type or "application/json", bytes(answer.body), until)
            await store.write(lambda tx: tx.keep_answer(asker, key, *told))
            kept = True
        return answer
    finally:
        if not kept:  # not awaited: the store may be gone, and the caller is to be told now
            asked.web.keep(asyncio.create_task(_let_go(store, asker, key)))


async def _told(run: Callable[[], Awaitable[Response]], trace_id: str) -> Response:
    """A refusal is an answer too, unless it is one that passes by itself."""
    try:
        return await run()
    except DetentError as error:
        if error.retryable:
            raise
        return problem_of(error, trace_id)
    except RequestValidationError as error:
        return problem_of(error, trace_id)


async def _let_go(store: Any, asker: str, key: str) -> None:
    """The next one who asks goes on with the same fresh id, so that an act in doubt is not done twice."""
    with suppress(DetentError):
        await store.write(lambda tx: tx.release_answer(asker, key))


async def _reserve(
    tx: Any, asker: str, key: str, digest: str, fresh: str, settings: Any
) -> tuple[str, tuple[int, str, bytes] | None]:
    """(the id for what is made, the answer that was given already)."""
    until = tx.now + int(settings.answers_kept_seconds * SECOND)
    await tx.drop_old_answers(_TIDY)
    if await tx.reserve_answer(asker, key, digest, fresh, until):
        return fresh, None
    its_digest, its_id, status, media, body, made_at = await tx.answer(asker, key)
    if its_digest != digest:
        raise KeyReused("this Idempotency-Key was sent with another request; use a new key for a new request")
    if status is not None:
        return its_id, (status, media, body)
    lost = tx.now - made_at > settings.answer_lost_seconds * SECOND
    if lost and await tx.take_over_answer(asker, key, made_at, until):
        return its_id, None
    raise KeyInUse("the request with this Idempotency-Key is under way; ask again in a moment")


def _digest(asked: "ApiRequest") -> str:
    mark = blake2b(digest_size=18)
    for part in (asked.method.encode(), asked.url.path.encode(), asked.url.query.encode(), asked.raw):
        mark.update(len(part).to_bytes(8) + part)
    return mark.hexdigest()
