"""Pending and lag where an operator looks: `stats`, `doctor`; and `up` with a Redis beside it."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers.postgres import free_port
from worker.waiting import until_now

from detent.cli import run

from .yard import APP, TASKS, Yard, yard_in


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    with yard_in(tmp_path, "sqlite") as made:
        monkeypatch.setenv("DETENT_URL", made.url)
        monkeypatch.setenv("DETENT_REDIS_URL", made.redis_url)
        yield made


def test_stats_and_doctor_tell_of_the_streams(yard: Yard, capsys: pytest.CaptureFixture[str]) -> None:
    yard.enqueue("add", 3, a=1)
    orchestrator = yard.orchestrate()
    until_now(lambda: yard.redis.xlen(TASKS) == 3)
    orchestrator.terminate()
    assert orchestrator.wait(20) == 0
    yard.redis.xreadgroup("cg:workers", "somebody", {TASKS: ">"}, 2)
    assert run(["stats", "--json"]) == 0
    seen = json.loads(capsys.readouterr().out)["streams"]
    assert seen["outbox"] == 0 and seen["problem"] is None
    tasks, results = seen["streams"]
    assert (tasks["stream"], tasks["length"], tasks["pending"], tasks["lag"]) == (TASKS, 3, 2, 1)
    assert results["stream"] == "stream:result"
    assert run(["stats"]) == 0
    assert "3 long, 2 pending" in capsys.readouterr().out

    (one, *_) = [row["message_id"] for row in yard.redis.xpending_range(TASKS, "cg:workers", "-", "+", 9)]
    yard.redis.xclaim(TASKS, "cg:workers", "somebody", 0, [one], idle=700_000, justid=True)
    assert run(["doctor", "--json"]) == 1
    checks = [check for check in json.loads(capsys.readouterr().out)["checks"] if check["check"] == "streams"]
    assert [check["ok"] for check in checks] == [False, True]
    assert "orchestrate" in checks[0]["do"]


def test_a_redis_that_does_not_answer_is_told(
    yard: Yard, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    yard.enqueue("add", a=1)
    monkeypatch.setenv("DETENT_REDIS_URL", f"redis://127.0.0.1:{free_port()}/0")
    assert run(["stats", "--json"]) == 0
    assert "does not answer" in json.loads(capsys.readouterr().out)["streams"]["problem"]
    assert run(["doctor", "--json"]) == 1
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert [check["do"] for check in checks if check["check"] == "streams"] != [None]


def test_up_orchestrates_and_works_where_a_redis_is_named(yard: Yard) -> None:
    up = [sys.executable, "-m", "detent", "up", str(APP), "--no-screen", "--url", yard.url, "--port", "0"]
    yard.start(*up)
    (task,) = yard.enqueue("add", a=20, b=22)
    yard.until_ended(task)
    assert yard.ask(lambda e: e.job(task)).result == "42"
    assert "-" in str(yard.entries(task, "task.claimed")[0]["actor"])
    until_now(lambda: yard.pending() == 0)
    assert yard.redis.get("detent:epoch")


def test_a_plain_worker_leaves_the_tasks_of_the_stream_alone(yard: Yard) -> None:
    (task,) = yard.enqueue("add", a=1)
    worker = yard.start(sys.executable, "-m", "detent", "worker", str(APP), "--until-idle", "--url", yard.url)
    assert worker.wait(30) == 0
    assert yard.status(task) == "queued"
    assert run(["worker", str(APP), "--transport", "redis", "--queues", "a"]) == 2
