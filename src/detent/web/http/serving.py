"""Serving over HTTP: uvicorn with our limits, in a process of its own or beside a worker."""

import asyncio
import importlib.util
import socket
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import uvicorn
from starlette.types import ASGIApp

from detent.core.errors import DetentError
from detent.engine import Engine
from detent.engine.control.access import has_tokens
from detent.web.app import create_app

from .authentication import is_loopback
from .header_timeout import http_protocol
from .settings import Settings
from .state import Web

if TYPE_CHECKING:
    from detent.client.app import Detent

T = TypeVar("T")
DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8400
_SETTINGS = Settings()


class CannotServe(DetentError):
    """The address is taken, or would let strangers in."""

    code = "CANNOT_SERVE"


class Server(uvicorn.Server):
    """Leaves signals to whoever runs it, if told so; and sends those away who follow or wait before it closes."""

    def __init__(self, config: uvicorn.Config, *, own_signals: bool = True) -> None:
        super().__init__(config)
        self._own_signals = own_signals

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        web = getattr(getattr(self.config.app, "state", None), "web", None)
        if isinstance(web, Web):
            web.leaving.set()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if self._own_signals:
            with super().capture_signals():
                yield
        else:
            yield


async def check_address(engine: Engine, host: str) -> bool:
    """True if the API may stand open there; refuses an address strangers can reach while there are no tokens."""
    closed = await has_tokens(engine)
    if not is_loopback(host) and not closed:
        raise CannotServe(
            f"{host} can be reached from elsewhere and there are no tokens yet; "
            f"make one with `detent token create --name YOU --role admin`, or serve on 127.0.0.1",
            code="TOKENS_REQUIRED",
        )
    return not closed


def bind(host: str, port: int) -> socket.socket:
    """A listening socket, taken before anything else starts."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
    except (OSError, OverflowError) as error:
        made.close()
        raise CannotServe(f"cannot listen on {host}:{port}: {error}; choose another --port") from None
    made.listen(2_048)
    made.setblocking(False)
    return made


def make_server(target: "Detent | Engine", settings: Settings, *, own_signals: bool = True) -> Server:
    return Server(config_of(create_app(target, settings), settings.head_seconds), own_signals=own_signals)


def config_of(app: ASGIApp, head_seconds: float = _SETTINGS.head_seconds) -> uvicorn.Config:
    """Short patience, no word about ourselves, no proxies believed."""
    return uvicorn.Config(
        app,
        http=http_protocol(head_seconds),
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=True,
        ws="none",
        lifespan="on",
        timeout_keep_alive=30,
        timeout_graceful_shutdown=5,
        h11_max_incomplete_event_size=64 << 10,
        proxy_headers=False,
    )


def run(work: Coroutine[Any, Any, T]) -> T:
    """On uvloop where it is installed."""
    if importlib.util.find_spec("uvloop"):
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work)
    return asyncio.run(work)
