"""A hand-written statement cannot make a row that lies, whichever SQLite library it comes through."""

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from detent.core.contract.builtin import CONTRACTS
from detent.engine import Engine

from .acts import reach
from .clock import FakeClock
from .stores import PLACES, make_engine

ROWS = [
    ("standard", "queued"),
    ("standard", "running"),
    ("standard", "waiting"),
    ("standard", "succeeded"),
    ("formal", "Queued"),
    ("p3c", "queued"),
    ("p3c", "running"),
    ("p3c", "retry_scheduled"),
    ("gate-b2", "retrying"),
    ("gate-b2", "failed"),
]

# which row, what is set; every one of these must be refused
LIES = [
    ("standard-running", "status = 'succeeded'"),
    ("standard-running", "phase = 'final'"),
    ("standard-running", "phase = 'napping'"),
    ("standard-running", "status = 'exploded'"),
    ("standard-running", "contract = 'nobody'"),
    ("standard-queued", "contract = 'formal'"),
    ("standard-queued", "status = 'running', phase = 'leased', ready = 0"),
    ("standard-queued", "status = 'succeeded', phase = 'final', ready = 0"),
    ("standard-queued", "status = 'Queued'"),
    ("formal-Queued", "status = 'queued'"),
    ("standard-running", "token = NULL"),
    ("standard-running", "worker = NULL"),
    ("standard-running", "lease_until = NULL"),
    ("standard-running", "ready = 1"),
    ("standard-running", "execution_no = 0"),
    ("standard-running", "started_at = NULL"),
    ("standard-running", "finished_at = updated_at"),
    ("standard-running", "result = '{}'"),
    ("standard-running", "wait_name = 'answer'"),
    ("standard-queued", "worker = 'w1'"),
    ("standard-queued", "lease_until = due_at"),
    ("standard-queued", "ready = 2"),
    ("standard-queued", "due_at = NULL"),
    ("standard-queued", "started_at = created_at"),
    ("standard-queued", "next_retry_at = due_at"),
    ("standard-queued", "version = 0"),
    ("standard-queued", "version = 'two'"),
    ("standard-queued", "updated_at = created_at - 1"),
    ("standard-queued", "failures = -1"),
    ("standard-queued", "failures = 99"),
    ("standard-queued", "retries = 1"),
    ("standard-queued", "interruptions = -1"),
    ("standard-queued", "max_retries = -1"),
    ("standard-queued", "timeout_ms = 0"),
    ("standard-queued", "payload = '{oops'"),
    ("standard-queued", "payload = NULL"),
    ("standard-queued", "tenant_id = NULL"),
    ("standard-succeeded", "result = '{oops'"),
    ("standard-succeeded", "finished_at = NULL"),
    ("standard-succeeded", "worker = 'w1'"),
    ("standard-succeeded", "ready = 1"),
    ("standard-succeeded", "cancel_requested = '{}'"),
    ("standard-waiting", "ready = 1"),
    ("standard-waiting", "lease_until = 1"),
    ("p3c-retry_scheduled", "next_retry_at = NULL"),
    ("p3c-retry_scheduled", "next_retry_at = next_retry_at + 1"),
    ("p3c-retry_scheduled", "due_at = due_at + 1"),
    ("p3c-retry_scheduled", "status = 'queued'"),
    ("p3c-queued", "next_retry_at = due_at"),
    ("p3c-queued", "status = 'retry_scheduled'"),
    ("p3c-running", "next_retry_at = due_at"),
    ("p3c-queued", "task_attempt = 0"),
    ("p3c-queued", "(task_id, task_attempt) = (SELECT task_id, task_attempt FROM jobs WHERE id = 'p3c-running')"),
    ("gate-b2-retrying", "next_retry_at = NULL"),
    ("gate-b2-retrying", "retries = 5"),
]
# A view would show what the row is not; the engine would stumble over it; the lane would say otherwise.
DEEPER_LIES = [
    ("formal-Queued", "wait_parked = 1"),
    ("standard-queued", "wait_parked = 7"),
    ("standard-queued", "wait_kind = 'human'"),
    ("standard-running", "cancel_requested = 'please'"),
    ("standard-queued", "payload = '[1]'"),
    ("standard-queued", "error_counts = 'many'"),
    ("standard-queued", "queue = 'other'"),
    ("standard-queued", "job_type = 'other'"),
    ("standard-queued", "tenant_id = 'other'"),
    ("standard-queued", "priority = 50"),
]
STATEMENTS = [f"UPDATE jobs SET {change} WHERE id = '{row}'" for row, change in LIES] + [
    "UPDATE jobs SET id = 'standard-queued' WHERE id = 'standard-running'",
    "INSERT INTO events (job_id, seq, event, source, target, at, execution_no, retries)"
    " SELECT job_id, seq, event, source, target, at, execution_no, retries FROM events WHERE seq = 1 LIMIT 1",
    "UPDATE events SET seq = 0 WHERE seq = 1",
    "UPDATE events SET source = 'queued' WHERE seq = 1",
    "UPDATE events SET source = NULL WHERE seq = 2",
    "UPDATE dead_letters SET status = 'gone'",
    "UPDATE dead_letters SET status = 'requeued'",
    "UPDATE dead_letters SET requeued_as = 'somebody'",
    "INSERT INTO pauses VALUES ('planet', 'mars', 'ann', NULL, 0)",
    "INSERT INTO lane_version VALUES (2, 1)",
]

# which row is copied under a new id, and what is changed in the copy
FORGERIES = [
    ("standard-queued", {"status": "exploded"}),
    ("standard-queued", {"contract": "nobody"}),
    ("standard-queued", {"phase": "blocked", "ready": 0}),
    ("standard-queued", {"next_retry_at": 1}),
    ("standard-running", {"token": None}),
    ("p3c-retry_scheduled", {"next_retry_at": None, "task_attempt": 9}),
    ("p3c-queued", {}),
    ("standard-succeeded", {"finished_at": None}),
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
    return [row for table in tables for row in connection.execute(f"SELECT * FROM {table}")]  # type: ignore[attr-defined]


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
    statements = [f"UPDATE jobs SET {change} WHERE id = '{row}'" for row, change in DEEPER_LIES]
    assert [statement for statement in statements if not is_refused(library, statement)] == []


@pytest.mark.anyio
async def test_no_forged_row_is_let_in(library: object) -> None:
    before = rows(library)
    names = [row[1] for row in library.execute("PRAGMA table_info(jobs)")]  # type: ignore[attr-defined]
    insert = f"INSERT INTO jobs VALUES ({', '.join('?' * len(names))})"
    passed = []
    for source, changes in FORGERIES:
        (row,) = library.execute("SELECT * FROM jobs WHERE id = ?", (source,))  # type: ignore[attr-defined]
        forged = dict(zip(names, row, strict=True)) | {"id": "forged"} | changes
        if not is_refused(library, insert, tuple(forged.values())):
            passed.append((source, changes))
    assert passed == []
    assert rows(library) == before


@pytest.mark.anyio
async def test_honest_statements_pass(library: object) -> None:
    """The table above means something only if the same rows can be changed in honest ways."""
    honest = [
        "UPDATE jobs SET version = version + 1, updated_at = updated_at + 1 WHERE id = 'standard-queued'",
        "UPDATE jobs SET lease_until = lease_until + 1 WHERE id = 'standard-running'",
        "UPDATE jobs SET due_at = due_at + 1, next_retry_at = due_at + 1, ready = 0 WHERE id = 'p3c-retry_scheduled'",
        "UPDATE jobs SET result = '[1]' WHERE id = 'standard-succeeded'",
        "UPDATE dead_letters SET status = 'discarded'",
    ]
    assert [statement for statement in honest if is_refused(library, statement)] == []


def test_every_status_of_every_contract_is_known_to_the_file(peopled: Path) -> None:
    connection = apsw.Connection(str(peopled))
    known = {row[:3] for row in connection.execute("SELECT contract, status, phase FROM statuses")}
    connection.close()
    wanted = {(c.name, status, str(phase)) for c in CONTRACTS.values() for status, phase in c.statuses.items()}
    assert known == wanted
