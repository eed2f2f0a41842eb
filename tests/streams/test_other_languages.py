"""The example workers in Node and shell, each as the only worker, with an orchestrator process."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from detent.core.access import Scope
from detent.engine import Submission
from support.servers import programs
from support.servers.old_redis import on_servers
from support.servers.programs import node_packages
from support.servers.proxy import Proxy
from support.streams.process_harness import DEAD_LETTERS, RESULTS, TASKS, ProcessHarness, process_harness
from support.waiting import until_now

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def harness(tmp_path: Path, redis_url: str | None) -> Iterator[ProcessHarness]:
    with process_harness(tmp_path, "sqlite", 1.5, redis_url) as harness:
        yield harness


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder outside the repository with the npm package `redis`."""
    return node_packages(tmp_path_factory.mktemp("node"), "redis@^5")


def node(harness: ProcessHarness, packages: Path, redis_url: str | None = None) -> subprocess.Popen[bytes]:
    shutil.copy(EXAMPLES / "streams_worker.mjs", packages)
    script, url = str(packages / "streams_worker.mjs"), redis_url or harness.redis_url
    return harness.start(programs.node(), script, REDIS_URL=url, HEARTBEAT_INTERVAL_S="0.3")


def shell(harness: ProcessHarness) -> subprocess.Popen[bytes]:
    script, client = str(EXAMPLES / "streams_worker.sh"), programs.redis_cli(harness.folder)
    return harness.start(programs.bash(), script, REDIS_URL=harness.redis_url, REDIS_CLI=client)


def foreign(harness: ProcessHarness, tool: str, key: str | None = None, **payload: object) -> str:
    """Submit a task for a tool of a worker in another language."""
    submission = Submission(tool, payload, "streams", max_retries=1, idempotency_key=key)
    return str(harness.run(lambda e: e.jobs.submit(submission)).job.id)


def check(harness: ProcessHarness, good: str, bad: str, unknown: str) -> None:
    harness.until_ended(good, bad, unknown)
    assert harness.history(good) == ["task.created", "task.claimed", "task.succeeded"]
    attempts = ["task.claimed", "task.retrying", "task.claimed", "task.failed", "task.dlq"]
    assert harness.history(bad) == ["task.created", *attempts]
    assert "as its name says" in str(harness.run(lambda e: e.jobs.get(bad)).error_message)
    assert harness.history(unknown) == ["task.created", "task.claimed", "task.failed", "task.dlq"]
    assert harness.run(lambda e: e.jobs.get(unknown)).error_code == "TOOL_UNKNOWN"
    until_now(lambda: harness.pending() == 0)
    until_now(lambda: harness.redis.xlen(TASKS) == harness.redis.xlen(RESULTS) == 0)
    until_now(lambda: harness.redis.xlen(DEAD_LETTERS) == 2)

    harness.redis.flushdb()
    again = foreign(harness, harness.run(lambda e: e.jobs.get(good)).job_type, text="after the flood")
    harness.until_ended(again)
    assert harness.status(again) == "succeeded"
    harness.check_integrity()


@pytest.mark.long
@on_servers
def test_a_worker_in_node(harness: ProcessHarness, packages: Path) -> None:
    harness.orchestrate()
    node(harness, packages)
    good, bad = foreign(harness, "text.upper", text="ab\n\"ü'"), foreign(harness, "always.fails")
    slow = foreign(harness, "text.slowly", text="zz", ms=2_500)
    check(harness, good, bad, foreign(harness, "nowhere.known"))
    assert harness.run(lambda e: e.jobs.get(good)).result == '{"text":"AB\\n\\"Ü\'"}'
    harness.until_ended(slow)
    assert harness.history(slow) == ["task.created", "task.claimed", "task.succeeded"], "it kept its message alive"


@pytest.mark.drill
@on_servers
def test_a_node_worker_that_is_killed_and_an_effect_that_happens_once(harness: ProcessHarness, packages: Path) -> None:
    """Criteria 3 and 4. The effect was done before the failures, and the requeued task does not repeat it."""
    harness.orchestrate()
    first = node(harness, packages)
    slow = foreign(harness, "text.slowly", text="zz", ms=2_000)
    until_now(lambda: "task.claimed" in harness.history(slow))
    first.kill()
    first.wait()
    node(harness, packages)
    task, again = (foreign(harness, "order.place", "ORDER-1", order=7, fails=True) for _ in range(2))
    assert task == again
    harness.until_ended(task, slow)
    assert harness.history(slow) == ["task.created", "task.claimed", "task.reclaimed", "task.succeeded"]
    failed = harness.run(lambda e: e.jobs.get(task))
    assert (failed.status, failed.failures) == ("failed", 2)
    repaired = {"order": 7}
    requeued = harness.run(lambda e: e.dead_letters.requeue(failed.dlq_id, Scope("ada"), payload=repaired)).job.id
    harness.until_ended(requeued)
    assert harness.run(lambda e: e.jobs.get(requeued)).result == '{"placed":false}'
    assert harness.redis.hgetall("orders") == {"ORDER-1": "7"}
    until_now(lambda: harness.pending() == 0)
    harness.check_integrity()


@pytest.mark.parametrize("lost", [b"succeeded", b"XACK"])
def test_a_connection_lost_at_the_result_is_no_failure(harness: ProcessHarness, packages: Path, lost: bytes) -> None:
    address = urlsplit(harness.redis_url)
    assert address.port is not None
    with Proxy(address.port) as proxy:
        proxy.cut_at = lost
        harness.orchestrate()
        node(harness, packages, address._replace(netloc=f"127.0.0.1:{proxy.port}").geturl())
        task = foreign(harness, "text.upper", text="once")
        harness.until_ended(task)
        until_now(lambda: harness.pending() == 0)
        assert proxy.cut_at is None
        assert harness.history(task) == ["task.created", "task.claimed", "task.succeeded"]


@pytest.mark.long
def test_a_worker_in_shell(harness: ProcessHarness) -> None:
    harness.seconds = 60.0  # it starts a process for each command, and sends no heartbeat meanwhile
    harness.orchestrate()
    shell(harness)
    good, bad = foreign(harness, "text.bytes", text="four"), foreign(harness, "shell.fails")
    check(harness, good, bad, foreign(harness, "nowhere.known"))
    assert harness.run(lambda e: e.jobs.get(good)).result == '{"bytes":15}'
