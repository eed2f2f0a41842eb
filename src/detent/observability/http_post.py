"""One HTTP POST to a receiver outside, without redirects; used by alert sinks and webhooks."""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

_MAX_LINE = 65_536
_MAX_RESPONSE = 65_536
_BODY_SECONDS = 1.0
"""How long the rest of a response is read, so that the receiver can send it; its status is known before."""
_Head = tuple[int, int | None]
"""Of a response: its status, and the seconds of its header Retry-After."""
_TRANSLATED = (IPv6Network("64:ff9b::/96"), IPv6Network("::/96"))
"""NAT64 and IPv4-compatible addresses: the last 32 bits are an IPv4 address."""


class Answer(NamedTuple):
    """What the receiver answered. status: None without a response; error: None if it has accepted the request."""

    status: int | None
    error: str | None
    retry_after: int | None = None
    """The seconds of its header Retry-After; a date in this header is ignored."""


class Refused(OSError):
    """The address of the receiver is not allowed."""


async def post(
    url: str, body: bytes, headers: Mapping[str, str], *, timeout: float, private_addresses: bool = True
) -> Answer:
    """It tries once and never raises for what a receiver does."""
    try:
        async with asyncio.timeout(timeout):
            status, retry_after = await _post(urlsplit(url), body, headers, private_addresses)
    except TimeoutError:
        return Answer(None, f"no response within {timeout:g} s")
    except (OSError, ValueError) as error:  # ValueError: a host name or a response line that is too long
        return Answer(None, f"{type(error).__name__}: {error}")
    return Answer(status, None if 200 <= status < 300 else f"the response has status {status}", retry_after)


async def _post(url: SplitResult, body: bytes, headers: Mapping[str, str], private_addresses: bool) -> _Head:
    host, secure = url.hostname or "", url.scheme == "https"
    port = url.port or (443 if secure else 80)
    address = host if private_addresses else await _public_address(host, port)
    reader, writer = await asyncio.open_connection(
        address,
        port,
        limit=_MAX_LINE,
        ssl=_tls_context() if secure else None,
        server_hostname=host if secure else None,
    )
    try:
        writer.write(_head(url, body, headers) + body)
        status, retry_after = await _read_head(reader)
        with suppress(TimeoutError, EOFError, OSError):
            async with asyncio.timeout(_BODY_SECONDS):
                await reader.readexactly(_MAX_RESPONSE)
        return status, retry_after
    finally:
        writer.transport.abort()


@cache
def _tls_context() -> ssl.SSLContext:
    return ssl.create_default_context()


def _head(url: SplitResult, body: bytes, headers: Mapping[str, str]) -> bytes:
    """The request line and the headers. Raises ValueError for characters outside ASCII."""
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    own = {"Host": url.netloc.rpartition("@")[2], "Content-Length": str(len(body)), "Connection": "close"}
    lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in {**own, **headers}.items())]
    if not all(line.isprintable() for line in lines) or " " in target:
        raise ValueError("the URL contains spaces or control characters")
    return "\r\n".join([*lines, "", ""]).encode("ascii")


async def _read_head(reader: asyncio.StreamReader) -> _Head:
    """The head of the response; interim responses (1xx) are skipped."""
    while True:
        line = await reader.readline()
        version, _, rest = line.partition(b" ")
        if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
            raise ConnectionError(f"the response is not HTTP: {line[:80]!r}")
        retry_after = None
        while header := (await reader.readline()).strip():
            name, _, value = header.partition(b":")
            if name.lower() == b"retry-after" and value.strip()[:10].isdigit():
                retry_after = int(value.strip()[:10])
        if (status := int(rest[:3])) >= 200:
            return status, retry_after


async def _public_address(host: str, port: int) -> str:
    """The address to connect to: a name that is resolved twice may have another one the second time.

    Raises Refused if one of its addresses is not public.
    """
    entries = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(entry[4][0]) for entry in entries]
    private = [address for address in addresses if not _is_public(ipaddress.ip_address(address.partition("%")[0]))]
    if private or not addresses:
        raise Refused(f"{host} has the address {', '.join(private)}, which is not public")
    return addresses[0]


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether the address, and the IPv4 address that it may contain, belongs to the public internet."""
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if any(address in network for network in _TRANSLATED):
            inner = IPv4Address(int(address) & 0xFFFF_FFFF)
        if address.is_site_local or (inner is not None and not _is_public(inner)):
            return False
    return address.is_global and not address.is_multicast
