"""Processes that start while Postgres is down wait for it; what a new URL can get wrong is said."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import asyncpg
import pytest

from detent import Detent
from detent.core.errors import DatabaseUnusable, DetentError
from detent.stores.postgres.errors import translate
from support.servers.databases import Database, migrated, with_database
from support.servers.postgres import running
from support.waiting import until_now

ROOT = Path(__file__).parents[2]
QUICKSTART = str(ROOT / "examples" / "quickstart.py")
LONG_RUNNING = {
    "worker": ["worker", QUICKSTART],
    "serve": ["serve", "--port", "0"],
    "up": ["up", QUICKSTART, "--no-screen", "--port", "0"],
    "orchestrate": ["orchestrate", "--redis-url", "redis://127.0.0.1:1/0"],
}


@contextmanager
def process(log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"}
    with log.open("wb") as output:
        started = subprocess.Popen(
            [sys.executable, "-m", "detent", *arguments], env=environment, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            yield started
        finally:
            started.kill()
            started.wait()


async def enqueue_and_wait(url: str) -> str:
    app = Detent(url)

    @app.job("greet")
    async def greet(name: str) -> str:
        return name

    async with app:
        return await (await greet.enqueue(name="world")).result(timeout=30)


def test_a_worker_waits_for_postgres_and_stops_on_sigterm(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with process(log, "worker", QUICKSTART, "--url", "postgresql://me@127.0.0.1:1/jobs") as worker:
        until_now(lambda: "next attempt in 1 s" in log.read_text())
        assert worker.poll() is None
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0, "as process 1 of a container it would not end without a handler"
    assert "ConnectionRefusedError" in log.read_text() and "Traceback" not in log.read_text()


@pytest.mark.drill
def test_every_process_waits_for_postgres_and_then_works(tmp_path: Path) -> None:
    with running() as server, ExitStack() as stack:
        asyncio.run(migrated(server.url()))
        server.stop()
        logs = {name: tmp_path / f"{name}.log" for name in LONG_RUNNING}
        processes = [
            stack.enter_context(process(logs[name], *arguments, "--url", server.url()))
            for name, arguments in LONG_RUNNING.items()
        ]
        for log in logs.values():
            until_now(lambda log=log: "next attempt in 2 s" in log.read_text())
        server.start()
        assert asyncio.run(enqueue_and_wait(server.url())) == "hello world"
        for name in ("serve", "up"):
            until_now(lambda name=name: "open http://127.0.0.1" in logs[name].read_text())
        assert [started.poll() for started in processes] == [None] * 4
        for started in processes:
            started.send_signal(signal.SIGTERM)
        codes = [started.wait(30) for started in processes]  # uvicorn repeats the signal when it has shut down
        assert set(codes) <= {0, -signal.SIGTERM} and codes[0] == 0, [log.read_text() for log in logs.values()]


@pytest.mark.parametrize("part", ["database", "role"])
def test_a_server_that_refuses_the_url(database: Database, part: str) -> None:
    """It is not an outage: a worker that starts must not wait for it."""
    role = "postgresql://no_such_role@" + database.url.rpartition("@")[2]
    urls = {"database": with_database(database.url, "no_such_database"), "role": role}
    codes = {"database": "DATABASE_MISSING", "role": "DATABASE_LOGIN_REFUSED"}
    with pytest.raises(DatabaseUnusable) as refused:
        asyncio.run(Detent(urls[part]).open())
    assert (refused.value.code, refused.value.retryable) == (codes[part], False)
    assert f'"no_such_{part}" does not exist' in refused.value.message and "URL" in refused.value.message


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (asyncpg.InvalidPasswordError('password authentication failed for user "ana"'), "DATABASE_LOGIN_REFUSED"),
        (asyncpg.InsufficientPrivilegeError("permission denied for schema detent"), "DATABASE_RIGHTS_MISSING"),
        (asyncpg.CannotConnectNowError("the database system is starting up"), "STORE_UNAVAILABLE"),
    ],
)
def test_a_refusal_keeps_the_words_of_the_server(error: Exception, code: str) -> None:
    translated = translate(error)
    assert isinstance(translated, DetentError) and translated.code == code and str(error) in translated.message
