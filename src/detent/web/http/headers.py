"""Security headers of every response: against sniffing, framing, caching, referrer leaks and request smuggling."""

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .proxies import Proxies

_ALWAYS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
]
_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    b"connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_DATA_POLICY = b"default-src 'none'; frame-ancestors 'none'"
_HTTPS_ONLY = [(b"strict-transport-security", b"max-age=31536000")]
_LENGTHS = {b"content-length", b"transfer-encoding"}
"""With both, a proxy may see another end of the request than we do: nothing more is read from that connection."""


class SecurityHeaders:
    """Adds the headers. Plain ASGI middleware, so streams are not buffered; keeps a Cache-Control set by the route."""

    def __init__(self, app: ASGIApp, proxies: Proxies) -> None:
        self.app = app
        self._proxies = proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        ambiguous = _LENGTHS.issubset(name for name, _ in scope["headers"])

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                sent = dict(message["headers"])
                is_html = sent.get(b"content-type", b"").startswith(b"text/html")
                defaults = {
                    b"content-security-policy": _POLICY if is_html else _DATA_POLICY,
                    b"cache-control": b"no-store",
                }
                added = [item for item in defaults.items() if item[0] not in sent]
                closing = [(b"connection", b"close")] if ambiguous else []
                connection = HTTPConnection(scope)
                https = self._proxies.trusts(connection) and self._proxies.is_https(connection)
                message["headers"] = [*message["headers"], *_ALWAYS, *added, *closing, *(_HTTPS_ONLY if https else ())]
            await send(message)

        await self.app(scope, receive, send_with_headers)
