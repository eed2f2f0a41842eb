"""Trusted proxies: the client's address and scheme from their headers, and the people they have signed in."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from starlette.requests import HTTPConnection

from detent.core.access import POWERS, Role
from detent.core.errors import DetentError, InvalidInput
from detent.engine.control.access import Forbidden
from detent.engine.submit.submission import check_name

from .application_sign_in import ALL_TENANTS, Person
from .settings import Settings

_FORWARDING = ("forwarded", "via", "x-real-ip")


class Proxies:
    """Whom to believe what. Headers from other addresses count for nothing."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.sign_in = bool(settings.proxy_person_header)
        """Whether trusted proxies sign people in."""
        try:
            self._networks = [ip_network(text, strict=False) for text in settings.trusted_proxies]
            self._roles = {group: Role(role) for group, role in settings.proxy_roles.items()}
        except ValueError as error:
            raise InvalidInput(f"trusted_proxies or proxy_roles: {error}", code="SETTINGS_INVALID") from None
        if self.sign_in and not (self._networks and settings.proxy_role_header):
            message = "proxy_person_header needs trusted_proxies and proxy_role_header; set them"
            raise InvalidInput(message, code="SETTINGS_INVALID")

    def trusts(self, connection: HTTPConnection) -> bool:
        client = connection.client
        return bool(self._networks) and client is not None and self._is_trusted(_parsed(client.host))

    def _is_trusted(self, address: IPv4Address | IPv6Address | None) -> bool:
        return address is not None and any(address in network for network in self._networks)

    def is_https(self, connection: HTTPConnection) -> bool:
        """Whether the browser uses HTTPS: what a trusted proxy says, else the scheme of this connection."""
        schemes = self.values(connection, "x-forwarded-proto")
        return all(scheme == "https" for scheme in schemes or [str(connection.scope.get("scheme", "http"))])

    def values(self, connection: HTTPConnection, header: str) -> list[str]:
        """The values of a header that a trusted proxy sent, split at commas; empty if another client sent it."""
        lines = connection.headers.getlist(header) if self.trusts(connection) else []
        return [value.strip() for line in lines for value in line.split(",") if value.strip()]

    def address(self, connection: HTTPConnection) -> str:
        """The client's address: behind trusted proxies the last one in X-Forwarded-For that is not such a proxy."""
        for text in reversed(self.values(connection, "x-forwarded-for")):
            address = _parsed(text)
            if address is None:
                break
            if not self._is_trusted(address):
                return str(address)
        return connection.client.host if connection.client else "unknown"

    def person(self, connection: HTTPConnection) -> Person | None:
        """The person that a trusted proxy names; groups: all values of the role header.

        Raises a refusal if its headers are repeated or incomplete.
        """
        settings = self._settings
        if not self.sign_in or not self.trusts(connection):
            return None
        name = _single(connection, settings.proxy_person_header)
        if not name:
            return None
        check_name(name, settings.proxy_person_header)
        groups = _single(connection, settings.proxy_role_header).split(",")
        names = tuple(sorted({group.strip() for group in groups} - {""}))
        return Person(name, self._role(name, names), self._tenant(connection), names)

    def _role(self, person: str, groups: tuple[str, ...]) -> Role:
        """The one role of these groups that includes all the others."""
        known = self._roles or {str(role): role for role in Role}
        roles = {known[group] for group in groups if group in known}
        for role in roles:
            if all(POWERS[other] <= POWERS[role] for other in roles):
                return role
        message = f"{person}: {self._settings.proxy_role_header} must give exactly one role; change the person's groups"
        raise Forbidden(message, code="PROXY_ROLE_INVALID")

    def _tenant(self, connection: HTTPConnection) -> str:
        header = self._settings.proxy_tenant_header
        if not header:
            return ALL_TENANTS
        tenant = _single(connection, header)
        if not tenant:
            raise Forbidden(f"the proxy sent no {header}; send the tenant, or * for all", code="PROXY_TENANT_MISSING")
        check_name(tenant, header)
        return tenant

    def ignored_headers(self, connection: HTTPConnection) -> str:
        """A sentence if a client that is not trusted names a person; else nothing."""
        header = self._settings.proxy_person_header
        if not header or header not in connection.headers or self.trusts(connection):
            return ""
        return f"; {header} is ignored, because {self.address(connection)} is not one of trusted_proxies"

    def require_same_origin(self, connection: HTTPConnection) -> None:
        """Refuse what a page of another origin sent. Clients that are no browsers send none of these headers."""
        site, origin = connection.headers.get("sec-fetch-site"), connection.headers.get("origin")
        hosts = [connection.headers.get("host", ""), *self.values(connection, "x-forwarded-host")]
        if site in ("same-origin", "none") or (site is None and (origin is None or host_of(origin) in hosts)):
            return
        raise Forbidden("changes are accepted from this site's own pages only", code="ORIGIN_NOT_ALLOWED")


def host_of(origin: str) -> str:
    return origin.partition("://")[2]


def forwarding_header(connection: HTTPConnection) -> str | None:
    """The first header that only a proxy adds, if there is one."""
    return next((name for name in connection.headers if name in _FORWARDING or name.startswith("x-forwarded-")), None)


def network_of(address: str) -> str:
    """What counts as one client: an IPv4 address, or the 64 bits of an IPv6 address that a client cannot choose."""
    parsed = _parsed(address)
    return str(ip_network((parsed, 64), strict=False)) if isinstance(parsed, IPv6Address) else address


def _parsed(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def _single(connection: HTTPConnection, header: str) -> str:
    """The value of a header, as UTF-8 text. Raises a refusal if the header is repeated: one of them may be forged."""
    values = connection.headers.getlist(header)
    try:
        texts = [value.encode("latin-1").decode().strip() for value in values]
    except UnicodeDecodeError:
        texts = ["", ""]
    if len(texts) > 1:
        message = f"{header} must be sent once, as UTF-8; let the proxy replace what the client sends"
        raise DetentError(message, code="PROXY_HEADERS_INVALID", http_status=400)
    return texts[0] if texts else ""
