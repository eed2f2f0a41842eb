"""Makes the store of a database URL, the engine on it, the stream transport of a Redis URL, and contracts with their
settings."""

import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

from detent.core.approval_rules import ApprovalPolicy, policy_from_toml
from detent.core.contract.builtin import CONTRACTS, find_contract
from detent.core.contract.io import with_tables
from detent.core.contract.model import Contract
from detent.core.errors import ContractError, InvalidInput, StoreUnavailable, check_number
from detent.core.options.backoff import backoff_text, parse_backoff
from detent.core.options.job_options import MAX_RETRIES
from detent.engine import Engine
from detent.ports.store import Store
from detent.ports.stream import StreamSettings, StreamTransport
from detent.system.backoff import Backoff
from detent.system.extras import extra_imports

log = logging.getLogger("detent.store")
T = TypeVar("T")
DEFAULT_URL = "sqlite:///detent.db"
_MAX_SCHEMA_BYTES = 63
_SCHEMA_NAME = re.compile(r"[\w.-]([\w. -]*[\w.-])?")


def default_url() -> str:
    """$DETENT_URL, else sqlite:///detent.db."""
    return os.environ.get("DETENT_URL") or DEFAULT_URL


def store_from(
    url: str | None = None, *, may_migrate: bool = False, inline: bool = False, read_only: bool = False
) -> Store:
    """The store of a URL: sqlite:///file.db, sqlite:///:memory: or postgresql://user@host/database.

    may_migrate: create or upgrade the schema when it is opened; an empty SQLite file is set up in any case.
    read_only: nothing will be written, so a SQLite file on read-only media may be opened, too.
    inline: run SQLite on the event loop instead of in a thread. Raises InvalidInput (URL_INVALID), ExtraMissing.
    """
    url = url or default_url()
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        from detent.stores.sqlite.store import SqliteStore

        return SqliteStore(rest[1:], may_migrate=may_migrate, inline=inline, read_only=read_only)
    if scheme in ("postgresql", "postgres"):
        from detent.stores.postgres.store import PostgresStore

        server_url, switch = _split_off(url, "pgbouncer")
        server_url, schema = _split_off(server_url, "schema")
        bouncer = switch is not None and switch.lower() not in ("0", "false", "no", "off")
        return PostgresStore(server_url, may_migrate=may_migrate, bouncer=bouncer, schema=_schema_name(schema))
    raise InvalidInput(f"invalid database URL {shown_url(url)!r}; write {_valid_url(url)}", code="URL_INVALID")


def shown_url(url: str) -> str:
    """The URL with its password masked."""
    scheme, mark, rest = url.partition("://")
    credentials, at, host = rest.rpartition("@")
    user, colon, _ = credentials.partition(":")
    return f"{scheme}{mark}{user}{':***' if colon else ''}{at}{host}" if at else url


def _valid_url(url: str) -> str:
    """The URL that was probably meant; else examples."""
    scheme, separator, rest = url.partition("://")
    kind, _, driver = scheme.partition("+")
    if kind in ("postgresql", "postgres") and driver:
        return f"{shown_url(f'postgresql://{rest}')!r}, without a driver"
    path = rest.removeprefix("/") if separator else url.removeprefix("sqlite:")
    if path.strip("/") and ":" not in path and (kind == "sqlite" or not separator):
        return f"'sqlite:///{path}'"
    return "sqlite:///jobs.db or postgresql://user@host/database"


async def when_available(call: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call that opens the database while the server does not answer, for processes that run until stopped.

    SIGTERM ends the process meanwhile, with 0, unless somebody else handles it. Raises what is not an outage at once.
    """
    backoff, handled = Backoff(0.5, 5.0), False
    try:
        while True:
            try:
                return await call()
            except StoreUnavailable as error:
                if not error.retryable:
                    raise
                log.warning("%s; next attempt in %g s", error.message, backoff.seconds)
            if not handled and threading.current_thread() is threading.main_thread():
                handled = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
                if handled:  # as process 1 of a container, a process without a handler would ignore it
                    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
            await backoff.pause()
    finally:
        if handled:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def engine_from(store: Store, contracts: Mapping[str, Contract] | None = None, **options: Any) -> Engine:
    """An engine on this store, not opened yet, with what the environment sets and the options leave open."""
    options["approval_policy"] = options.get("approval_policy") or _environment_approval_policy()
    return Engine(store, contracts, stream_retry=_environment_stream_retry(), **options)


def from_environment(name: str, *, bare: bool = True) -> str | None:
    """$DETENT_<NAME>; with `bare` also $<NAME>, as the document of the stream protocol calls it."""
    return os.environ.get(f"DETENT_{name.upper()}") or (os.environ.get(name.upper()) if bare else None)


def _environment_stream_retry() -> dict[str, Any]:
    """max_retries and backoff of stream contracts in this process. Raises InvalidInput (SETTING_INVALID)."""
    fields: dict[str, Any] = {}
    if text := from_environment("max_retries"):
        number = int(text) if text.isdecimal() else text
        check_number(number, "MAX_RETRIES", 0, MAX_RETRIES, "SETTING_INVALID")
        fields["max_retries"] = number
    if text := from_environment("retry_backoff_s"):
        try:
            fields["backoff"] = parse_backoff(backoff_text(text))
        except InvalidInput as error:
            raise InvalidInput(f"RETRY_BACKOFF_S: {error.message}", code="SETTING_INVALID") from None
    return fields


def _environment_approval_policy() -> ApprovalPolicy | None:
    """The approval policy in the file $DETENT_GUARD; None if it is not set. Raises InvalidInput (GUARD_INVALID)."""
    path = os.environ.get("DETENT_GUARD")
    if not path:
        return None
    try:
        return policy_from_toml(Path(path).read_text("utf-8"))
    except OSError as error:
        raise InvalidInput(f"the approval rules cannot be read: {error}", code="GUARD_INVALID") from None


CONTRACT_VARIABLES = {
    "DETENT_GATE_B2_BASE_MS": ("gate-b2", "retry", "base_ms"),
    "DETENT_GATE_B2_MAX_BACKOFF_MS": ("gate-b2", "retry", "cap_ms"),
    "DETENT_P3C_MAX_INTERRUPTIONS": ("p3c", "loss", "max_interruptions"),
}
"""Environment variable -> the contract, the table and the field that it sets."""


def configured_contracts(declared: Mapping[str, Contract], tables: Mapping[str, Any]) -> dict[str, Contract]:
    """The declared contracts and those that the settings file (`tables`) or the environment changes.

    The environment is stronger than the file, the file than the declaration. Raises UnknownContract, ContractError.
    """
    contracts = dict(declared)
    for name, options in [*tables.items(), *_environment_options()]:
        contracts[name] = with_tables(find_contract({**CONTRACTS, **contracts}, name), options)
    return contracts


def _environment_options() -> Iterator[tuple[str, dict[str, Any]]]:
    for variable, (contract, table, name) in CONTRACT_VARIABLES.items():
        text = os.environ.get(variable)
        if text:
            if not text.isdecimal():
                raise ContractError(f"${variable} must be a whole number, got {text!r}")
            yield contract, {table: {name: int(text)}}


def redis_url() -> str | None:
    """$DETENT_REDIS_URL, or None."""
    return os.environ.get("DETENT_REDIS_URL") or None


def stream_transport_from(settings: StreamSettings) -> StreamTransport:
    """The Redis Streams transport for these settings. Raises ExtraMissing."""
    with extra_imports():
        from detent.transports.redis_streams.transport import RedisStreamTransport
    return RedisStreamTransport(settings)


def _schema_name(name: str | None) -> str:
    """The schema of the URL, else of $DETENT_SCHEMA, else detent. Raises InvalidInput (URL_INVALID)."""
    schema = unquote(name) if name is not None else os.environ.get("DETENT_SCHEMA") or "detent"
    if not _SCHEMA_NAME.fullmatch(schema) or len(schema.encode()) > _MAX_SCHEMA_BYTES or schema.startswith("pg_"):
        raise InvalidInput(
            f"invalid schema {schema!r}; use letters, digits, '_', '-', '.' and spaces, at most"
            f" {_MAX_SCHEMA_BYTES} bytes,"
            " not beginning with pg_",
            code="URL_INVALID",
        )
    return schema


def _split_off(url: str, name: str) -> tuple[str, str | None]:
    """(the URL without the query parameter `name`, its value or None); the driver would refuse the parameter."""
    base, mark, query = url.partition("?")
    parameters = query.split("&") if mark else []
    kept = [parameter for parameter in parameters if parameter.partition("=")[0] != name]
    values = [parameter.partition("=")[2] for parameter in parameters if parameter not in kept]
    return base + ("?" + "&".join(kept) if kept else ""), values[-1] if values else None
