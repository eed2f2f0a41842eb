"""A hand-written statement cannot make a row that lies: the table for SQLite (support.false_rows), in this dialect."""

import re
from collections.abc import AsyncIterator
from copy import copy
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import psycopg
import pytest

from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import Contract, Move
from detent.core.job import Wait
from detent.core.outcome import Succeeded, Waits
from detent.engine import Engine
from detent.stores.contract_registry import CONTRACT_SHIFT, PHASES
from detent.stores.postgres.migrate import states_sql
from detent.stores.postgres.store import PostgresStore
from support.acts import claim, reach, running, submit
from support.clock import FakeClock
from support.false_rows import (
    DEEPER_LIES,
    END_LIES,
    FORGED_STATES,
    FORGERIES,
    LANE_LIES,
    LIES,
    NAMED,
    ROWS,
    STATE_LIES,
    to_state,
)
from support.servers.databases import Database, house, newest

pytestmark = pytest.mark.anyio
REFUSALS = (psycopg.IntegrityError, psycopg.DataError, psycopg.errors.DatatypeMismatch)


def id_of(row: str) -> str:
    return str(uuid5(NAMESPACE_OID, row))


def in_dialect(text: str) -> str:
    """Ids are UUIDs here, workers are numbers, booleans are words."""
    text = text.replace("{jobs}", "detent.jobs").replace("{states}", "detent.states")
    text = re.sub(r"\((\d+) << (31|55)\)", r"(\1::bigint << \2)", text.replace("worker = 'w1'", "worker = 1"))
    text = re.sub(r"\bwait_parked = ([01])\b", lambda m: f"wait_parked = {('false', 'true')[int(m[1])]}", text)
    return re.sub(r"\bid = '([^']+)'", lambda m: f"id = '{id_of(m[1])}'", text)


_NAMED = re.compile(rf"{NAMED.pattern}|\bready\b")
"""A row of table queue stands for ready."""
SHARED_LIES = [(row, change) for row, change in LIES + DEEPER_LIES if not _NAMED.search(change)]
STATEMENTS = [
    *(in_dialect(f"UPDATE detent.jobs SET {change} WHERE id = '{row}'")
      for row, change in SHARED_LIES + STATE_LIES + LANE_LIES + END_LIES),
    "INSERT INTO detent.events SELECT * FROM detent.events WHERE seq = 1 LIMIT 1",
    "UPDATE detent.events SET seq = 0 WHERE seq = 1",
    "UPDATE detent.events SET edge = NULL WHERE seq = 1",
    "UPDATE detent.events SET lane = NULL WHERE seq = 1",
    "INSERT INTO detent.queue SELECT * FROM detent.queue",
    "UPDATE detent.queue SET due_at = NULL",
    "UPDATE detent.queue SET id = NULL",
    "INSERT INTO detent.timers SELECT * FROM detent.timers",
    "UPDATE detent.timers SET due_at = NULL",
    "UPDATE detent.claims SET ids = NULL",
    "UPDATE detent.claims SET check_at = NULL",
    "UPDATE detent.states SET phase = 'final' WHERE phase = 'leased'",
    "UPDATE detent.states SET phase = 'napping'",
    "UPDATE detent.states SET retry_at = NOT retry_at",
    "UPDATE detent.states SET reopens = NOT reopens",
    "INSERT INTO detent.states SELECT * FROM detent.states",
    "INSERT INTO detent.edges (event, source, target) SELECT event, source, target FROM detent.edges",
    "INSERT INTO detent.actors (name) SELECT name FROM detent.actors",
    "UPDATE detent.dead_letters SET status = 'gone'",
    "UPDATE detent.dead_letters SET status = 'requeued'",
    "UPDATE detent.dead_letters SET requeued_as = 'somebody'",
    "INSERT INTO detent.pauses VALUES ('planet', 'mars', 'ann', NULL, 0)",
    "INSERT INTO detent.lane_version VALUES (2, 1)",
]  # fmt: skip
HONEST = [
    "UPDATE detent.jobs SET version = version + 1, updated_at = updated_at + 1 WHERE id = 'standard-queued'",
    "UPDATE detent.jobs SET lease_until = lease_until + 1 WHERE id = 'standard-running'",
    "UPDATE detent.jobs SET due_at = due_at + 1, next_retry_at = due_at + 1 WHERE id = 'p3c-retry_scheduled'",
    "UPDATE detent.jobs SET result = '[1]' WHERE id = 'standard-succeeded'",
    "UPDATE detent.jobs SET losses = 2, lane = (lane & ((1::bigint << 55) - 1)) + (255::bigint << 55)"
    " WHERE id = 'standard-queued'",
    f"UPDATE detent.jobs SET {to_state('standard', 'cancelled')}, finished_at = updated_at, due_at = NULL"
    " WHERE id = 'standard-queued'",
    "UPDATE detent.dead_letters SET status = 'discarded'",
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
    forgeries: list[tuple[str, dict[str, Any]]] = [
        (source, changes) for source, changes in FORGERIES if not _NAMED.search(" ".join(changes))
    ]
    passed = []
    ((queued,),) = peopled.sql(f"SELECT state FROM detent.jobs WHERE id = '{id_of('standard-queued')}'")
    blocked: list[tuple[str, dict[str, Any]]] = [("standard-queued", {"state": queued | 2})]
    for source, changes in forgeries + FORGED_STATES + blocked:
        if not is_refused(peopled, *forged(peopled, source, changes)):
            passed.append((source, changes))
    assert passed == []
    assert peopled.dump() == before


def forged(peopled: Database, source: str, changes: dict[str, Any]) -> tuple[Any, ...]:
    """The statement that copies a row with these changes, and its values."""
    (row,) = peopled.named(f"SELECT * FROM detent.jobs WHERE id = '{id_of(source)}'")
    values = row | {"id": id_of("forged")} | changes
    places = ", ".join(["%s"] * len(values))
    return f"INSERT INTO detent.jobs ({', '.join(values)}) VALUES ({places})", *values.values()


async def test_an_honest_row_is_let_in(peopled: Database) -> None:
    assert not is_refused(peopled, *forged(peopled, "standard-queued", {}))


async def test_honest_statements_pass(peopled: Database) -> None:
    """The table above means something only if the same rows can be changed in honest ways."""
    assert [statement for statement in map(in_dialect, HONEST) if is_refused(peopled, statement)] == []


async def test_every_status_of_every_contract_is_known_to_the_database(peopled: Database) -> None:
    found = {(contract, status): number for contract, status, number in of_contract(peopled, "%")}
    assert found.keys() == {(c.name, status) for c in CONTRACTS.values() for status in c.statuses}
    for (name, status), number in found.items():
        contract = CONTRACTS[name]
        assert not is_refused(peopled, "SELECT %s::detent.state", number)
        assert PHASES[number & 3] is contract.statuses[status]
        assert (number & 4 == 4) is (status in contract.retry_at_statuses)
        assert (number & 8 == 8) is (contract.edge(status, Move.REOPEN) is not None)
        for other in {number ^ 1, number ^ 2, number ^ 4, number ^ 8}:
            assert is_refused(peopled, "SELECT %s::detent.state", other)
    families = {(name, number >> CONTRACT_SHIFT) for (name, _), number in found.items()}
    assert len(families) == len(CONTRACTS) == len({family for _, family in families})


def of_contract(peopled: Database, name: str) -> list[tuple[Any, ...]]:
    return peopled.sql("SELECT contract, status, id FROM detent.states WHERE contract LIKE %s ORDER BY id", name)


async def test_contracts_with_odd_names_are_held_to_their_statuses(peopled: Database) -> None:
    """Their names are literals of the statements that declare them."""
    words = ["plain", "it's", 'a "quote"', "back\\slash", "{brace}", "a, b"]
    contracts = [_odd(CONTRACTS["standard"], word) for word in words]
    known = [(number, contract, status) for contract, status, number in of_contract(peopled, "%")]
    peopled.sql("BEGIN")
    try:
        peopled.sql(states_sql(contracts, known, "detent."))
        for contract in contracts:
            numbers = of_contract(peopled, contract.name.replace("\\", "\\\\"))
            assert [status for _, status, _ in numbers] == list(contract.statuses)
            for _, _, number in numbers:
                peopled.sql("SELECT %s::detent.state", number)
    finally:
        peopled.sql("ROLLBACK")


def _odd(contract: Contract, name: str) -> Contract:
    odd = copy(contract)
    object.__setattr__(odd, "name", name)  # past the rules for names, which an older Detent may not have had
    return odd


async def test_a_row_of_the_queue_that_lies_claims_nothing(database: Database, engine: Engine) -> None:
    """Table queue says in which order jobs are claimed; whether a job may be claimed is said by its state."""
    held, ended, waiting = [await running(engine, job_type=name) for name in ("held", "ended", "waiting")]
    await engine.settle(ended.id, ended.token, Succeeded())
    await engine.settle(waiting.id, waiting.token, Waits(Wait("answer")))
    database.sql("INSERT INTO detent.queue SELECT lane, 1, id FROM detent.jobs")
    database.sql("INSERT INTO detent.queue SELECT lane, 1, gen_random_uuid() FROM detent.jobs")
    before = database.rows("detent.jobs")
    job = await submit(engine, job_type="held")
    assert [claimed.id for claimed in await claim(engine)] == [job.id]
    assert [row for row in database.rows("detent.jobs") if str(row[0]) != job.id] == before
    assert (await engine.settle(held.id, held.token, Succeeded())).status == "succeeded"
