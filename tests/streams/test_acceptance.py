"""The four acceptance criteria of the streams contract and reclaiming, with a real server and real processes."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.servers.old_redis import on_servers
from support.streams.process_harness import DEAD_LETTERS, ProcessHarness, process_harness
from support.waiting import until_now

VISIBILITY_SECONDS = 2.0
pytestmark = on_servers


@pytest.fixture
def harness(store: str, tmp_path: Path, redis_url: str | None) -> Iterator[ProcessHarness]:
    with process_harness(tmp_path, store, VISIBILITY_SECONDS, redis_url) as harness:
        yield harness


def on_stores(first: str, *others: str) -> pytest.MarkDecorator:
    """Run on the first store; on the others only in the drills."""
    drills = [pytest.param(name, marks=pytest.mark.drill) for name in others]
    return pytest.mark.parametrize("store", [first, *drills])


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_task_that_succeeds_and_one_that_fails_too_often(harness: ProcessHarness) -> None:
    """Criteria 1, 2 and 4: a success, exhausted retries, and an idempotency key that takes effect once."""
    harness.orchestrate()
    harness.work()
    (good,) = harness.enqueue("add", a=2, b=3)
    (bad,) = harness.enqueue("fail")
    (refused,) = harness.enqueue("refuse")
    once, again = (harness.enqueue("add", key="order 7", a=1)[0] for _ in range(2))
    assert once == again
    harness.until_ended(good, bad, refused, once)
    (after,) = harness.enqueue("add", key="order 7", a=1)
    assert after == once

    assert harness.history(good) == ["task.created", "task.claimed", "task.succeeded"]
    attempts = ["task.claimed", "task.retrying"] * 3 + ["task.claimed", "task.failed", "task.dlq"]
    assert harness.history(bad) == ["task.created", *attempts]
    assert harness.history(refused) == ["task.created", "task.claimed", "task.failed", "task.dlq"]
    assert [e["envelope"]["retry_count"] for e in harness.entries(bad, "task.retrying")] == [1, 2, 3]
    assert harness.entries(bad, "task.dlq")[0]["data"]["retry_count"] == 4
    written = [line for line in harness.lines() if line.startswith("add")]
    assert sorted(line.split()[1] for line in written) == sorted([good, once])

    until_now(lambda: harness.pending() == 0)
    dead_letters = until_now(lambda: len(entries := harness.redis.xrange(DEAD_LETTERS)) == 2 and entries)
    by_task = {fields["task_id"]: fields for _, fields in dead_letters}
    assert (
        by_task[bad]["retry_count"] == "4" and by_task[bad]["tool_name"] == "fail" and by_task[bad]["payload"] == "{}"
    )
    assert by_task[bad]["failed_at"].endswith("Z") and "does not work" in by_task[bad]["error"]
    assert by_task[refused]["retry_count"] == "1"
    until_now(lambda: harness.redis.xlen("stream:task") == 0)
    harness.check_integrity()


@pytest.mark.long
@on_stores("postgres", "sqlite")
def test_the_message_of_a_killed_worker_is_reclaimed(harness: ProcessHarness) -> None:
    """Criterion 3. The event names both consumers and the message."""
    harness.orchestrate()
    first = harness.work()
    (task,) = harness.enqueue("linger", seconds=60)
    harness.until_written("linger", task, 1)
    (message,) = [
        entry["message_id"] for entry in harness.redis.xpending_range("stream:task", "cg:workers", "-", "+", 9)
    ]
    holder = harness.entries(task, "task.claimed")[0]["actor"]
    first.kill()
    first.wait()
    harness.work()
    harness.until_ended(task)
    assert harness.history(task) == ["task.created", "task.claimed", "task.reclaimed", "task.succeeded"]
    (reclaimed,) = harness.entries(task, "task.reclaimed")
    assert reclaimed["data"]["old_consumer"] == holder and reclaimed["data"]["message_id"] == message
    assert reclaimed["data"]["new_consumer"] == reclaimed["actor"] != holder
    until_now(lambda: harness.pending() == 0)
    harness.check_integrity()


@pytest.mark.long
@on_stores("sqlite", "postgres")
def test_only_messages_of_lost_workers_are_reclaimed(harness: ProcessHarness) -> None:
    """A worker with a blocked event loop keeps its task beyond the timeout; a suspended one loses it."""
    harness.orchestrate()
    stopped = harness.work("--slots", "1")
    (late,) = harness.enqueue("doze", seconds=VISIBILITY_SECONDS)
    harness.until_written("doze", late, 1, stopped.pid)
    os.kill(stopped.pid, signal.SIGSTOP)
    blocked = harness.work("--slots", "1")
    (long,) = harness.enqueue("hog", seconds=2 * VISIBILITY_SECONDS)
    harness.until_written("hog", long, blocked.pid)
    harness.work()
    harness.until_ended(late)
    os.kill(stopped.pid, signal.SIGCONT)
    until_now(lambda: "settle.refused" in harness.history(late))
    harness.until_ended(long)
    assert harness.history(long) == ["task.created", "task.claimed", "task.succeeded"]
    assert harness.history(late)[:4] == ["task.created", "task.claimed", "task.reclaimed", "task.succeeded"]
    assert harness.run(lambda e: e.jobs.get(late)).result == '"execution 2"'
    harness.check_integrity()
