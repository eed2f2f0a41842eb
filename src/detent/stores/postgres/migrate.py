"""Numbered migrations of a Postgres database under an advisory lock, and the check generated from its contracts."""

from collections.abc import Iterable, Mapping
from importlib.resources import files

from ...core.contract import Contract
from ...core.errors import SchemaMismatch
from ..known import reconcile
from ..named_sql import load_queries
from .dialect import compiled
from .tx import Connection

_LOCK = 0x44544E54


def migrations() -> list[tuple[int, str]]:
    folder = files(__package__).joinpath("migrations")
    found = [(int(f.name[:4]), f.read_text("utf-8")) for f in folder.iterdir() if f.name.endswith(".sql")]
    return sorted(found)


def migration_sql() -> str:
    """Everything `migrate` would run on an empty database, for people who run SQL themselves."""
    parts = ["CREATE TABLE IF NOT EXISTS detent_schema (version integer NOT NULL);"]
    for number, text in migrations():
        parts.append(f"-- {number:04d}\n{text.strip()}\nINSERT INTO detent_schema VALUES ({number});")
    return "\n\n".join(parts) + "\n"


async def schema_version(connection: Connection) -> int:
    if await connection.fetchval("SELECT to_regclass('detent_schema')") is None:
        return 0
    version: int = await connection.fetchval("SELECT coalesce(max(version), 0) FROM detent_schema")
    return version


async def ensure_schema(connection: Connection, *, may_migrate: bool) -> None:
    """A database is migrated only by those who were asked to; everyone else gets a clear error."""
    newest = migrations()[-1][0]
    have = await schema_version(connection)
    if have == newest:
        return
    if have > newest:
        # Additive migrations leave older programs able to work: newer ones say from which schema on they are not.
        if await _oldest_allowed(connection) <= newest:
            return
        raise SchemaMismatch(
            f"the database has schema {have}, this Detent knows {newest}; upgrade Detent", have=have, want=newest
        )
    if not may_migrate:
        what = "is empty" if have == 0 else f"has schema {have}"
        raise SchemaMismatch(
            f"the database {what}, this Detent needs schema {newest}; run `detent migrate`", have=have, want=newest
        )
    await _migrate(connection)


async def _oldest_allowed(connection: Connection) -> int:
    """A migration that old programs cannot live with is recorded with a negative number beside its own."""
    breaking: int | None = await connection.fetchval("SELECT -min(version) FROM detent_schema WHERE version < 0")
    return breaking or 0


async def _migrate(connection: Connection) -> None:
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        await connection.execute("CREATE TABLE IF NOT EXISTS detent_schema (version integer NOT NULL)")
        have: int = await connection.fetchval("SELECT coalesce(max(version), 0) FROM detent_schema")
        for number, text in migrations():
            if number > have:
                await connection.execute(text)
                await connection.execute("INSERT INTO detent_schema VALUES ($1)", number)


async def register(
    connection: Connection, own: Mapping[str, Contract], carried: Mapping[str, Contract]
) -> dict[str, Contract]:
    """Store new declarations and replace the check that holds rows to them; answers all contracts known."""
    known = reconcile(await _stored(connection), own, carried)
    if not known.to_write:
        return known.contracts
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        known = reconcile(await _stored(connection), own, carried)
        put = compiled(load_queries()["put_contract"])
        for name, (text, ours) in known.to_write.items():
            values = {"name": name, "definition": text, "carried": ours}
            await connection.execute(put.text, *(values[n] for n in put.names))
        await connection.execute(check_sql(known.contracts.values()))
    return known.contracts


async def _stored(connection: Connection) -> dict[str, tuple[str, bool]]:
    return {row[0]: (row[1], row[2]) for row in await connection.fetch(load_queries()["contracts"])}


def check_sql(contracts: Iterable[Contract]) -> str:
    """What the database must know of statuses. NOT VALID: old rows were held to the old check, no scan is needed."""
    contracts = list(contracts)
    allowed = _list(f"{c.name}/{s}/{p}" for c in contracts for s, p in c.statuses.items())
    timed = _list(f"{c.name}/{s}" for c in contracts for s in sorted(c.retry_at_statuses)) or "''"
    return f"""
    ALTER TABLE jobs DROP CONSTRAINT IF EXISTS jobs_contract;
    ALTER TABLE jobs ADD CONSTRAINT jobs_contract CHECK (
      contract || '/' || status || '/' || phase IN ({allowed})
      AND (next_retry_at IS NOT NULL) = (contract || '/' || status IN ({timed}))
    ) NOT VALID;"""


def _list(words: Iterable[str]) -> str:
    return ", ".join("'" + word.replace("'", "''") + "'" for word in words)
