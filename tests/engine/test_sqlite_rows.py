"""A hand-written statement cannot make a row that lies, whichever SQLite library it comes through."""

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from detent.core.contract.builtin import CONTRACTS
from detent.engine import Engine
from support.acts import reach
from support.clock import FakeClock
from support.false_rows import DEEPER_LIES, FORGERIES, LIES, ROWS
from support.stores import PLACES, make_engine

STATEMENTS = [
    f"UPDATE detent_jobs SET {change.replace('{jobs}', 'detent_jobs')} WHERE id = '{row}'" for row, change in LIES
] + [
    "UPDATE detent_jobs SET id = 'standard-queued' WHERE id = 'standard-running'",
    "INSERT INTO detent_events (job_id, seq, event, source, target, at, execution_no, retries)"
    " SELECT job_id, seq, event, source, target, at, execution_no, retries FROM detent_events WHERE seq = 1 LIMIT 1",
    "UPDATE detent_events SET seq = 0 WHERE seq = 1",
    "UPDATE detent_events SET source = 'queued' WHERE seq = 1",
    "UPDATE detent_events SET source = NULL WHERE seq = 2",
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
    tables = ("jobs", "events", "dead_letters", "pauses", "lane_version")
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
async def test_no_statement_makes_view_engine_or_lane_lie(library: object) -> None:
    statements = [f"UPDATE detent_jobs SET {change} WHERE id = '{row}'" for row, change in DEEPER_LIES]
    assert [statement for statement in statements if not is_refused(library, statement)] == []


@pytest.mark.anyio
async def test_no_forged_row_is_let_in(library: object) -> None:
    before = rows(library)
    names = [row[1] for row in library.execute("PRAGMA table_info(detent_jobs)")]  # type: ignore[attr-defined]
    insert = f"INSERT INTO detent_jobs VALUES ({', '.join('?' * len(names))})"
    passed = []
    for source, changes in FORGERIES:
        (row,) = library.execute("SELECT * FROM detent_jobs WHERE id = ?", (source,))  # type: ignore[attr-defined]
        forged = dict(zip(names, row, strict=True)) | {"id": "forged"} | changes
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
        "UPDATE detent_dead_letters SET status = 'discarded'",
    ]
    assert [statement for statement in honest if is_refused(library, statement)] == []


def test_every_status_of_every_contract_is_known_to_the_file(peopled: Path) -> None:
    connection = apsw.Connection(str(peopled))
    known = {row[:3] for row in connection.execute("SELECT contract, status, phase FROM detent_statuses")}
    connection.close()
    wanted = {(c.name, status, str(phase)) for c in CONTRACTS.values() for status, phase in c.statuses.items()}
    assert known == wanted
