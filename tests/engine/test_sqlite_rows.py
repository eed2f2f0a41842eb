"""A hand-written statement cannot make a row that lies, whichever SQLite library it comes through."""

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from detent.core.contract.builtin import CONTRACTS
from detent.engine import Engine
from support.acts import reach
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
from support.stores import PLACES, make_engine


def update(row: str, change: str) -> str:
    change = change.replace("{jobs}", "detent_jobs").replace("{states}", "detent_states")
    return f"UPDATE detent_jobs SET {change} WHERE id = '{row}'"


SHARED_LIES = [(row, change) for row, change in LIES + DEEPER_LIES if not NAMED.search(change)]
STATEMENTS = [update(row, change) for row, change in SHARED_LIES + STATE_LIES + LANE_LIES + END_LIES] + [
    "UPDATE detent_jobs SET id = 'standard-queued' WHERE id = 'standard-running'",
    "UPDATE detent_jobs SET n = n + 1000 WHERE id = 'standard-running'",
    "INSERT INTO detent_events (job_id, seq, edge, at, lane, execution_no, retries)"
    " SELECT job_id, seq, edge, at, lane, execution_no, retries FROM detent_events WHERE seq = 1 LIMIT 1",
    "UPDATE detent_events SET seq = 0 WHERE seq = 1",
    "UPDATE detent_events SET edge = NULL WHERE seq = 1",
    "UPDATE detent_events SET lane = NULL WHERE seq = 1",
    "UPDATE detent_states SET phase = 'final' WHERE phase = 'leased'",
    "UPDATE detent_states SET phase = 'napping'",
    "UPDATE detent_states SET retry_at = NOT retry_at",
    "UPDATE detent_states SET reopens = NOT reopens",
    "INSERT INTO detent_states SELECT * FROM detent_states",
    "INSERT INTO detent_edges (event, source, target) SELECT event, source, target FROM detent_edges",
    "INSERT INTO detent_actors (name) SELECT name FROM detent_actors",
    "UPDATE detent_dead_letters SET status = 'gone'",
    "UPDATE detent_dead_letters SET status = 'requeued'",
    "UPDATE detent_dead_letters SET requeued_as = 'somebody'",
    "INSERT INTO detent_pauses VALUES ('planet', 'mars', 'ann', NULL, 0)",
    "INSERT INTO detent_lane_version VALUES (2, 1)",
]


@pytest.fixture(scope="module")
async def peopled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a job in each of these statuses, closed again."""
    folder = tmp_path_factory.mktemp("rows")
    clock = FakeClock()
    engine: Engine = make_engine(PLACES["sqlite-inline"](folder), clock)
    await engine.open()
    for contract, status in ROWS:
        await reach(engine, clock, contract, status, id=f"{contract}-{status}", job_type=f"{contract}-{status}")
    await engine.close()
    return folder / "jobs.db"


@pytest.fixture(params=["stdlib", "apsw"])
def library(request: pytest.FixtureRequest, peopled: Path, tmp_path: Path) -> Iterator[object]:
    path = tmp_path / "copy.db"
    shutil.copyfile(peopled, path)
    connection = (
        sqlite3.connect(path, isolation_level=None) if request.param == "stdlib" else apsw.Connection(str(path))
    )
    yield connection
    connection.close()


CONSTRAINTS = (sqlite3.IntegrityError, apsw.ConstraintError)


def rows(connection: object) -> list[tuple[object, ...]]:
    tables = ("jobs", "events", "states", "edges", "actors", "dead_letters", "pauses", "lane_version")
    return [row for table in tables for row in connection.execute(f"SELECT * FROM detent_{table}")]  # type: ignore[attr-defined]


@pytest.mark.anyio
async def test_no_statement_makes_a_row_that_lies(library: object) -> None:
    before = rows(library)
    passed = [statement for statement in STATEMENTS if not is_refused(library, statement)]
    assert passed == []
    assert rows(library) == before


def is_refused(connection: object, statement: str, values: tuple[object, ...] = ()) -> bool:
    """True if refused; what was let through is taken back."""
    run = connection.execute  # type: ignore[attr-defined]
    run("BEGIN")
    try:
        run(statement, values)
    except CONSTRAINTS:
        return True
    except (sqlite3.OperationalError, apsw.SQLError) as error:
        if "malformed JSON" in str(error):  # a CHECK that could not even read the value
            return True
        raise
    finally:
        run("ROLLBACK")
    return False


@pytest.mark.anyio
async def test_no_forged_row_is_let_in(library: object) -> None:
    before = rows(library)
    names = [row[1] for row in library.execute("PRAGMA table_info(detent_jobs)")]  # type: ignore[attr-defined]
    insert = f"INSERT INTO detent_jobs VALUES ({', '.join('?' * len(names))})"
    passed: list[tuple[str, dict[str, Any]]] = []
    shared: list[tuple[str, dict[str, Any]]] = [
        (row, set_) for row, set_ in FORGERIES if not NAMED.search(" ".join(set_))
    ]
    for source, changes in shared + FORGED_STATES:
        (row,) = library.execute("SELECT * FROM detent_jobs WHERE id = ?", (source,))  # type: ignore[attr-defined]
        forged = dict(zip(names, row, strict=True)) | {"id": "forged", "n": None} | changes
        if not is_refused(library, insert, tuple(forged.values())):
            passed.append((source, changes))
    assert passed == []
    assert rows(library) == before


@pytest.mark.anyio
async def test_honest_statements_pass(library: object) -> None:
    """The table above means something only if the same rows can be changed in honest ways."""
    honest = [
        "UPDATE detent_jobs SET version = version + 1, updated_at = updated_at + 1 WHERE id = 'standard-queued'",
        "UPDATE detent_jobs SET lease_until = lease_until + 1 WHERE id = 'standard-running'",
        "UPDATE detent_jobs SET due_at = due_at + 1, next_retry_at = due_at + 1, ready = 0 WHERE id ="
        " 'p3c-retry_scheduled'",
        "UPDATE detent_jobs SET result = '[1]' WHERE id = 'standard-succeeded'",
        update("standard-queued", "losses = 2, lane = (lane & ((1 << 55) - 1)) + (255 << 55)"),
        update(
            "standard-queued",
            f"{to_state('standard', 'cancelled')}, ready = 0, finished_at = updated_at, due_at = NULL",
        ),
        "UPDATE detent_dead_letters SET status = 'discarded'",
    ]
    assert [statement for statement in honest if is_refused(library, statement)] == []


def test_every_status_of_every_contract_is_known_to_the_file(peopled: Path) -> None:
    connection = apsw.Connection(str(peopled))
    known = {row[:3] for row in connection.execute("SELECT contract, status, phase FROM detent_states")}
    connection.close()
    wanted = {(c.name, status, str(phase)) for c in CONTRACTS.values() for status, phase in c.statuses.items()}
    assert known == wanted
