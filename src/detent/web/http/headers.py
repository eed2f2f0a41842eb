"""Security headers of every response: against sniffing, framing, caching, referrer leaks and request smuggling."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
_HTML_HEADERS = [(b"content-security-policy", _POLICY)]
_DATA_HEADERS = [(b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")]
_LENGTHS = {b"content-length", b"transfer-encoding"}
"""With both, a proxy may see another end of the request than we do: nothing more is read from that connection."""
_NO_STORE = (b"cache-control", b"no-store")


class SecurityHeaders:
    """Adds the headers. Plain ASGI middleware, so streams are not buffered; keeps a Cache-Control set by the route."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        ambiguous = _LENGTHS.issubset(name for name, _ in scope["headers"])

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message["headers"]
                names = {name for name, _ in headers}
                is_html = any(name == b"content-type" and value.startswith(b"text/html") for name, value in headers)
                headers = [*headers, *_ALWAYS]
                if b"content-security-policy" not in names:
                    headers += _HTML_HEADERS if is_html else _DATA_HEADERS
                if b"cache-control" not in names:
                    headers.append(_NO_STORE)
                if ambiguous:
                    headers.append((b"connection", b"close"))
                message["headers"] = headers
            await send(message)

        await self.app(scope, receive, send_with_headers)
