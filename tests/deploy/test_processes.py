"""The commands of compose.yaml and of the Kubernetes manifests, run as processes on real Postgres and Valkey.

No container engine is needed: a process gets the command, the working directory and the environment of its service.
"""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from detent import Detent
from support.servers.databases import house, newest
from support.servers.postgres import free_port
from support.servers.valkey import fresh_url
from support.waiting import until_now

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DETENT = Path(sys.executable).with_name("detent")


@pytest.fixture
def environment() -> dict[str, str]:
    """The variables of the services, for an empty database and an empty Valkey."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DETENT")}
    server = house(newest())
    return clean | {"DETENT_URL": server.url(server.blank()), "DETENT_REDIS_URL": fresh_url()}


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.send_signal(signal.SIGTERM)
    for process in started:
        process.communicate(timeout=40)


def run(environment: dict[str, str], *words: str) -> str:
    done = subprocess.run([DETENT, *words], env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def on_port(words: list[str], option: str, port: int) -> list[str]:
    """The command with another port, on a loopback address."""
    changed = [*words]
    changed[changed.index(option) + 1] = str(port)
    host = "--host" if option == "--port" else "--metrics-host"
    changed[changed.index(host) + 1] = "127.0.0.1"
    return changed


def get(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
            return int(response.status)
    except OSError:
        return 0


def health_check() -> str:
    """The Python program of the image's HEALTHCHECK."""
    line = re.search(r"^HEALTHCHECK .* CMD (\[.*\])$", (DEPLOY / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    assert line is not None
    return str(json.loads(line[1])[2])


def services() -> dict[str, Any]:
    return dict(yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"])


def state(environment: dict[str, str], job_id: str) -> str:
    return str(json.loads(run(environment, "jobs", "show", job_id, "--json"))["phase"])


@pytest.mark.long
def test_the_services_run_jobs(
    environment: dict[str, str], processes: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    compose, api_port, metrics_port = services(), free_port(), free_port()
    run(environment, *compose["migrate"]["command"])
    api = on_port(compose["api"]["command"], "--port", api_port)
    worker = on_port(compose["worker"]["command"], "--metrics-port", metrics_port)
    stream_worker = on_port(compose["stream-worker"]["command"], "--metrics-port", free_port())
    for words, folder in (
        (api, tmp_path),
        (worker, DEPLOY / "app"),
        (stream_worker, DEPLOY / "app"),
        (compose["orchestrator"]["command"], DEPLOY / "app"),
    ):
        processes.append(
            subprocess.Popen(
                [DETENT, *words],
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    until_now(lambda: get(api_port, "/readyz") == 200 and get(metrics_port, "/healthz") == 200)
    for port, code in ((api_port, 0), (metrics_port, 0), (free_port(), 1)):
        program = health_check().replace("8400", str(port)).replace("9464", str(port))
        assert subprocess.run([sys.executable, "-c", program], check=False).returncode == code

    greeting = json.loads(run(environment, "enqueue", "greet", "--payload", '{"name": "you"}', "--json"))
    task = ["enqueue", "text.upper", "--contract", "streams", "--payload", '{"text": "hello"}', "--json"]
    for job in (greeting, json.loads(run(environment, *task))):
        until_now(lambda job_id=job["job"]["id"]: state(environment, job_id) == "final")
    assert json.loads(run(environment, "verify", "--json"))["ok"]


@pytest.mark.long
def test_keda_counts_the_ready_jobs(environment: dict[str, str]) -> None:
    """Jobs that are due later do not count."""
    run(environment, "migrate")
    app = Detent(environment["DETENT_URL"])

    @app.job
    async def greet(name: str) -> None: ...

    for delay in (0, 0, 0, 3600):
        app.sync.enqueue(greet.using(delay=delay), name="you")
    app.sync.close()
    scaled = next(yaml.safe_load_all((DEPLOY / "kubernetes/keda/scaled-object.yaml").read_text("utf-8")))
    trigger = scaled["spec"]["triggers"][0]
    with psycopg.connect(environment["DETENT_URL"]) as connection:
        assert connection.execute(trigger["metadata"]["query"]).fetchall() == [(3,)]


def test_the_manifests_use_the_commands_that_compose_runs() -> None:
    """So that the test above covers them: the same command and the same options, other numbers."""
    compose = services()
    for folder, name, service in (
        ("base", "api", "api"),
        ("base", "worker", "worker"),
        ("streams", "orchestrator", "orchestrator"),
    ):
        path = DEPLOY / "kubernetes" / folder / f"{name}.yaml"
        pod = next(yaml.safe_load_all(path.read_text("utf-8")))["spec"]["template"]["spec"]
        args = pod["containers"][0]["args"]
        assert [word for word in args if not word.isdigit()] == [
            word for word in compose[service]["command"] if not word.isdigit()
        ]
