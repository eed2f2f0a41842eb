"""From a URL to a store: sqlite:///file.db, sqlite:///:memory:, postgresql://…"""

import os

from detent.core.approval_rules import ApprovalPolicy, policy_from_file
from detent.core.errors import InvalidInput
from detent.ports.store import Store
from detent.ports.stream import StreamSettings, StreamTransport

DEFAULT_URL = "sqlite:///detent.db"


def default_url() -> str:
    return os.environ.get("DETENT_URL") or DEFAULT_URL


def store_from(url: str | None = None, *, may_migrate: bool = False, inline: bool = False) -> Store:
    """The store a URL names. An empty SQLite file is migrated on first use in any case."""
    url = url or default_url()
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        from detent.stores.sqlite.store import SqliteStore

        return SqliteStore(rest[1:], may_migrate=may_migrate, inline=inline)
    if scheme in ("postgresql", "postgres"):
        from detent.stores.postgres.store import PostgresStore

        plain, bouncer = _without_option(url, "pgbouncer")
        return PostgresStore(plain, may_migrate=may_migrate, bouncer=bouncer)
    raise InvalidInput(
        f"cannot read the database URL {url!r}; write sqlite:///jobs.db or postgresql://user@host/database",
        code="URL_INVALID",
    )


def environment_approval_policy() -> ApprovalPolicy | None:
    """The rules in the file $DETENT_GUARD names."""
    path = os.environ.get("DETENT_GUARD")
    return policy_from_file(path) if path else None


def redis_url() -> str | None:
    return os.environ.get("DETENT_REDIS_URL") or None


def stream_transport_from(settings: StreamSettings) -> StreamTransport:
    """The stream server these settings name."""
    try:
        from detent.transports.redis_streams.transport import RedisStreamTransport
    except ImportError as error:
        raise InvalidInput(
            f"the Redis client is missing ({error.name}); install detent[redis]", code="REDIS_CLIENT_MISSING"
        ) from None
    return RedisStreamTransport(settings)


def _without_option(url: str, name: str) -> tuple[str, bool]:
    """Take our own switch out of the query part: the server's driver would not know it."""
    head, mark, query = url.partition("?")
    options = query.split("&") if mark else []
    kept = [option for option in options if option.partition("=")[0] != name]
    said = [option.partition("=")[2].lower() for option in options if option not in kept]
    return head + ("?" + "&".join(kept) if kept else ""), bool(said) and said[-1] not in ("0", "false", "no", "off")
