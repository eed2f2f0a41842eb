"""Serving: alone, with a worker, mounted in another application; refused addresses."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import httpx
import pytest
from starlette.applications import Starlette

from detent import Detent
from detent.cli import run
from detent.web.app import create_app
from detent.web.http.settings import Settings
from support.servers.databases import house, newest
from support.waiting import until_now
from support.web.api import API, Api, code
from support.web.served import SOURCES, first_json, serving

APP = '''"""One job."""

from detent import Detent

app = Detent("sqlite:///jobs.db")


@app.job("double")
async def double(number: int) -> int:
    return 2 * number
'''


def test_a_server_on_a_public_address_creates_the_first_token(tmp_path: Path) -> None:
    url, token = f"sqlite:///{tmp_path}/jobs.db", ""
    for _ in range(2):
        with serving(tmp_path, url, "--host", "0.0.0.0") as at:
            (token_file,) = tmp_path.glob("detent-admin-*.token")
            assert token_file.stat().st_mode & 0o777 == 0o600
            token = token_file.read_text().strip()
            with httpx.Client(base_url=f"http://127.0.0.1:{at.rpartition(':')[2]}") as client:
                assert code(client.get(f"{API}/jobs"), 401) == "UNAUTHORIZED"
                caller = client.get(f"{API}/me", headers={"Authorization": f"Bearer {token}"}).json()
                assert caller["role"] == "admin" and caller["tenant_id"] is None
    assert token not in (tmp_path / "serve.log").read_text()


@pytest.mark.parametrize(("command", "terminal"), [(["serve"], False), (["up", "--no-screen"], True)])
def test_the_first_token_is_printed_to_a_terminal_only(tmp_path: Path, command: list[str], terminal: bool) -> None:
    (tmp_path / "one.py").write_text(APP)
    arguments = [sys.executable, "-m", "detent", *command, "one.py", "--port", "0", "--host", "0.0.0.0"]
    environment = {**os.environ, "PYTHONPATH": SOURCES, "PYTHONUNBUFFERED": "1", "COLUMNS": "500"}
    printed = _printed_at_start(arguments, tmp_path, environment, terminal)
    (token_file,) = tmp_path.glob("detent-admin-*.token")
    assert str(token_file) in printed
    assert (token_file.read_text().strip() in printed) == terminal


def _printed_at_start(arguments: list[str], folder: Path, environment: dict[str, str], terminal: bool) -> str:
    """What a server prints before it serves; its stdout is a terminal or a pipe."""
    reader, writer = os.openpty() if terminal else os.pipe()
    process = subprocess.Popen(arguments, cwd=folder, env=environment, stdout=writer, stderr=subprocess.DEVNULL)
    os.close(writer)
    try:
        printed = b""
        while b"written to" not in printed:
            printed += os.read(reader, 4096)
        port = printed.partition(b"http://0.0.0.0:")[2].split()[0].decode()
        httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=20)  # answered after everything was printed
        process.send_signal(signal.SIGTERM)
        with suppress(OSError):  # a terminal whose other end is closed
            while more := os.read(reader, 4096):
                printed += more
        return printed.decode()
    finally:
        process.kill()
        process.wait()
        os.close(reader)


def test_without_a_place_for_the_token_a_public_address_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url, gone = f"sqlite:///{tmp_path}/jobs.db", tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    in_memory = apsw.Connection(":memory:")  # of the application: it has no path to compare with that of the jobs
    assert run(["serve", "--host", "0.0.0.0", "--port", "0", "--url", url]) == 1
    assert "TOKENS_REQUIRED" in capsys.readouterr().err
    in_memory.close()
    monkeypatch.chdir(tmp_path)
    assert run(["token", "list", "--json", "--url", url]) == 0
    assert json.loads(capsys.readouterr().out)["items"] == []


def test_serving_a_postgres_database(tmp_path: Path) -> None:
    database = house(newest()).database()
    with serving(tmp_path, database.url) as at, httpx.Client(base_url=at) as client:
        assert client.post(f"{API}/jobs", json={"job_type": "x"}).status_code == 201
        assert client.get("/readyz").json() == {"ok": True}
    database.release()


def test_a_port_in_use_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with serving(tmp_path, url) as at:
        assert run(["serve", "--port", at.rpartition(":")[2], "--url", url]) == 1
        assert "CANNOT_SERVE" in capsys.readouterr().err


def test_a_revoked_token_is_refused_after_the_cache_expires(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    assert run(["token", "create", "--name", "ann", "--role", "viewer", "--json", "--url", url]) == 0
    created = json.loads(capsys.readouterr().out)
    headers = {"Authorization": f"Bearer {created['token']}"}
    with serving(tmp_path, url) as at, httpx.Client(base_url=at, headers=headers) as client:
        assert client.get(f"{API}/jobs").status_code == 200
        assert run(["token", "revoke", created["id"], "--url", url]) == 0
        until_now(lambda: client.get(f"{API}/jobs").status_code == 401, 2)


def test_up_runs_worker_and_server_in_one_process(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(APP)
    command = [sys.executable, "-m", "detent", "up", "one.py", "--port", "0", "--json"]
    environment = {**os.environ, "PYTHONPATH": SOURCES, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        with httpx.Client(base_url=first_json(process)["at"], timeout=20) as client:
            assert client.get("/readyz").json() == {"ok": True}
            body = {"job_type": "double", "payload": {"number": 21}}
            path = f"{API}/jobs/{client.post(f'{API}/jobs', json=body).json()['job']['id']}"
            while (job := client.get(path).json())["phase"] != "final":
                pass
            assert job["result"] == 42
            assert client.get("/").status_code == 200 and "Detent" in client.get("/").text
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_a_stopping_server_ends_streams_and_waiting_claims(tmp_path: Path) -> None:
    with serving(tmp_path, f"sqlite:///{tmp_path}/jobs.db") as at, httpx.Client(base_url=at, timeout=20) as client:
        waiting = {"worker": "w", "job_types": ["x"], "wait_seconds": 20.0}
        with ThreadPoolExecutor(1) as other, client.stream("GET", f"{API}/events/stream") as stream:
            claim = other.submit(httpx.post, f"{at}{API}/worker/claim", json=waiting, timeout=30)
            lines = stream.iter_lines()
            assert next(lines).startswith(":")
            while not client.get(f"{API}/workers").json()["items"]:
                pass
            started = time.monotonic()
            os.kill(int((tmp_path / "serve.pid").read_text()), signal.SIGTERM)
            assert [line for line in lines if line] == []
            assert claim.result(10).json()["jobs"] == []
            assert time.monotonic() - started < 4
    assert "Traceback" not in (tmp_path / "serve.log").read_text()


@pytest.mark.anyio
async def test_mounted_below_a_prefix(tmp_path: Path) -> None:
    """A mounted application gets no lifespan events; it opens on first use."""
    app = Detent(f"sqlite:///{tmp_path}/jobs.db")
    api = create_app(app, Settings(open_without_tokens=True))
    outer = Starlette()
    outer.mount("/jobs-api", api)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(outer), base_url="http://127.0.0.1") as client:
        created = await client.post(f"/jobs-api{API}/jobs", json={"job_type": "x"})
        assert created.status_code == 201
        assert created.headers["location"] == f"/jobs-api{API}/jobs/{created.json()['job']['id']}"
        assert (await client.get(created.headers["location"])).json()["id"] == created.json()["job"]["id"]
        assert (await client.get("/jobs-api/readyz")).status_code == 200
        assert code(await client.get("/jobs-api/nowhere"), 404) == "ROUTE_NOT_FOUND"
        assert (await client.get("/jobs-api/openapi.json")).json()["paths"]
    await api.state.web.close()


@pytest.mark.anyio
@pytest.mark.parametrize("place", ["sqlite-thread"], indirect=True)
async def test_a_slow_request_body_times_out(api: Api) -> None:
    """The client gets 408 BODY_TOO_SLOW, and other requests are served meanwhile."""
    api.app.state.web.settings = Settings(open_without_tokens=True, body_seconds=0.2)
    never = asyncio.Event()

    async def slowly() -> Any:
        yield b'{"job_type":'
        await never.wait()

    media = {"content-type": "application/json"}
    slow = asyncio.create_task(api.open.post(f"{API}/jobs", content=slowly(), headers=media))
    assert (await api.open.get(f"{API}/jobs")).status_code == 200
    response = await asyncio.wait_for(slow, 10)
    assert code(response, 408) == "BODY_TOO_SLOW"
