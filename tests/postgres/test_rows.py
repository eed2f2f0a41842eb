"""A hand-written statement cannot make a row that lies: the table for SQLite (support.false_rows), in this dialect."""

import re
from collections.abc import AsyncIterator
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import psycopg
import pytest

from detent.core.contract.builtin import CONTRACTS
from detent.engine import Engine
from detent.stores.postgres.store import PostgresStore
from support.acts import reach
from support.clock import FakeClock
from support.false_rows import DEEPER_LIES, FORGERIES, LIES, ROWS
from support.servers.databases import Database, house, newest

pytestmark = pytest.mark.anyio
REFUSALS = (psycopg.IntegrityError, psycopg.DataError, psycopg.errors.DatatypeMismatch)


def id_of(row: str) -> str:
    return str(uuid5(NAMESPACE_OID, row))


def in_dialect(text: str) -> str:
    """Booleans are words here, and ids are UUIDs."""
    text = text.replace("{jobs}", "jobs")
    text = re.sub(r"\b(ready|wait_parked) = ([01])\b", lambda m: f"{m[1]} = {('false', 'true')[int(m[2])]}", text)
    return re.sub(r"\bid = '([^']+)'", lambda m: f"id = '{id_of(m[1])}'", text)


STATEMENTS = [in_dialect(f"UPDATE jobs SET {change} WHERE id = '{row}'") for row, change in LIES + DEEPER_LIES] + [
    *(f"UPDATE jobs SET {column} WHERE id = '{id_of('standard-queued')}'" for column in (
        "lane = lane + 1", "created_at = created_at - 1", "limit_key = 'x'", "payload = '{\"other\":1}'",
        f"id = '{id_of('another')}'",
    )),
    *(f"UPDATE jobs SET {column} WHERE id = '{id_of('standard-succeeded')}'" for column in (
        "status = 'failed'", "version = version + 1",
        "status = 'queued', phase = 'claimable', finished_at = NULL, due_at = 1, result = NULL",
    )),
    "INSERT INTO events SELECT * FROM events WHERE seq = 1 LIMIT 1",
    "UPDATE events SET seq = 0 WHERE seq = 1",
    "UPDATE events SET source = 'queued' WHERE seq = 1",
    "UPDATE events SET source = NULL WHERE seq = 2",
    "UPDATE dead_letters SET status = 'gone'",
    "UPDATE dead_letters SET status = 'requeued'",
    "UPDATE dead_letters SET requeued_as = 'somebody'",
    "INSERT INTO pauses VALUES ('planet', 'mars', 'ann', NULL, 0)",
    "INSERT INTO lane_version VALUES (2, 1)",
]  # fmt: skip
HONEST = [
    "UPDATE jobs SET version = version + 1, updated_at = updated_at + 1 WHERE id = 'standard-queued'",
    "UPDATE jobs SET lease_until = lease_until + 1 WHERE id = 'standard-running'",
    "UPDATE jobs SET due_at = due_at + 1, next_retry_at = due_at + 1, ready = 0 WHERE id = 'p3c-retry_scheduled'",
    "UPDATE jobs SET result = '[1]' WHERE id = 'standard-succeeded'",
    "UPDATE dead_letters SET status = 'discarded'",
]


@pytest.fixture(scope="module")
async def peopled() -> AsyncIterator[Database]:
    """A job in each of these statuses."""
    database, clock = house(newest()).database(), FakeClock()
    engine = Engine(PostgresStore(database.url, clock=clock), CONTRACTS)
    await engine.open()
    for contract, status in ROWS:
        name = f"{contract}-{status}"
        await reach(engine, clock, contract, status, id=id_of(name), job_type=name)
    await engine.close()
    yield database
    database.release()


def is_refused(database: Database, statement: str, *values: Any) -> bool:
    """True if refused; what was let through is taken back."""
    database.sql("BEGIN")
    try:
        database.sql(statement, *values)
    except REFUSALS:
        return True
    finally:
        database.sql("ROLLBACK")
    return False


async def test_no_statement_makes_a_row_that_lies(peopled: Database) -> None:
    before = peopled.dump()
    assert [statement for statement in STATEMENTS if not is_refused(peopled, statement)] == []
    assert peopled.dump() == before


async def test_no_forged_row_is_let_in(peopled: Database) -> None:
    before = peopled.dump()
    forgeries: list[tuple[str, dict[str, Any]]] = [*FORGERIES, ("standard-queued", {"payload": "[1]"})]
    forgeries += [("standard-queued", {"payload": "{oops"}), ("standard-succeeded", {"result": "{oops"})]
    passed = []
    for source, changes in forgeries:
        (row,) = peopled.named(f"SELECT * FROM jobs WHERE id = '{id_of(source)}'")
        typed_values = {name: bool(value) if name == "ready" else value for name, value in changes.items()}
        forged = row | {"id": id_of("forged")} | typed_values
        places = ", ".join(["%s"] * len(forged))
        if not is_refused(peopled, f"INSERT INTO jobs ({', '.join(forged)}) VALUES ({places})", *forged.values()):
            passed.append((source, changes))
    assert passed == []
    assert peopled.dump() == before


async def test_an_honest_row_is_let_in(peopled: Database) -> None:
    (row,) = peopled.named(f"SELECT * FROM jobs WHERE id = '{id_of('standard-queued')}'")
    honest = row | {"id": id_of("forged")}
    places = ", ".join(["%s"] * len(honest))
    assert not is_refused(peopled, f"INSERT INTO jobs ({', '.join(honest)}) VALUES ({places})", *honest.values())


async def test_honest_statements_pass(peopled: Database) -> None:
    """The table above means something only if the same rows can be changed in honest ways."""
    assert [statement for statement in map(in_dialect, HONEST) if is_refused(peopled, statement)] == []


async def test_every_status_of_every_contract_is_known_to_the_database(peopled: Database) -> None:
    ((text,),) = peopled.sql("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'jobs_contract'")
    for contract in CONTRACTS.values():
        for status, phase in contract.statuses.items():
            kind = "at" if status in contract.retry_at_statuses else "-"
            assert f"{contract.name}/{status}/{phase}/{kind}" in text


async def test_contracts_with_odd_names_are_held_to_their_statuses(peopled: Database) -> None:
    from detent.stores.postgres.migrate import _array

    words = ["plain", "it's", 'a "quote"', "back\\slash", "{brace}", "a, b"]
    ((found,),) = peopled.sql(f"SELECT {_array(words)}")
    assert found == words
