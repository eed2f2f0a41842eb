"""Query plans: alert rules, metrics and event streams use indexes, so that finished jobs do not slow them down."""

from pathlib import Path

import apsw
import pytest

from detent.core.contract.builtin import CONTRACTS
from detent.stores.sqlite.store import SqliteStore
from detent.stores.sqlite.tx import SQL

QUERIES = (
    "oldest_due",
    "long_held",
    "held_jobs",
    "losses",
    "due_deliveries",
    "count_hot_events",
    "count_events",
    "progress_after",
    "events_of_worker",
)
NUMBERS = dict.fromkeys(("now", "limit", "since", "position", "until", "slot", "at"), 1)
VALUES = {**NUMBERS, "sinks": "[]", "job_id": "", "worker": "w"}


@pytest.fixture
def connection(tmp_path: Path) -> apsw.Connection:
    store = SqliteStore(str(tmp_path / "jobs.db"), inline=True, synchronous="OFF")
    store.open_now(CONTRACTS)
    store.close_now()
    return apsw.Connection(str(tmp_path / "jobs.db"))


@pytest.mark.parametrize("name", QUERIES)
def test_no_query_reads_a_whole_table(connection: apsw.Connection, name: str) -> None:
    values = VALUES | {f"{part}_{suffix}": 0 for part in ("lane", "event", "source") for suffix in "abcdefgh"}
    statement = SQL[name].replace("{where}", "1")  # without a filter, the most that it reads
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
    scans = [
        line
        for line in plan
        if line.startswith("SCAN") and "USING INDEX" not in line and "COVERING" not in line and _is_table(line)
    ]
    assert not scans, plan


def _is_table(line: str) -> bool:
    return line.split()[1].removeprefix("detent_") in (
        "jobs",
        "j",
        "events",
        "e",
        "notes",
        "losses",
        "deliveries",
        "d",
        "progress",
    )


def test_a_table_scan_is_recognized(connection: apsw.Connection) -> None:
    plan = [row[3] for row in connection.execute("EXPLAIN QUERY PLAN SELECT 1 FROM detent_jobs WHERE trace_id = 'x'")]
    assert any(line.startswith("SCAN detent_jobs") for line in plan)
