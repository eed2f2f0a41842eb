"""The doctor looks at the database and at what watches, and says what to do."""

import asyncio
from pathlib import Path

import asyncpg
import pytest
from cli.conftest import Cli, cli
from servers.databases import house, newest

from detent.cli.diagnose import doctor_postgres
from detent.cli.diagnose.doctor_sqlite import findings as file_findings
from detent.cli.diagnose.finding import Finding

__all__ = ["cli"]


def by_check(found: list[Finding]) -> dict[str, Finding]:
    return {finding.check: finding for finding in found}


def test_a_settings_file_that_is_wrong(cli: Cli, tmp_path: Path) -> None:
    cli("migrate")
    (tmp_path / "detent.toml").write_text("[alerts.rules.no_worker]\ntreshold = 3\n")
    (found,) = [check for check in cli("doctor", "--json", code=1).json["checks"] if check["check"] == "settings"]
    assert not found["ok"] and "treshold" in found["says"]


def test_sinks_retention_and_what_fires(cli: Cli, tmp_path: Path) -> None:
    job = cli("enqueue", "mail", "--contract", "gate-b2").id
    for _ in range(3):
        cli("jobs", "cancel", job, code=1)
    cli("alerts", "evaluate", code=1)
    (tmp_path / "detent.toml").write_text(
        '[alerts.sinks.pager]\ntype = "webhook"\nurl = "http://127.0.0.1:1/x"\n[[retention.rules]]\nkeep_days = 1\n'
    )
    checks = cli("doctor", "--json", code=1).json["checks"]
    told = {check["check"]: check for check in checks}
    assert not told["alerts"]["ok"] and "illegal_transitions" in told["alerts"]["says"]
    assert "not signed" in told["sinks"]["says"] and told["sinks"]["do"]
    assert told["retention"]["says"] == "1 rule"
    assert "did not arrive" in cli("alerts", "test", "pager", code=1).out


def test_a_file_without_an_index(cli: Cli, tmp_path: Path) -> None:
    import apsw

    cli("migrate")
    path = str(tmp_path / "shop.db")
    assert all(finding.ok for finding in file_findings(path))
    connection = apsw.Connection(path)
    connection.execute("DROP INDEX jobs_later")
    connection.close()
    found = by_check(list(file_findings(path)))["indexes"]
    assert not found.ok and "jobs_later" in found.says and found.do


def test_a_server() -> None:
    database = house(newest()).database()
    try:
        found = by_check(list(doctor_postgres.findings(database.url)))
        assert {"version", "skew", "snapshots", "indexes", "vacuum"} <= set(found)
        assert all(finding.ok for finding in found.values() if finding.check not in ("vacuum", "index use")), found
        assert asyncio.run(_beside_a_long_snapshot(database.url))
    finally:
        database.release()


async def _beside_a_long_snapshot(url: str) -> bool:
    """A forgotten session: younger than the limit it is fine, older it is named with the way to end it."""
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction(isolation="repeatable_read"):
            await connection.fetchval("SELECT count(*) FROM jobs")
            fine = by_check(await doctor_postgres._look(url))["snapshots"]
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(doctor_postgres, "_OLD_SNAPSHOT_SECONDS", 0.0)
                wrong = by_check(await doctor_postgres._look(url))["snapshots"]
    finally:
        await connection.close()
    return fine.ok and not wrong.ok and "pg_terminate_backend" in wrong.do
