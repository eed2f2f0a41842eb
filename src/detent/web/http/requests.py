"""What every request gets before it is routed: an id, HEAD as GET without the body, and encoded slashes kept apart."""

import re
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from detent.system.ids import RandomIds

REQUEST_ID = "detent.request_id"
"""In the scope: the id of the request."""
ADDED_HEADERS = "detent.headers"
"""In the scope: headers that the response gets, whatever answers it."""
IS_HEAD = "detent.head"
REQUEST_ID_HEADER = "X-Request-Id"
_HAS_SLASHES = "detent.slashes"
_WELL_FORMED = re.compile(rb"[!-~]{1,128}")
_ids = RandomIds()
_ENCODED_SLASH = "\x1f"
"""Stands for %2F in the path until the path is split: no name contains this character."""


class RequestMiddleware:
    """Plain ASGI middleware, so streams are not buffered."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        is_head = scope["method"] == "HEAD"
        request_id = _request_id(scope)
        added = [(REQUEST_ID_HEADER.lower().encode(), request_id.encode())]
        path = _path(scope)
        own = {REQUEST_ID: request_id, ADDED_HEADERS: added, IS_HEAD: is_head, "path": path or scope["path"]}
        own[_HAS_SLASHES] = path is not None
        method = "GET" if is_head else scope["method"]

        async def send_adapted(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *added]}
            elif is_head and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        await self.app({**scope, **own, "method": method}, receive, send_adapted)


def _request_id(scope: Scope) -> str:
    """The X-Request-Id of the request if it is 1 to 128 visible ASCII characters, else a new id."""
    sent = [value for name, value in scope["headers"] if name == b"x-request-id"]
    return sent[0].decode() if len(sent) == 1 and _WELL_FORMED.fullmatch(sent[0]) else new_request_id()


def new_request_id() -> str:
    return f"req-{_ids.job()}"


def _path(scope: Scope) -> str | None:
    """The path with _ENCODED_SLASH for each %2F; None if it has none."""
    raw = scope.get("raw_path") or b""
    if b"%2f" not in raw.lower() or b"%1f" in raw.lower():
        return None
    return unquote(re.sub("%2f", "%1F", raw.decode("latin-1"), flags=re.IGNORECASE))


async def disconnected(receive: Receive) -> None:
    """Return when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def path_parameters(scope: Scope, parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters in the path of a request, with `/` where the path had %2F."""
    if not scope.get(_HAS_SLASHES):
        return parameters
    return {name: str(value).replace(_ENCODED_SLASH, "/") for name, value in parameters.items()}
