"""The database file is removed or replaced under a running process: no commit to the old file is acknowledged."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from detent import Detent
from detent.cli.diagnose.doctor_sqlite import findings
from detent.core.errors import DatabaseFileLost

pytestmark = pytest.mark.anyio


def remove(path: Path) -> None:
    for name in (path, f"{path}-wal", f"{path}-shm"):
        os.unlink(name)


def remove_the_log(path: Path) -> None:
    os.unlink(f"{path}-wal")


def restore(path: Path) -> None:
    """A backup is put in place by rename, as `mv` and most tools do."""
    subprocess.run(["cp", str(path), f"{path}.backup"], check=True)
    os.replace(f"{path}.backup", path)


def move_away(path: Path) -> None:
    os.rename(path, f"{path}.old")


@pytest.mark.parametrize("act", [remove, remove_the_log, restore, move_away])
async def test_no_enqueue_is_acknowledged(tmp_path: Path, act: object) -> None:
    path = tmp_path / "jobs.db"
    app = Detent(f"sqlite:///{path}")

    @app.job("work")
    async def work(n: int) -> None: ...

    async with app:
        await work.enqueue(n=1)
        act(path)  # type: ignore[operator]
        for n in range(20):
            with pytest.raises(DatabaseFileLost, match="removed or replaced"):
                await work.enqueue(n=n)
        with pytest.raises(DatabaseFileLost):
            await work.enqueue_many([{"n": 1}, {"n": 2}])
        with pytest.raises(DatabaseFileLost):
            async with app.connection() as connection:
                await connection.execute("CREATE TABLE mine (a int)")
    shutil.rmtree(tmp_path)


async def test_a_connection_for_own_tables(tmp_path: Path) -> None:
    app = Detent(f"sqlite:///{tmp_path / 'jobs.db'}")

    @app.job("work")
    async def work(n: int) -> None: ...

    async with app:
        async with app.connection() as connection:
            await connection.execute("CREATE TABLE mine (a int)")
            await connection.execute("INSERT INTO mine VALUES (?)", 7)
        with pytest.raises(ZeroDivisionError):
            async with app.connection() as connection:
                await connection.execute("INSERT INTO mine VALUES (8)")
                raise ZeroDivisionError
        async with app.connection() as connection:
            assert await connection.fetchval("SELECT group_concat(a) FROM mine") == "7"
        assert (await work.enqueue(n=1)).id


async def test_doctor_names_the_process(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    async with Detent(f"sqlite:///{path}"):
        assert {finding.check: finding.ok for finding in findings(str(path))}["open files"]
        restore(path)
        finding = next(finding for finding in findings(str(path)) if finding.check == "open files")
        assert not finding.ok and str(os.getpid()) in finding.message and "stop these processes" in str(finding.advice)
