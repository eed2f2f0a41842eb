"""A full disk, a locked file, a read-only file: each gives a clear error, and no job is lost."""

import asyncio
import os
import pwd
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from detent.cli.diagnose.database import describe
from detent.cli.option_groups import ConnectionOptions
from detent.core.contract.builtin import CONTRACTS
from detent.core.errors import StoreUnavailable
from detent.core.outcome import Succeeded
from detent.engine import Engine, Settlement, Submission
from detent.ports.listing import Filter
from detent.proof.verify.rules import Report
from detent.proof.verify.verify import verify
from detent.stores.sqlite.store import SqliteStore
from detent.system.run_now import run_now


@pytest.mark.anyio
async def test_a_full_disk_refuses_and_loses_nothing(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "jobs.db"), inline=True)
    engine = Engine(store)
    await engine.open()
    connection = store._writer.connection  # type: ignore[union-attr]
    acknowledged = [(await engine.jobs.submit(Submission("mail"))).job.id]
    connection.pragma("max_page_count", connection.pragma("page_count") + 8)
    with pytest.raises(StoreUnavailable, match="disk"):
        for _ in range(10_000):
            submitted = await engine.jobs.submit(Submission("mail", {"text": "x" * 500}))
            acknowledged.append(submitted.job.id)
    assert len(acknowledged) > 1
    connection.pragma("max_page_count", 1_000_000)
    acknowledged.append((await engine.jobs.submit(Submission("mail"))).job.id)
    stored = {job.id for job in await engine.jobs.list(Filter(limit=10_000))}
    assert stored == set(acknowledged), "every acknowledged job is stored, and no refused one"
    done: list[Settlement] = []
    while claimed := (await engine.settle_and_claim(done, engine.claim_request("w", 100))).claimed:
        done = [Settlement(c.id, c.token, c.contract, Succeeded()) for c in claimed]
    assert (await verify(store, CONTRACTS)).ok
    await engine.close()


@pytest.mark.anyio
async def test_a_locked_file_is_waited_for(tmp_path: Path) -> None:
    engine = Engine(SqliteStore(str(tmp_path / "jobs.db")))
    await engine.open()
    other = apsw.Connection(str(tmp_path / "jobs.db"))
    other.execute("BEGIN IMMEDIATE")
    submit = asyncio.create_task(engine.jobs.submit(Submission("mail")))
    threading.Timer(0.3, other.execute, ["COMMIT"]).start()
    submitted = await asyncio.wait_for(submit, 10)
    assert (await engine.jobs.get(submitted.job.id)).id == submitted.job.id
    other.close()
    await engine.close()


def test_a_read_only_file_is_a_clear_error(tmp_path: Path) -> None:
    """Run as an ordinary user in a child process, because root may write to read-only files."""
    path = tmp_path / "jobs.db"
    first = run_now(_submit(path))
    path.chmod(0o444)
    tmp_path.chmod(0o555)
    error_text = _as_ordinary_user(lambda: run_now(_submit(path)), path)
    tmp_path.chmod(0o755)
    path.chmod(0o644)
    assert error_text.startswith("STORE_UNAVAILABLE: "), error_text
    assert run_now(_submit(path)) != first


def test_verify_works_on_read_only_media(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    run_now(_submit(path))
    path.chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        assert _as_ordinary_user(lambda: _print_verdict(path), path) == "True, 1 job"
    finally:
        tmp_path.chmod(0o755)


def test_a_log_that_cannot_be_read_in_is_not_ignored(tmp_path: Path) -> None:
    """A file copied to read-only media without a checkpoint: its newest commits are in the -wal file."""
    path = tmp_path / "jobs.db"
    engine = Engine(SqliteStore(str(path), inline=True))
    run_now(engine.open())
    run_now(engine.jobs.submit(Submission("mail")))
    frozen = tmp_path / "frozen"
    subprocess.run(["sh", "-c", f"mkdir {frozen} && cp {path} {path}-wal {frozen} && chmod 555 {frozen}"], check=True)
    run_now(engine.close())
    error_text = _as_ordinary_user(lambda: _print_verdict(frozen / "jobs.db"), frozen / "jobs.db")
    frozen.chmod(0o755)
    assert "copy both to a folder" in error_text


def _print_verdict(path: Path) -> None:
    async def act(engine: Engine) -> Report:
        return await verify(engine.store, engine.contracts)

    report = ConnectionOptions(f"sqlite:///{path}").run(act, read_only=True)
    assert describe(f"sqlite:///{path}").schema, "`detent verify` asks for this first"
    raise Exception(f"{report.ok}, {report.jobs} job")


async def _submit(path: Path) -> str:
    engine = Engine(SqliteStore(str(path), inline=True))
    await engine.open()
    submitted = await engine.jobs.submit(Submission("mail"))
    await engine.close()
    return submitted.job.id


def _as_ordinary_user(act: Callable[[], object], path: Path) -> str:
    """The text of the error that `act` raises in a child process that runs as nobody."""
    for folder in path.parents:  # that user must be able to reach the file
        if not os.stat(folder).st_mode & 0o001:
            folder.chmod(os.stat(folder).st_mode | 0o011)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        error_text = "nothing was refused"
        try:
            if os.geteuid() == 0:
                os.setgid(pwd.getpwnam("nobody").pw_gid)
                os.setuid(pwd.getpwnam("nobody").pw_uid)
            act()
        except BaseException as error:
            error_text = str(error)
        os.write(writer, error_text.encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as pipe:
        return pipe.read()
