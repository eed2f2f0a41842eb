"""Clients that openapi-typescript and openapi-python-client generate from docs/openapi.json compile and work.

Drills, except for the first test: both generators are installed into a temporary folder. openapi-python-client is no
development dependency, because it needs an older typer.
"""

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from detent.cli import run
from support.web.openapi_file import PATH
from support.web.served import serving

DOCUMENT = json.loads(PATH.read_text("utf-8"))
TYPESCRIPT_CLIENT = Path(__file__).parent / "clients" / "client.ts"
PYTHON_GENERATOR = "openapi-python-client==0.29.1"
NODE_PACKAGES = ["openapi-typescript@7.13.0", "openapi-fetch@0.17.0", "typescript@5.9.3", "@types/node@20"]

PYTHON_CLIENT = """
import json
import sys

from detent_client import AuthenticatedClient
from detent_client.api.jobs import get_job, list_jobs, submit_job
from detent_client.api.worker import claim_jobs, settle_job
from detent_client.models import ClaimRequest, SettleRequest, SettleRequestOutcome, SubmissionStandard
from detent_client.models.submission_standard_payload_type_0 import SubmissionStandardPayloadType0

base_url, token = sys.argv[1:]
client = AuthenticatedClient(base_url=base_url, token=token, raise_on_unexpected_status=True)
payload = SubmissionStandardPayloadType0.from_dict({"order": {"id": 7}, "tags": ["a"]})
submission = SubmissionStandard(job_type="charge", queue="py", payload=payload)
job = submit_job.sync(client=client, body=submission, idempotency_key="py-1").job
ids = [item.id for item in list_jobs.sync(client=client, queue="py").items]
(held,) = claim_jobs.sync(client=client, body=ClaimRequest(worker="py", job_types=["charge"])).jobs
outcome = SettleRequest(
    job_id=held.id,
    token=held.token,
    outcome=SettleRequestOutcome.SUCCEED,
    result={"echoed": held.payload.to_dict()},
)
assert settle_job.sync(client=client, body=outcome).ended
finished = get_job.sync(job.id, client=client, wait=5)
created = finished.created_at.isoformat()
print(json.dumps({"ids": ids, "id": job.id, "status": finished.status, "result": finished.result, "created": created}))
"""
"""Submits a job with a payload, lists it, claims and settles it."""


def output_of(folder: Path, *command: str) -> str:
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert process.returncode == 0, f"{command}: {process.stdout[-5_000:]}{process.stderr[-5_000:]}"
    return process.stdout + process.stderr


def check(folder: Path, capsys: pytest.CaptureFixture[str], *client: str) -> None:
    """Run a client against a server; it submits, lists, claims and settles a job."""
    url = f"sqlite:///{folder}/jobs.db"
    assert run(["token", "create", "--name", "client", "--role", "admin", "--url", url]) == 0
    token = capsys.readouterr().out.split()[0]
    with serving(folder, url) as at:
        printed: dict[str, Any] = json.loads(output_of(folder, *client, at, token))
    assert printed["ids"] == [printed["id"]] and printed["status"] == "succeeded"
    assert printed["result"] == {"echoed": {"order": {"id": 7}, "tags": ["a"]}}
    assert datetime.fromisoformat(printed["created"]).tzinfo is not None


def parts_of(part: Any) -> Iterator[dict[str, Any]]:
    """All objects in a part of the document."""
    if isinstance(part, dict):
        yield part
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from parts_of(inner)


def assert_distinct(names: Iterable[str], where: str) -> None:
    """Generators make names of classes, modules and members of them: without case and punctuation."""
    counts = Counter(re.sub(r"[^a-z0-9]", "", name.lower()) for name in names)
    assert "" not in counts and max(counts.values(), default=1) == 1, (where, counts.most_common(2))


def test_generators_can_name_what_the_document_has() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert_distinct(schemas, "schemas")
    for name, schema in schemas.items():
        assert_distinct(schema.get("properties", {}), name)
    operations = [operation for path in DOCUMENT["paths"].values() for operation in path.values()]
    assert_distinct([operation["operationId"] for operation in operations], "operations")
    for part in parts_of(DOCUMENT):
        if isinstance(part.get("$ref"), str):
            target: Any = DOCUMENT
            for key in part["$ref"].removeprefix("#/").split("/"):
                target = target[key]
        if isinstance(part.get("enum"), list):
            assert_distinct([value for value in part["enum"] if isinstance(value, str) and value], str(part["enum"]))


def test_alternatives_do_not_hide_the_fields_of_a_body() -> None:
    """A generator makes of each alternative at the top of a schema a class with the fields of the alternative only."""
    schemas = DOCUMENT["components"]["schemas"]
    assert [name for name, part in schemas.items() if "properties" in part and {"oneOf", "anyOf"} & part.keys()] == []


@pytest.mark.drill
def test_a_typescript_client(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not shutil.which("npm"):
        pytest.skip("npm is not installed")
    (tmp_path / "package.json").write_text('{"type": "module", "private": true}')
    output_of(tmp_path, "npm", "install", "--no-audit", "--no-fund", *NODE_PACKAGES)
    output_of(tmp_path, "npx", "openapi-typescript", str(PATH), "-o", "api.d.ts")
    shutil.copy(TYPESCRIPT_CLIENT, tmp_path)
    options = ["--strict", "--target", "es2022", "--module", "nodenext", "--skipLibCheck", "--types", "node"]
    output_of(tmp_path, "npx", "tsc", *options, "client.ts")
    check(tmp_path, capsys, "node", "client.js")


@pytest.mark.drill
def test_a_python_client(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output_of(tmp_path, sys.executable, "-m", "venv", "generator")
    python = tmp_path / "generator" / "bin" / "python"
    output_of(tmp_path, str(python), "-m", "pip", "install", "--quiet", PYTHON_GENERATOR)
    program = str(python.with_name("openapi-python-client"))
    (tmp_path / "options.yml").write_text("post_hooks: []\n")
    arguments = ["--path", str(PATH), "--meta", "none", "--output-path", "detent_client", "--config", "options.yml"]
    assert "Warning" not in output_of(tmp_path, program, "generate", *arguments)
    output_of(tmp_path, str(python), "-W", "error", "-m", "compileall", "-q", "detent_client")
    (tmp_path / "client.py").write_text(PYTHON_CLIENT)
    check(tmp_path, capsys, str(python), "client.py")
