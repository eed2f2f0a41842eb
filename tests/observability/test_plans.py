"""Looking costs nothing that grows with finished jobs: rules and metrics rest on small indexes."""

from pathlib import Path

import apsw
import pytest

from detent.core.contract.builtin import CONTRACTS
from detent.stores.sqlite.store import SqliteStore
from detent.stores.sqlite.tx import SQL

LOOKS = (
    "oldest_due",
    "long_held",
    "held_jobs",
    "losses",
    "count_losses",
    "due_deliveries",
    "count_hot_events",
    "count_events",
)
VALUES = {"now": 0, "limit": 1, "since": 0, "position": 0, "until": 1, "slot": 1}


@pytest.fixture
def connection(tmp_path: Path) -> apsw.Connection:
    store = SqliteStore(str(tmp_path / "jobs.db"), inline=True, synchronous="OFF")
    store.open_now(CONTRACTS)
    store.close_now()
    return apsw.Connection(str(tmp_path / "jobs.db"))


@pytest.mark.parametrize("name", LOOKS)
def test_no_look_reads_a_whole_table(connection: apsw.Connection, name: str) -> None:
    values = VALUES | {f"{part}_{dead_letter}": 0 for part in ("lane", "event", "source") for dead_letter in "abcdefgh"}
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {SQL[name]}", values)]
    whole = [
        line
        for line in plan
        if line.startswith("SCAN") and "USING INDEX" not in line and "COVERING" not in line and _is_table(line)
    ]
    assert not whole, plan


def _is_table(line: str) -> bool:
    return line.split()[1] in ("jobs", "j", "events", "e", "notes", "losses", "alert_deliveries", "d")


def test_the_test_would_see_it(connection: apsw.Connection) -> None:
    plan = [row[3] for row in connection.execute("EXPLAIN QUERY PLAN SELECT count(*) FROM jobs WHERE queue = 'x'")]
    assert any(line.startswith("SCAN jobs") for line in plan)
