"""Pending messages and lag in `stats` and `doctor`; and `up` with a Redis."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from detent.cli import run
from support.servers.postgres import free_port
from support.streams.process_harness import APP, TASKS, ProcessHarness, process_harness
from support.waiting import until_now


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProcessHarness]:
    with process_harness(tmp_path, "sqlite") as harness:
        monkeypatch.setenv("DETENT_URL", harness.url)
        monkeypatch.setenv("DETENT_REDIS_URL", harness.redis_url)
        yield harness


def test_stats_and_doctor_show_the_streams(harness: ProcessHarness, capsys: pytest.CaptureFixture[str]) -> None:
    harness.enqueue("add", 3, a=1)
    orchestrator = harness.orchestrate()
    until_now(lambda: harness.redis.xlen(TASKS) == 3)
    until_now(lambda: harness.run(lambda engine: engine.store.read(lambda tx: tx.outbox.count_outbox_items())) == 0)
    orchestrator.terminate()
    assert orchestrator.wait(20) == 0
    harness.redis.xreadgroup("cg:workers", "a worker", {TASKS: ">"}, 2)
    assert run(["stats", "--json"]) == 0
    stats = json.loads(capsys.readouterr().out)["streams"]
    assert stats["outbox"] == 0 and stats["problem"] is None
    tasks, results = stats["streams"]
    assert (tasks["stream"], tasks["length"], tasks["pending"], tasks["lag"]) == (TASKS, 3, 2, 1)
    assert results["stream"] == "stream:result"
    assert run(["stats"]) == 0
    assert "3 messages, 2 pending" in capsys.readouterr().out

    (first_id, *_) = [row["message_id"] for row in harness.redis.xpending_range(TASKS, "cg:workers", "-", "+", 9)]
    harness.redis.xclaim(TASKS, "cg:workers", "a worker", 0, [first_id], idle=700_000, justid=True)
    assert run(["doctor", "--json"]) == 1
    checks = [check for check in json.loads(capsys.readouterr().out)["checks"] if check["check"] == "streams"]
    assert [check["ok"] for check in checks] == [False, True]
    assert "orchestrate" in checks[0]["do"]


def test_an_unreachable_redis_is_shown(
    harness: ProcessHarness, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.enqueue("add", a=1)
    monkeypatch.setenv("DETENT_REDIS_URL", f"redis://127.0.0.1:{free_port()}/0")
    assert run(["stats", "--json"]) == 0
    assert "does not answer" in json.loads(capsys.readouterr().out)["streams"]["problem"]
    assert run(["doctor", "--json"]) == 1
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert [check["do"] for check in checks if check["check"] == "streams"] != [None]


def test_up_orchestrates_and_works_if_a_redis_is_configured(harness: ProcessHarness) -> None:
    up = [sys.executable, "-m", "detent", "up", str(APP), "--no-screen", "--url", harness.url, "--port", "0"]
    harness.start(*up)
    (task,) = harness.enqueue("add", a=20, b=22)
    harness.until_ended(task)
    assert harness.run(lambda e: e.jobs.get(task)).result == "42"
    assert "-" in str(harness.entries(task, "task.claimed")[0]["actor"])
    until_now(lambda: harness.pending() == 0)
    assert harness.redis.get("detent:epoch")


def test_a_database_worker_does_not_claim_stream_tasks(harness: ProcessHarness) -> None:
    (task,) = harness.enqueue("add", a=1)
    worker = harness.start(sys.executable, "-m", "detent", "worker", str(APP), "--until-idle", "--url", harness.url)
    assert worker.wait(30) == 0
    assert harness.status(task) == "queued"
    assert run(["worker", str(APP), "--transport", "redis", "--queues", "a"]) == 2
