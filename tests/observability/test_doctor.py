"""`detent doctor`: checks of the database and of monitoring, and their advice."""

import asyncio
from pathlib import Path

import asyncpg
import pytest

from detent.cli.diagnose import doctor_postgres
from detent.cli.diagnose.database import Finding
from detent.cli.diagnose.doctor_sqlite import findings as file_findings
from support.cli.console import Cli, cli
from support.servers.databases import house, newest

__all__ = ["cli"]


def by_check(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.check: finding for finding in findings}


def test_an_invalid_settings_file(cli: Cli, tmp_path: Path) -> None:
    cli("migrate")
    (tmp_path / "detent.toml").write_text("[alerts.rules.no_worker]\ntreshold = 3\n")
    (check,) = [check for check in cli("doctor", "--json", code=1).json["checks"] if check["check"] == "settings"]
    assert not check["ok"] and "treshold" in check["says"]


def test_sinks_retention_and_firing_alerts(cli: Cli, tmp_path: Path) -> None:
    job = cli("enqueue", "mail", "--contract", "gate-b2").id
    for _ in range(3):
        cli("jobs", "cancel", job, code=1)
    cli("alerts", "evaluate", code=1)
    (tmp_path / "detent.toml").write_text(
        '[alerts.sinks.pager]\ntype = "webhook"\nurl = "http://127.0.0.1:1/x"\n[[retention.rules]]\nkeep_days = 1\n'
    )
    checks = {check["check"]: check for check in cli("doctor", "--json", code=1).json["checks"]}
    assert not checks["alerts"]["ok"] and "illegal_transitions" in checks["alerts"]["says"]
    assert "not signed" in checks["sinks"]["says"] and checks["sinks"]["do"]
    assert checks["retention"]["says"] == "1 rule"
    assert "not delivered" in cli("alerts", "test", "pager", code=1).out


def test_a_missing_index(cli: Cli, tmp_path: Path) -> None:
    import apsw

    cli("migrate")
    path = str(tmp_path / "shop.db")
    assert all(finding.ok for finding in file_findings(path))
    connection = apsw.Connection(path)
    connection.execute("DROP INDEX detent_jobs_later")
    connection.close()
    finding = by_check(list(file_findings(path)))["indexes"]
    assert not finding.ok and "jobs_later" in finding.message and finding.advice


def test_postgres() -> None:
    database = house(newest()).database()
    try:
        checks = by_check(list(doctor_postgres.findings(database.url)))
        assert {"version", "skew", "isolation", "snapshots", "indexes", "partitions", "vacuum"} <= set(checks)
        assert all(finding.ok for finding in checks.values() if finding.check not in ("vacuum", "index use")), checks
        assert asyncio.run(_reports_an_old_snapshot(database.url))
        strict = f"{database.url}?options=-cdefault_transaction_isolation%3Dserializable"
        isolation = by_check(asyncio.run(doctor_postgres._read_findings(strict, "detent")))["isolation"]
        assert isolation.ok and "is serializable" in isolation.message and "READ COMMITTED" in isolation.advice
    finally:
        database.release()


async def _reports_an_old_snapshot(url: str) -> bool:
    """An open transaction passes while it is younger than the limit; an older one is reported with its pid."""
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction(isolation="repeatable_read"):
            await connection.fetchval("SELECT count(*) FROM detent.jobs")
            young = by_check(await doctor_postgres._read_findings(url, "detent"))["snapshots"]
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(doctor_postgres, "_OLD_SNAPSHOT_SECONDS", 0.0)
                old = by_check(await doctor_postgres._read_findings(url, "detent"))["snapshots"]
    finally:
        await connection.close()
    return young.ok and not old.ok and "pg_terminate_backend" in old.advice
