"""The OpenAPI document compared with the server by schemathesis, with all checks."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from detent.cli import run
from support.servers.databases import house, newest
from support.web.served import SOURCES, serving

REFUSED_BY_VALUE = {
    "/schedules": "whether a text is a valid cron expression, time zone or time; tenant beside another tenant_id",
    "/jobs$|/jobs/export$|/dlq/(items|groups)$": "tenant beside another tenant_id; id beside filters; stored statuses",
    "/bulk/|/dlq/(requeue|discard)$": "tenant beside another tenant_id; the statuses of stored contracts",
    "/series": "two of queue, job_type and tenant_id; tenant beside another tenant_id",
    "/jobs$|/jobs/bulk$|/tasks$|/worker/children$": "a deadline in the past, and what a declared payload may not have",
    r"/jobs/\{job_id\}|/tasks/\{task_id\}": "a task_id that two contracts have; what the contract of the job has",
    "/internal/jobs/[^/]+/run$": "force_fail beside transient_fail",
    "/limits|/tokens$": "tenant beside another tenant_id",
    "/webhooks(/[^/]+)?$": "whether a host in brackets is an IPv6 address",
    "/webhooks/[^/]+/replay$": "a position of the log that is none",
    "/alerts/silences$": "which rules the settings have",
    "/worker/settle$": "whether a job is a child of another one; a timer without an end; wakes_on without children",
}
"""Paths -> what a JSON schema cannot express. Such requests are refused with 422, so that schemathesis may not expect
them to succeed."""
REFUSED_OTHERWISE = {
    "/dlq/items/.+/discard$": ["400"],  # whether the contract of the job wants a reason
    "/session$|/tokens/rotate$": ["401", "429"],  # which tokens exist, and how often an unknown one was sent
}
"""Paths -> other statuses for what a JSON schema cannot express."""
ACCEPTED = ["2xx", "304", "403", "404", "409"]
"""What else a valid request gets: 304 for an ETag, 403 where two people are needed, 404 and 409 for what is or is not
there. 401 is for requests without a token, which the check ignored_auth sends."""
WAITING = "/worker/claim$|/api/v1/jobs/[^/]+$"
"""Long polling for up to 20 s."""
CONFIG = f"checks.positive_data_acceptance.expected-statuses = {ACCEPTED}\n" + "".join(
    f"""
[[operations]]
include-path-regex = '{paths}'
checks.positive_data_acceptance.expected-statuses = {[*ACCEPTED, *refused]}
"""
    for paths, refused in ({paths: ["422"] for paths in REFUSED_BY_VALUE} | REFUSED_OTHERWISE).items()
)
CONFIG += f"""
[[operations]]
include-path-regex = '{WAITING}'
checks.max_response_time = 25
"""


def explore(folder: Path, url: str, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert run(["token", "create", "--name", "st", "--role", "admin", "--url", url]) == 0
    token = capsys.readouterr().out.split()[0]
    (folder / "st.toml").write_text(CONFIG)
    program = shutil.which("schemathesis", path=str(Path(sys.executable).parent))
    assert program, "schemathesis is not installed; it is a development dependency"
    with serving(folder, url, DETENT_INTERNAL="1") as at:
        write_document(folder / "st.json", at)
        arguments = [
            "run",
            "st.json",
            "--url",
            at,
            "-H",
            f"Authorization: Bearer {token}",
            "--checks",
            "all",
            "--seed",
            "5",
        ]
        # schemathesis would revoke its own token, and the stream has no end
        arguments += ["--exclude-path-regex", "(/revoke|/events/stream)$"]
        process = subprocess.run(
            [program, "--config-file", "st.toml", *arguments, "--request-timeout", "30", *options],
            cwd=folder,
            capture_output=True,
            text=True,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": SOURCES, "HOME": str(folder)},
        )
    return process.stdout + process.stderr


def write_document(path: Path, at: str) -> None:
    """The document without Idempotency-Key: schemathesis sends one key with several bodies, which is refused. And
    without `fields`: items of a list have only these fields then, and a schema cannot depend on a parameter."""
    document = httpx.get(f"{at}/openapi.json", timeout=60).json()
    for operation in (operation for methods in document["paths"].values() for operation in methods.values()):
        parameters = operation.get("parameters", [])
        operation["parameters"] = [part for part in parameters if part["name"] not in ("Idempotency-Key", "fields")]
    path.write_text(json.dumps(document))


@pytest.mark.long
def test_the_server_matches_its_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = explore(tmp_path, f"sqlite:///{tmp_path}/jobs.db", capsys, "--phases", "fuzzing", "--max-examples", "2")
    assert "failures" not in output and re.search(r"Tested: 1\d\d", output), output[-6_000:]


@pytest.mark.drill
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_the_server_matches_its_document_in_depth(
    tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    database = house(newest()).database() if store == "postgres" else None
    url = database.url if database else f"sqlite:///{tmp_path}/jobs.db"
    output = explore(tmp_path, url, capsys, "--max-examples", "50")
    if database:
        database.release()
    assert "failures" not in output, output[-20_000:]


def test_the_document_is_complete(tmp_path: Path) -> None:
    with serving(tmp_path, f"sqlite:///{tmp_path}/jobs.db") as at, httpx.Client(base_url=at, timeout=60) as client:
        document = client.get("/openapi.json").json()
        assert document["openapi"].startswith("3.1")
        operations = [operation for path in document["paths"].values() for operation in path.values()]
        assert len(operations) >= 50 and all(operation["description"] for operation in operations)
        assert all("security" not in operation for operation in operations), (
            "the API is open, so no operation needs a token"
        )
        assert "/api/v1/internal/jobs/{job_id}/run" not in document["paths"]
        contracts = document["components"]["schemas"]["Submission"]["oneOf"]
        assert len(contracts) == 6
        frozen = document["components"]["schemas"]["Submission.gate-b2"]["properties"]["max_retries"]
        assert frozen == {"enum": [3, None]}
