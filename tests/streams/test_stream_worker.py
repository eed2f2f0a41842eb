"""The Detent worker on the stream: batches, duplicates, invalid messages, unknown tools, results for readers."""

import asyncio
import json
from urllib.parse import urlsplit

import pytest

from detent.core.access import Scope
from detent.engine import Submission
from detent.engine.streams.deliveries import receive_deliveries
from detent.ports.listing import Filter
from detent.streams.stream_worker import StreamLeaseListener, StreamWorker
from support.servers.proxy import Proxy
from support.streams.harness import RESULTS, TASKS, StreamHarness, handlers
from support.waiting import until

pytestmark = pytest.mark.anyio


async def test_many_tasks_leave_no_messages(harness: StreamHarness) -> None:
    submissions = [Submission("add", {"a": n, "b": 0}, "streams") for n in range(500)]
    submitted = await harness.engine.jobs.submit_many(submissions)
    await harness.work()
    ended = [await harness.job(entry.job.id) for entry in submitted]
    assert [job.result for job in ended] == [str(n) for n in range(500)]
    assert {job.version for job in ended} == {3}
    assert not harness.pending() and harness.redis.xlen(TASKS) == 0
    assert await harness.engine.store.read(lambda tx: tx.outbox.count_outbox_items()) == 0
    await harness.check_integrity()


async def test_a_message_published_twice_runs_once(harness: StreamHarness) -> None:
    """The orchestrator died between publishing an outbox item and deleting it."""
    job = await harness.submit()
    await harness.publish()
    ((_, fields),) = harness.redis.xrange(TASKS)
    for _ in range(3):
        harness.redis.xadd(TASKS, fields)
    await harness.work()
    assert await harness.history(job.id) == ["task.created", "task.claimed", "task.succeeded"]
    harness.redis.xadd(TASKS, fields)
    harness.redis.xadd(TASKS, {**fields, "retry_count": "3"})
    await harness.work()
    assert (await harness.job(job.id)).execution_no == 1
    assert not harness.pending() and harness.redis.xlen(TASKS) == 0


async def test_messages_beyond_the_claim_limit_are_claimed_later(
    harness: StreamHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This worker keeps them alive, so no other worker gets them, and no new message wakes it."""
    await harness.submit()
    await harness.publish()
    ((_, fields),) = harness.redis.xrange(TASKS)
    for _ in range(5):
        harness.redis.xadd(TASKS, fields)
    worker = StreamWorker(harness.engine, handlers(), harness.transport(), slots=2)
    read = worker.transport.read
    monkeypatch.setattr(worker.transport, "read", lambda worker_id, count, *wait: read(worker_id, max(count, 6), *wait))
    run = asyncio.create_task(worker.run(handle_signals=False))
    await until(lambda: not harness.redis.xlen(TASKS) and not harness.pending())
    worker.stop()
    assert await run == 0
    assert harness.redis.xlen(TASKS) == 0
    await harness.check_integrity()


async def test_a_message_of_an_earlier_attempt_claims_nothing(harness: StreamHarness) -> None:
    job = await harness.submit()
    await harness.publish()
    message, fields = harness.read()
    harness.report("failed", message, job.id)
    await harness.apply_results()
    harness.redis.xadd(TASKS, fields)
    worker = await harness.work()
    assert worker.done == 1
    history = await harness.history(job.id)
    assert history == ["task.created", "task.claimed", "task.retrying", "task.claimed", "task.succeeded"]
    assert not harness.pending()
    await harness.check_integrity()


async def test_an_unknown_tool_becomes_a_dead_letter_at_once(harness: StreamHarness) -> None:
    job = await harness.submit("teleport")
    await harness.publish()
    await harness.work()
    ended = await harness.job(job.id)
    assert (ended.error_code, ended.failures) == ("TOOL_UNKNOWN", 1)
    assert await harness.history(job.id) == ["task.created", "task.claimed", "task.failed", "task.dlq"]
    assert not harness.pending()


INVALID_MESSAGES = {
    "not JSON": ({"payload": "{oops"}, "TASK_UNKNOWN"),
    "nothing": ({"task_id": None, "tool_name": None, "payload": None, "retry_count": None}, "SCHEMA_INVALID"),
    "no tool": ({"tool_name": None}, "SCHEMA_INVALID"),
    "no count": ({"retry_count": "many"}, "SCHEMA_INVALID"),
    "10 MB": ({"payload": '{"x": "' + "y" * 10_000_000 + '"}'}, "SCHEMA_INVALID"),
    "bytes": ({"payload": b"\xff\x00\xfe", "tool_name": b"\xff", "task_id": b"\xff"}, "SCHEMA_INVALID"),
    "unknown task": ({"task_id": "01900000-0000-7000-8000-000000000001", "payload": '{"a": 1}'}, "TASK_UNKNOWN"),
}


@pytest.mark.parametrize("case", INVALID_MESSAGES)
async def test_an_invalid_message_becomes_a_dead_letter_and_blocks_no_other(harness: StreamHarness, case: str) -> None:
    fields, code = INVALID_MESSAGES[case]
    harness.group()
    message = harness.publish_invalid(**fields)
    good = await harness.submit()
    worker = await harness.work()
    assert (await harness.job(good.id)).status == "succeeded" and worker.done == 1
    (dead_letter,) = await harness.engine.dead_letters.list(Filter())
    assert dead_letter.error_code == code and dead_letter.contract == "streams"
    assert await harness.history(dead_letter.job_id) == ["task.created", "task.claimed", "task.failed", "task.dlq"]
    assert not harness.pending() and harness.redis.xlen(TASKS) == 0
    await harness.publish()
    assert [fields["task_id"] for fields in harness.dead_letters()] == [dead_letter.job_id]
    assert message in json.dumps((await harness.entry(dead_letter.job_id, "task.failed"))["data"])
    if case == "unknown task":
        again = await harness.engine.dead_letters.requeue(dead_letter.id, Scope("ada"))
        assert json.loads(again.job.payload) == {"a": 1}
    await harness.check_integrity()


async def test_a_task_with_an_invalid_message_fails_for_good(harness: StreamHarness) -> None:
    """It is claimed first, because the contract has no edge from queued to failed."""
    invalid_json, missing_field = await harness.submit(), await harness.submit()
    await harness.publish()
    harness.redis.xtrim(TASKS, 0)
    harness.publish_invalid(task_id=invalid_json.id, payload="{oops")
    harness.publish_invalid(task_id=missing_field.id, tool_name=None)
    await harness.work()
    for job in (invalid_json, missing_field):
        assert (await harness.job(job.id)).error_code == "SCHEMA_INVALID"
        assert await harness.history(job.id) == ["task.created", "task.claimed", "task.failed", "task.dlq"]
    await harness.check_integrity()


async def test_an_invalid_message_of_a_lost_worker_is_dead_lettered_by_the_orchestrator(harness: StreamHarness) -> None:
    harness.group()
    harness.publish_invalid(retry_count=None)
    message, _ = harness.read("lost")
    harness.set_idle(message, "lost")
    await harness.orchestrator.reclaim()
    (dead_letter,) = await harness.engine.dead_letters.list(Filter())
    assert dead_letter.error_code == "SCHEMA_INVALID" and not harness.pending()


async def test_a_long_task_sends_heartbeats(harness: StreamHarness) -> None:
    """Each heartbeat resets the idle time of the message; a note is written at most every 30 s for long tasks."""
    job = await harness.submit()
    await harness.publish()
    worker = StreamWorker(harness.engine, {}, harness.transport())
    listener = StreamLeaseListener(worker)
    (delivery,) = await worker.transport.read(worker.id, 1)
    claimer = worker.claimer
    await harness.engine.store.write(lambda tx: receive_deliveries(harness.engine, tx, claimer, [delivery]))
    held = {job.id: delivery.message_id}
    assert listener.beat_seconds == 30
    notes = []
    for seconds in (10, 10, 10, 10, 20):
        harness.clock.advance(seconds)
        harness.set_idle(delivery.message_id, worker.id, 200)
        await listener.on_heartbeat(harness.engine, held)
        (entry,) = harness.redis.xpending_range(TASKS, "cg:workers", "-", "+", 9)
        assert entry["time_since_delivered"] < 200_000
        notes.append((await harness.history(job.id)).count("task.heartbeat"))
    assert notes == [0, 0, 0, 1, 1]
    harness.clock.advance(30)
    await listener.on_heartbeat(harness.engine, held)
    assert (await harness.entry(job.id, "task.heartbeat"))["actor"] == worker.id
    assert (await harness.history(job.id)).count("task.heartbeat") == 2
    assert harness.redis.xlen(TASKS) == 1, "nothing is written to the stream"
    await listener.close()
    await harness.check_integrity()


async def test_two_orchestrators_share_the_work(harness: StreamHarness) -> None:
    other = harness.new_orchestrator()
    for _ in range(20):
        await harness.submit()
    await harness.orchestrator.check_epoch()
    await other.check_epoch()
    taken = await harness.engine.store.write(lambda tx: tx.outbox.take_outbox_items(10, 5_000_000))
    assert len(taken) == 10
    while await other.publish_outbox():
        pass
    assert harness.redis.xlen(TASKS) == 10, "items taken by another orchestrator are hidden for some time"
    harness.clock.advance(6)
    await harness.publish()
    assert harness.redis.xlen(TASKS) == 20
    await harness.work()
    await harness.check_integrity()


async def test_paused_tasks_stay_in_the_outbox(harness: StreamHarness) -> None:
    job = await harness.submit(queue="slow")
    await harness.engine.limits.pause("queue", "slow", Scope("ada"))
    await harness.publish()
    assert harness.redis.xlen(TASKS) == 0
    await harness.engine.limits.resume("queue", "slow", Scope("ada"))
    harness.clock.advance(6)
    await harness.work()
    assert (await harness.job(job.id)).status == "succeeded"


async def test_acknowledged_messages_are_trimmed_others_stay(harness: StreamHarness) -> None:
    jobs = [await harness.submit() for _ in range(4)]
    await harness.publish()
    messages = [harness.read()[0] for _ in jobs[:3]]
    harness.redis.xack(TASKS, "cg:workers", *messages[:2])
    await harness.orchestrator.transport.trim()
    assert next(message for message, _ in harness.redis.xrange(TASKS)) == messages[2]
    assert harness.redis.xlen(TASKS) == 2
    (tasks, _) = await harness.orchestrator.transport.health()
    assert (tasks.length, tasks.pending, tasks.lag) == (2, 1, 1)


async def test_nothing_is_published_to_a_full_stream(harness: StreamHarness) -> None:
    harness.orchestrator = harness.new_orchestrator(max_length=3)
    for _ in range(3):
        await harness.submit()
        await harness.publish()
    await harness.submit()
    await harness.publish()
    assert harness.redis.xlen(TASKS) == 3
    assert await harness.engine.store.read(lambda tx: tx.outbox.count_outbox_items()) == 1


async def test_a_task_that_waits_for_approval_is_not_on_the_stream(harness: StreamHarness) -> None:
    held, refused = await harness.submit(hold=True), await harness.submit(hold=True)
    await harness.publish()
    assert harness.redis.xlen(TASKS) == 0
    await harness.engine.approvals.approve(held.id, Scope("ada", "fine"))
    await harness.engine.approvals.reject(refused.id, Scope("bob", "no"))
    await harness.work()
    assert (await harness.job(held.id)).status == "succeeded"
    assert (await harness.history(held.id))[:3] == ["task.created", "approval.requested", "approval.approved"]
    assert await harness.history(refused.id) == [
        "task.created", "approval.requested", "approval.rejected", "task.failed",
    ]  # fmt: skip
    await harness.check_integrity()


async def test_a_worker_writes_its_results_for_readers_outside(harness: StreamHarness) -> None:
    """The orchestrator acknowledges them only: the database has them, and another group has not read them yet."""
    harness.redis.xgroup_create(RESULTS, "watcher", "0", True)
    good, bad = await harness.submit(), await harness.submit("fail", max_retries=1)
    worker = await harness.work(write_results=True)
    await harness.apply_results()
    ((_, entries),) = harness.redis.xreadgroup("watcher", "me", {RESULTS: ">"})
    results = sorted((fields for _, fields in entries), key=lambda fields: fields["status"])
    assert [fields["status"] for fields in results] == ["failed", "failed", "succeeded"]
    assert {fields["worker"] for fields in results} == {worker.id}
    assert (results[2]["task_id"], results[2]["output"]) == (good.id, "2")
    for failed in results[:2]:
        assert (failed["task_id"], failed["error_code"]) == (bad.id, "JOB_EXECUTION_FAILED")
        assert failed["retryable"] == "true"
        assert "it does not work" in failed["error"]
    assert "settle.refused" not in [*await harness.history(good.id), *await harness.history(bad.id)]
    assert harness.redis.xlen(RESULTS) == 3 and harness.redis.xpending(RESULTS, "cg:orchestrator")["pending"] == 0
    harness.redis.xack(RESULTS, "watcher", *[message for message, _ in entries])
    await harness.orchestrator.transport.trim()
    assert harness.redis.xlen(RESULTS) == 0
    await harness.check_integrity()


async def test_an_error_that_is_not_unicode_is_a_result_too(harness: StreamHarness) -> None:
    job = await harness.submit("garble", max_retries=0)
    await harness.work(write_results=True)
    assert [fields["error"] for _, fields in harness.redis.xrange(RESULTS)] == ["RuntimeError: not \\ud800 Unicode"]
    assert not harness.pending() and (await harness.job(job.id)).status == "failed"


async def test_without_the_option_a_worker_writes_no_results(harness: StreamHarness) -> None:
    await harness.submit()
    await harness.work()
    assert harness.redis.xlen(RESULTS) == 0


async def test_results_wait_for_a_server_that_is_away(harness: StreamHarness) -> None:
    """A result is written before its task is acknowledged, and neither is given up."""
    job = await harness.submit()
    await harness.publish()
    with Proxy(urlsplit(harness.settings.url).port or 0) as proxy:
        url = urlsplit(harness.settings.url)._replace(netloc=f"127.0.0.1:{proxy.port}").geturl()
        proxy.cut_at = b"settled"
        await harness.work(write_results=True, url=url)
        assert proxy.cut_at is None
    assert [fields["task_id"] for _, fields in harness.redis.xrange(RESULTS)] == [job.id]
    assert not harness.pending()
