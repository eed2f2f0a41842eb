"""The example workers in Node and in shell, each alone on the stream, against a real orchestrator process."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from worker.waiting import until_now

from detent.engine import Submission

from .yard import LETTERS, RESULTS, TASKS, Yard, yard_in

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def redis_cli(folder: Path) -> str:
    """The program of that name; without one, its few words spoken by the Python client."""
    if found := shutil.which("redis-cli") or shutil.which("valkey-cli"):
        return found
    script = folder / "redis_cli.py"
    script.write_text(SPOKEN)
    return f"{sys.executable} {script}"


SPOKEN = '''"""redis-cli -u URL --raw WORD...: prints the answer, one line a value."""
import sys
import redis

def show(value):
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, list):
            show(one)
        elif one is not None:
            print(one.decode() if isinstance(one, bytes) else one)

client = redis.Redis.from_url(sys.argv[2], protocol=2)
client.response_callbacks.clear()
try:
    show(client.execute_command(*sys.argv[4:]))
except redis.ResponseError as error:
    print(error)
'''


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with yard_in(tmp_path, "sqlite", 1.5) as made:
        yield made


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the npm package `redis`; never in the repository."""
    npm = shutil.which("npm")
    assert npm, "no npm: install Node, its example worker is part of what is tested"
    folder = tmp_path_factory.mktemp("node")
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    words = [npm, "install", "--no-audit", "--no-fund", "--silent", "--prefix", str(folder), "redis@^5"]
    subprocess.run(words, check=True, timeout=120)
    return folder


def node(yard: Yard, packages: Path) -> subprocess.Popen[bytes]:
    shutil.copy(EXAMPLES / "streams_worker.mjs", packages)
    program = shutil.which("node")
    assert program
    return yard.start(
        program, str(packages / "streams_worker.mjs"), REDIS_URL=yard.redis_url, HEARTBEAT_INTERVAL_S="0.3"
    )


def shell(yard: Yard) -> subprocess.Popen[bytes]:
    return yard.start(str(EXAMPLES / "streams_worker.sh"), REDIS_URL=yard.redis_url, REDIS_CLI=redis_cli(yard.folder))


def foreign(yard: Yard, tool: str, **payload: object) -> str:
    """A task for a tool that only another language has."""
    made = yard.ask(lambda e: e.submit(Submission(tool, payload, "streams", max_retries=1)))
    return str(made.job.id)


def check(yard: Yard, good: str, bad: str, unknown: str) -> None:
    yard.until_ended(good, bad, unknown)
    assert yard.history(good) == ["task.created", "task.claimed", "task.succeeded"]
    tried = ["task.claimed", "task.retrying", "task.claimed", "task.failed", "task.dlq"]
    assert yard.history(bad) == ["task.created", *tried]
    assert "as its name says" in str(yard.ask(lambda e: e.job(bad)).error_message)
    assert yard.history(unknown) == ["task.created", "task.claimed", "task.failed", "task.dlq"]
    assert yard.ask(lambda e: e.job(unknown)).error_code == "TOOL_UNKNOWN"
    until_now(lambda: yard.pending() == 0)
    until_now(lambda: yard.redis.xlen(TASKS) == yard.redis.xlen(RESULTS) == 0)
    until_now(lambda: yard.redis.xlen(LETTERS) == 2)

    yard.redis.flushdb()
    again = foreign(yard, yard.ask(lambda e: e.job(good)).job_type, text="after the flood")
    yard.until_ended(again)
    assert yard.status(again) == "succeeded"
    yard.verified()


def test_a_worker_in_node(yard: Yard, packages: Path) -> None:
    yard.orchestrate()
    node(yard, packages)
    good, bad = foreign(yard, "text.upper", text="ab\n\"ü'"), foreign(yard, "always.fails")
    slow = foreign(yard, "text.slowly", text="zz", ms=2_500)
    check(yard, good, bad, foreign(yard, "nowhere.known"))
    assert yard.ask(lambda e: e.job(good)).result == '{"text":"AB\\n\\"Ü\'"}'
    yard.until_ended(slow)
    assert yard.history(slow) == ["task.created", "task.claimed", "task.succeeded"], "it kept its message"


def test_a_worker_in_shell(yard: Yard) -> None:
    yard.orchestrate()
    shell(yard)
    good, bad = foreign(yard, "text.bytes", text="four"), foreign(yard, "shell.fails")
    check(yard, good, bad, foreign(yard, "nowhere.known"))
    assert yard.ask(lambda e: e.job(good)).result == '{"bytes":15}'
