"""One HTTP POST to a receiver outside, without redirects; used by alert sinks and webhooks."""

import asyncio
import ipaddress
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

_THREADS = 32
_executor: list[ThreadPoolExecutor] = []
_MAX_RESPONSE = 65_536


class Refused(OSError):
    """The address of the receiver is not allowed."""


async def post(
    url: str, body: bytes, headers: Mapping[str, str], *, timeout: float, private_addresses: bool = True
) -> tuple[int | None, str | None]:
    """(status of the response or None, error or None). It tries once and never raises for what a receiver does."""
    if not _executor:
        _executor.append(ThreadPoolExecutor(_THREADS, thread_name_prefix="detent-post"))
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(2 * timeout):
            status = await loop.run_in_executor(_executor[0], _post, url, body, headers, timeout, private_addresses)
    except TimeoutError:
        return None, f"no response within {2 * timeout:g} s"
    except OSError as error:
        return None, f"{type(error).__name__}: {error}"
    return status, None if 200 <= status < 300 else f"the response has status {status}"


def _post(url: str, body: bytes, headers: Mapping[str, str], timeout: float, private_addresses: bool) -> int:
    parts = urlsplit(url)
    connection_class = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = connection_class(parts.hostname or "", parts.port, timeout=timeout)
    if not private_addresses:
        _pin_public_address(connection)
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", path, body, dict(headers))
        response = connection.getresponse()
        response.read(_MAX_RESPONSE)
        return response.status
    except HTTPException as error:
        raise ConnectionError(f"the response is not HTTP: {error!r}") from error
    finally:
        connection.close()


def _pin_public_address(connection: HTTPConnection) -> None:
    """Connect to an address that was checked: a name that is resolved twice may give another one the second time."""
    found = socket.getaddrinfo(connection.host, connection.port, type=socket.SOCK_STREAM)
    addresses = [str(entry[4][0]) for entry in found]
    private = [address for address in addresses if not ipaddress.ip_address(address.partition("%")[0]).is_global]
    if private or not addresses:
        raise Refused(f"{connection.host} has the address {', '.join(private)}, which is not public")

    def connect(address: Any, timeout: float, source: Any = None) -> socket.socket:
        return socket.create_connection((addresses[0], address[1]), timeout, source)

    connection._create_connection = connect  # type: ignore[attr-defined]
