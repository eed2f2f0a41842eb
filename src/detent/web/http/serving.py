"""Serving over HTTP: uvicorn with this API's limits, in a process of its own or in that of a worker."""

import asyncio
import importlib.util
import socket
from collections.abc import Coroutine
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

import uvicorn
from starlette.types import ASGIApp

from detent.core.errors import DetentError
from detent.engine import Engine
from detent.web.app import create_app

from .authentication import is_loopback
from .connection_timeouts import http_protocol
from .settings import Settings
from .state import Web

if TYPE_CHECKING:
    from detent.client.app import Detent

T = TypeVar("T")
_SETTINGS = Settings()


class CannotServe(DetentError):
    """The address is in use, or it is reachable from other machines and no token exists."""

    code = "CANNOT_SERVE"


class Server(uvicorn.Server):
    """A uvicorn server that ends event streams and waiting claims before it shuts down.

    own_signals=False: the caller handles SIGINT and SIGTERM.
    """

    def __init__(self, config: uvicorn.Config, *, own_signals: bool = True) -> None:
        super().__init__(config)
        self._own_signals = own_signals

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        web = getattr(getattr(self.config.app, "state", None), "web", None)
        if isinstance(web, Web):
            web.stopping.set()
        await super().shutdown(sockets)

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return super().capture_signals() if self._own_signals else nullcontext()


async def check_address(engine: Engine, host: str) -> bool:
    """True if the API may be open without tokens. Raises CannotServe for a non-loopback address if no token exists."""
    needs_token = await engine.tokens.exist()
    if not is_loopback(host) and not needs_token:
        raise CannotServe(
            f"{host} is not a loopback address and no token exists; "
            f"create one with `detent token create --name YOU --role admin`, or serve on 127.0.0.1",
            code="TOKENS_REQUIRED",
        )
    return not needs_token


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Bound first, so that an address in use is reported before anything else starts."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        listening.close()
        raise CannotServe(f"cannot listen on {host}:{port}: {error}; choose another --port") from None
    listening.listen(2_048)
    listening.setblocking(False)
    return listening


def make_server(target: "Detent | Engine", settings: Settings, *, own_signals: bool = True) -> Server:
    return Server(config_of(create_app(target, settings), settings), own_signals=own_signals)


def config_of(app: ASGIApp, settings: Settings = _SETTINGS) -> uvicorn.Config:
    """uvicorn's settings: short timeouts, no Server header, no trust in X-Forwarded headers."""
    return uvicorn.Config(
        app,
        http=http_protocol(settings),
        log_config=None,  # its lines go to the handlers of this process, in their format
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
    """asyncio.run, on uvloop if it is installed."""
    if importlib.util.find_spec("uvloop"):
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work)
    return asyncio.run(work)
