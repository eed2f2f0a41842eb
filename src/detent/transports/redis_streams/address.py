"""Redis URLs: one server, a unix socket, or a service watched by sentinels; each with redis-py's connections."""

from typing import Any
from urllib.parse import urlsplit

from redis.asyncio.connection import AbstractConnection, Connection, ConnectionPool, SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from detent.core.errors import InvalidInput

_CONNECT_TIMEOUT = 5.0
_SENTINEL_TIMEOUT = 1.0
"""After this time the next sentinel is asked."""
_SENTINEL_PORT = 26379
_READ_BYTES = 1 << 18
_EXAMPLES = "write redis://host:6379/0 or redis+sentinel://host:26379,host2:26379/service/0"


def connection_pool(url: str) -> ConnectionPool:
    """Makes connections to the server of this URL. Raises InvalidInput (REDIS_URL_INVALID)."""
    try:
        pool = _sentinel_pool(url) if "+sentinel://" in url else ConnectionPool(**_options(url))
        new_connection(pool)  # unknown options of the URL are refused now, not by the first command
    except (ValueError, TypeError, RedisError) as error:
        raise InvalidInput(f"cannot read the Redis URL: {error}; {_EXAMPLES}", code="REDIS_URL_INVALID") from None
    return pool


def new_connection(pool: ConnectionPool) -> AbstractConnection:
    """A connection that is not connected yet."""
    connection: AbstractConnection = pool.make_connection()  # type: ignore[no-untyped-call]
    return connection


async def close_pool(pool: ConnectionPool) -> None:
    """Close the connections to the sentinels, if there are any."""
    if isinstance(pool, SentinelConnectionPool):
        for sentinel in pool.sentinel_manager.sentinels:
            await sentinel.aclose()


def _options(url: str) -> dict[str, Any]:
    """The arguments of a connection. Timeouts of replies are set by the caller; replies are plain bytes and lists."""
    defaults = {"socket_connect_timeout": _CONNECT_TIMEOUT, "socket_read_size": _READ_BYTES}
    return {**defaults, **parse_url(url), "socket_timeout": None, "protocol": 2, "decode_responses": False}


def _sentinel_pool(url: str) -> SentinelConnectionPool:
    parts = urlsplit(url)
    credentials, at, hosts = parts.netloc.rpartition("@")
    service, _, database = parts.path.strip("/").partition("/")
    if not service or not hosts:
        raise ValueError("it names no service")
    scheme = parts.scheme.removesuffix("+sentinel")
    options = _options(f"{scheme}://{credentials}{at}server/{int(database or 0)}?{parts.query}")
    del options["host"]
    uses_tls = issubclass(options.pop("connection_class", Connection), SSLConnection)
    login = {name: options.pop(f"sentinel_{name}", None) for name in ("username", "password")}
    limits = {"socket_timeout": _SENTINEL_TIMEOUT, "socket_connect_timeout": _SENTINEL_TIMEOUT}
    tls_options = {name: value for name, value in options.items() if name.startswith("ssl_")}
    addresses = [urlsplit(f"//{host}") for host in hosts.split(",")]
    sentinel = Sentinel(  # type: ignore[no-untyped-call]
        [(address.hostname, address.port or _SENTINEL_PORT) for address in addresses],
        sentinel_kwargs={"ssl": uses_tls, "retry": Retry(NoBackoff(), 0), **tls_options, **limits, **login},
    )
    return SentinelConnectionPool(service, sentinel, ssl=uses_tls, **options)  # type: ignore[no-untyped-call]
