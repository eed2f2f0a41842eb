"""Two versions of Detent on one database, and backups of the older one: what docs/operate/upgrades.md promises.

The next version is a copy of the package with one migration more, run in processes of its own.
"""

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from detent.core.contract.model import Phase
from detent.core.errors import DetentError
from detent.stores.postgres.migrate import migrations
from detent.version import __version__
from support.proof.upgrade_app import app
from support.proof.versions import NEXT, PRESENT, SCRIPT, Version, additive, breaking, next_version
from support.servers.databases import house, newest
from support.servers.postgres import installations
from support.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.long]
NUMBER = migrations()[-1][0] + 1


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database that the present version has set up."""
    home = house(newest())
    url = f"sqlite:///{tmp_path / 'jobs.db'}" if request.param == "sqlite" else home.url(home.blank())
    PRESENT.migrate(url)
    return url


def tables(url: str) -> list[str]:
    """The tables of Detent, without prefix or schema."""
    if url.startswith("sqlite:"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        names = connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'detent!_%' ESCAPE '!'"
        )
        found = [name.removeprefix("detent_") for (name,) in names]
        connection.close()
        return found
    with psycopg.connect(url) as server:
        return [row[0] for row in server.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'detent'::regnamespace AND relkind IN ('r', 'p')"
            " AND NOT relispartition")]  # fmt: skip


async def versions_of_jobs(count: int = 12) -> set[str]:
    """Enqueue jobs with the present version, wait for them; which versions ran them."""
    plain = await app.jobs["plain"].enqueue_many([{"n": n} for n in range(count)])
    parents = [await app.jobs["parent"].enqueue() for _ in range(3)]
    versions = await asyncio.gather(*(handle.result(timeout=60) for handle in plain))
    nested = await asyncio.gather(*(handle.result(timeout=60) for handle in parents))
    return {*versions, *(version for versions in nested for version in versions)}


async def all_ended() -> bool:
    engine = await app.ready()
    counts = await engine.store.read(lambda tx: tx.stats.counts())
    return all(Phase.FINAL in row for row in counts)


def check_from_outside(url: str, *versions: Version) -> None:
    """Every version finds the log sound, and has no complaint about the schema."""
    for version in versions:
        verified = version.command("verify", "--url", url)
        assert verified.returncode == 0, verified.stdout + verified.stderr
        checks = json.loads(version.command("doctor", "--url", url, "--json").stdout)["checks"]
        assert {check["check"]: check["ok"] for check in checks}["schema"], checks
        assert not [check for check in checks if check["check"] == "open"], checks


def back_up(url: str, folder: Path) -> str:
    """A copy, made while workers run, by the means that the docs name; the URL of the database it was restored to."""
    if url.startswith("sqlite:"):
        program = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).backup(sqlite3.connect(sys.argv[2]))"
        copy = folder / "copy.db"
        subprocess.run([sys.executable, "-c", program, url.removeprefix("sqlite:///"), str(copy)], check=True)
        return f"sqlite:///{copy}"
    home = house(newest())
    restored = home.url(home.blank())
    tools = installations()[newest()]
    environment = os.environ | {"LD_LIBRARY_PATH": str(tools.parent / "lib")}
    dump = [tools / "pg_dump", "--format=custom", f"--file={folder / 'dump'}", url]
    restore = [tools / "pg_restore", "--exit-on-error", f"--dbname={restored}", str(folder / "dump")]
    for command in (dump, restore):
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return restored


async def test_workers_of_two_versions_run_side_by_side(url: str, tmp_path: Path) -> None:
    """The older ones keep working across an additive migration, and may be started again after it."""
    app.url = url
    later, log = next_version(tmp_path, additive(tables(url)), NUMBER), tmp_path / "log"
    async with app:
        with PRESENT.worker(url, log) as old:
            assert await versions_of_jobs() == {__version__}
            await asyncio.to_thread(later.migrate, url)
            assert await versions_of_jobs() == {__version__}, "prepared statements of the old schema"
            with later.worker(url, log):
                seen: set[str] = set()

                async def both_ran_jobs() -> bool:
                    seen.update(await versions_of_jobs())
                    return seen == {__version__, NEXT}

                await until(both_ran_jobs, 60)
                enqueued = await asyncio.to_thread(
                    later.command, "enqueue", "plain", "--payload", '{"n": 1}', "--url", url
                )
                assert enqueued.returncode == 0, enqueued.stderr
                old.kill()
                old.wait()
                await until(all_ended)
            with PRESENT.worker(url, log):
                assert await versions_of_jobs() == {__version__}, "started again, which is how a deploy is rolled back"
                await until(all_ended)
            assert "SCHEMA_MISMATCH" not in log.read_text()
    check_from_outside(url, PRESENT, later)


async def test_a_backup_from_before_is_restored_and_upgraded(url: str, tmp_path: Path) -> None:
    """Jobs were running when it was made: they are lost with their workers, and run again."""
    app.url = url
    later = next_version(tmp_path, additive(tables(url)), NUMBER)
    async with app:
        jobs = await app.jobs["plain"].enqueue_many([{"n": n} for n in range(200)])
        parents = [await app.jobs["parent"].enqueue() for _ in range(5)]
        with PRESENT.worker(url, tmp_path / "log"):
            await jobs[20].result(timeout=60)
            restored = await asyncio.to_thread(back_up, url, tmp_path)
    await asyncio.to_thread(later.migrate, restored)
    app.url = restored
    async with app:
        assert not await all_ended(), "the backup has unfinished jobs"
        with later.worker(restored, tmp_path / "log"):
            versions = {await handle.result(timeout=60) for handle in jobs}
            assert versions == {__version__, NEXT}, "some ended before the backup, others after it"
            for handle in parents:
                assert NEXT in await handle.result(timeout=60)
            await until(all_ended)
    check_from_outside(restored, later, PRESENT)


async def test_older_programs_refuse_a_breaking_migration(url: str, tmp_path: Path) -> None:
    """Those that run say so in their log and change nothing; others are refused when they start."""
    app.url = url
    later, log = next_version(tmp_path, breaking(url), NUMBER), tmp_path / "log"
    async with app:
        with PRESENT.worker(url, log) as old:
            assert await versions_of_jobs() == {__version__}
            await asyncio.to_thread(later.migrate, url)
            with pytest.raises(DetentError) as refused:
                await app.jobs["plain"].enqueue(n=1)
            assert refused.value.code == "SCHEMA_MISMATCH" and "newer version" in refused.value.message
            await until(lambda: "SCHEMA_MISMATCH" in log.read_text())
            old.terminate()
            assert await asyncio.to_thread(old.wait, 60) in (0, 1), "it can be stopped"
    for words in (["worker", str(SCRIPT)], ["jobs", "list"], ["migrate"], ["verify"]):
        done = await asyncio.to_thread(PRESENT.command, *words, "--url", url)
        assert done.returncode == 1 and "upgrade Detent" in done.stderr, (words, done.stderr)
    checks = json.loads(PRESENT.command("doctor", "--url", url, "--json").stdout)["checks"]
    assert "upgrade Detent" in {check["check"]: check["says"] for check in checks}["open"]
