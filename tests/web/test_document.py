"""The OpenAPI document against the server it describes, by schemathesis, all checks."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from servers.databases import house, newest

from detent.cli import run
from web.served import SOURCES, serving

CONFIG = """
[[operations]]
include-path-regex = "^/api/v1/schedules"
checks.positive_data_acceptance.expected-statuses = ["2xx", "401", "403", "404", "409", "422"]
"""
"""Whether a text is a cron expression, a zone or a moment that fires is more than a schema can say."""


def explore(folder: Path, url: str, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(["token", "create", "--name", "st", "--role", "admin", "--url", url]) == 0
    token = capsys.readouterr().out.split()[0]
    (folder / "st.toml").write_text(CONFIG)
    program = shutil.which("schemathesis", path=str(Path(sys.executable).parent))
    assert program, "schemathesis is part of the development set"
    with serving(folder, url, DETENT_INTERNAL="1") as at:
        said = ["run", f"{at}/openapi.json", "-H", f"Authorization: Bearer {token}", "--checks", "all", "--seed", "5"]
        said += ["--exclude-path-regex", "/revoke$"]  # it would find its own token and revoke it
        done = subprocess.run(
            [program, "--config-file", "st.toml", *said, "--request-timeout", "30", *words],
            cwd=folder,
            capture_output=True,
            text=True,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": SOURCES, "HOME": str(folder)},
        )
    return done.stdout + done.stderr


def test_the_server_does_what_its_document_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = explore(tmp_path, f"sqlite:///{tmp_path}/jobs.db", capsys, "--phases", "fuzzing", "--max-examples", "2")
    assert "failures" not in told and re.search(r"Tested: [5-9]\d", told), told[-6_000:]


@pytest.mark.drill
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_the_server_does_what_its_document_says_at_length(
    tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    database = house(newest()).database() if store == "postgres" else None
    url = database.url if database else f"sqlite:///{tmp_path}/jobs.db"
    told = explore(tmp_path, url, capsys, "--max-examples", "50")
    assert "failures" not in told, told[-20_000:]


def test_the_document_is_whole(tmp_path: Path) -> None:
    with serving(tmp_path, f"sqlite:///{tmp_path}/jobs.db") as at, httpx.Client(base_url=at) as client:
        document = client.get("/openapi.json").json()
        assert document["openapi"].startswith("3.1")
        operations = [one for path in document["paths"].values() for one in path.values()]
        assert len(operations) >= 50 and all(one["description"] for one in operations)
        assert all("security" not in one for one in operations), "it is open, and says so"
        assert "/api/v1/internal/jobs/{job_id}/run" not in document["paths"]
        contracts = document["components"]["schemas"]["Submission"]["oneOf"]
        assert len(contracts) == 6
        frozen = document["components"]["schemas"]["Submission.gate-b2"]["properties"]["max_retries"]
        assert frozen == {"enum": [3, None]}
