"""The protocol's four acceptance criteria and who may be robbed, through a real server and real processes."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from worker.waiting import until_now

from .yard import LETTERS, Yard, yard_in

SECONDS = 2.0
"""The visibility timeout of these tests."""


@pytest.fixture
def yard(store: str, tmp_path: Path) -> Iterator[Yard]:
    with yard_in(tmp_path, store, SECONDS) as made:
        yield made


def over(first: str, *others: str) -> pytest.MarkDecorator:
    """These stores; the others are left to the drills."""
    drills = [pytest.param(name, marks=pytest.mark.drill) for name in others]
    return pytest.mark.parametrize("store", [first, *drills])


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_task_that_succeeds_and_one_that_fails_too_often(yard: Yard) -> None:
    """Criteria 1, 2 and 4: created, claimed, succeeded; tried to the end; a key that has its effect once."""
    yard.orchestrate()
    yard.work()
    (good,) = yard.enqueue("add", a=2, b=3)
    (bad,) = yard.enqueue("fail")
    (refused,) = yard.enqueue("refuse")
    once, again = (yard.enqueue("add", key="order 7", a=1)[0] for _ in range(2))
    assert once == again
    yard.until_ended(good, bad, refused, once)
    (after,) = yard.enqueue("add", key="order 7", a=1)
    assert after == once

    assert yard.history(good) == ["task.created", "task.claimed", "task.succeeded"]
    tried = ["task.claimed", "task.retrying"] * 3 + ["task.claimed", "task.failed", "task.dlq"]
    assert yard.history(bad) == ["task.created", *tried]
    assert yard.history(refused) == ["task.created", "task.claimed", "task.failed", "task.dlq"]
    assert [e["envelope"]["retry_count"] for e in yard.entries(bad, "task.retrying")] == [1, 2, 3]
    assert yard.entries(bad, "task.dlq")[0]["data"]["retry_count"] == 4
    written = [line for line in yard.lines() if line.startswith("add")]
    assert sorted(line.split()[1] for line in written) == sorted([good, once])

    until_now(lambda: yard.pending() == 0)
    dead_letters = until_now(lambda: len(found := yard.redis.xrange(LETTERS)) == 2 and found)
    said = {fields["task_id"]: fields for _, fields in dead_letters}
    assert said[bad]["retry_count"] == "4" and said[bad]["tool_name"] == "fail" and said[bad]["payload"] == "{}"
    assert said[bad]["failed_at"].endswith("Z") and "does not work" in said[bad]["error"]
    assert said[refused]["retry_count"] == "1"
    until_now(lambda: yard.redis.xlen("stream:task") == 0)
    yard.verified()


@over("postgres", "sqlite")
def test_a_killed_worker_loses_its_message_to_another(yard: Yard) -> None:
    """Criterion 3; and the event names both consumers and the message."""
    yard.orchestrate()
    first = yard.work()
    (task,) = yard.enqueue("linger", seconds=60)
    yard.until_written("linger", task, 1)
    (message,) = [entry["message_id"] for entry in yard.redis.xpending_range("stream:task", "cg:workers", "-", "+", 9)]
    holder = yard.entries(task, "task.claimed")[0]["actor"]
    first.kill()
    first.wait()
    yard.work()
    yard.until_ended(task)
    assert yard.history(task) == ["task.created", "task.claimed", "task.reclaimed", "task.succeeded"]
    (told,) = yard.entries(task, "task.reclaimed")
    assert told["data"]["old_consumer"] == holder and told["data"]["message_id"] == message
    assert told["data"]["new_consumer"] == told["actor"] != holder
    until_now(lambda: yard.pending() == 0)
    yard.verified()


@over("sqlite", "postgres")
def test_only_the_dead_are_robbed(yard: Yard) -> None:
    """One worker lives on beyond the timeout, even with a blocked loop; another is stopped, and comes back too late."""
    yard.orchestrate()
    stopped = yard.work("--slots", "1")
    (late,) = yard.enqueue("doze", seconds=SECONDS)
    yard.until_written("doze", late, 1, stopped.pid)
    os.kill(stopped.pid, signal.SIGSTOP)
    blocked = yard.work("--slots", "1")
    (long,) = yard.enqueue("hog", seconds=2 * SECONDS)
    yard.until_written("hog", long, blocked.pid)
    yard.work()
    yard.until_ended(late)
    os.kill(stopped.pid, signal.SIGCONT)
    until_now(lambda: "settle.refused" in yard.history(late))
    yard.until_ended(long)
    assert yard.history(long) == ["task.created", "task.claimed", "task.succeeded"]
    assert yard.history(late)[:4] == ["task.created", "task.claimed", "task.reclaimed", "task.succeeded"]
    assert yard.ask(lambda e: e.job(late)).result == '"execution 2"'
    yard.verified()
