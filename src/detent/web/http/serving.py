"""Serving over HTTP: uvicorn with this API's limits, in a process of its own or in that of a worker."""

import asyncio
import importlib.util
import socket
import tempfile
from collections.abc import Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, TypeVar

import uvicorn
from starlette.types import ASGIApp

from detent.core.access import Role, Scope
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


class CannotServe(DetentError, code="CANNOT_SERVE"):
    """The address is in use, or the first token cannot be written to a file."""


class Access(NamedTuple):
    """Whether a server needs no tokens, and the file and the secret of the token that was created for it."""

    is_open: bool
    token_file: str = ""
    secret: str = ""


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


async def prepare_access(engine: Engine, host: str, person: str) -> Access:
    """Decide who may use a server on this address. Creates an admin token for `person` if other machines can reach the
    address and no token exists. Raises CannotServe if the token's file cannot be written.
    """
    if Settings.from_environment().proxy_person_header or await engine.tokens.exist():
        return Access(False)
    if is_loopback(host):
        return Access(True)
    with _token_file(host) as (path, file):
        _, secret = await engine.tokens.create(person, Role.ADMIN, Scope(person, shared_with=None))
        file.write(f"{secret}\n")
    return Access(False, path, secret)


@contextmanager
def _token_file(host: str) -> Iterator[tuple[str, TextIO]]:
    """A new file in the working directory that only its owner can read; deleted if the token cannot be created."""
    try:
        number, path = tempfile.mkstemp(".token", "detent-admin-", Path.cwd())  # mode 0600
    except OSError as error:
        raise CannotServe(
            f"{host} is not a loopback address, no token exists, and the file of a new one cannot be written: {error}; "
            f"create one with `detent token create --name YOU --role admin`, or serve on 127.0.0.1",
            code="TOKENS_REQUIRED",
        ) from None
    try:
        with open(number, "w") as file:
            yield path, file
    except BaseException:
        Path(path).unlink()
        raise


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
