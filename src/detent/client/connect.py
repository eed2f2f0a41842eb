"""Makes the store of a database URL, the engine on it, the stream transport of a Redis URL, and contracts with their
settings."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from detent.core.approval_rules import ApprovalPolicy, policy_from_toml
from detent.core.contract.builtin import CONTRACTS, find_contract
from detent.core.contract.io import with_tables
from detent.core.contract.model import Contract
from detent.core.errors import ContractError, InvalidInput, check_number
from detent.core.options.backoff import backoff_text, parse_backoff
from detent.core.options.job_options import MAX_RETRIES
from detent.engine import Engine
from detent.ports.store import Store
from detent.ports.stream import StreamSettings, StreamTransport

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
    inline: run SQLite on the event loop instead of in a thread. Raises InvalidInput (URL_INVALID).
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
    raise InvalidInput(
        f"invalid database URL {url!r}; use sqlite:///jobs.db or postgresql://user@host/database",
        code="URL_INVALID",
    )


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
    """The Redis Streams transport for these settings. Raises InvalidInput (REDIS_CLIENT_MISSING)."""
    try:
        from detent.transports.redis_streams.transport import RedisStreamTransport
    except ImportError as error:
        raise InvalidInput(
            f"the Redis client is missing ({error.name}); install detent[redis]", code="REDIS_CLIENT_MISSING"
        ) from None
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
