"""Workers that use only the stream: their results are applied to the database, also repeated and out of order."""

import asyncio
from typing import Any

import pytest

from detent.core.access import Scope
from detent.core.errors import StoreRefused
from detent.core.job import Job
from detent.engine import Submission
from detent.ports.listing import Filter
from support.streams.harness import RESULTS, TASKS, StreamHarness
from support.waiting import until

pytestmark = pytest.mark.anyio


async def test_a_task_and_its_result(harness: StreamHarness) -> None:
    job = await harness.submit(payload={"a": 2}, idempotency_key="order 7")
    await harness.publish()
    message, fields = harness.read()
    assert fields == {
        "task_id": job.id,
        "tool_name": "add",
        "payload": '{"a":2}',
        "retry_count": "0",
        "idempotency_key": "order 7",
        "trace_id": job.trace_id,
    }
    harness.report("claimed", message, job.id)
    await harness.apply_results()
    held = await harness.job(job.id)
    assert (held.status, held.token, held.worker) == ("running", message, "foreign")
    harness.report("succeeded", message, job.id, output='{"sum": 3}')
    harness.redis.xack(TASKS, "cg:workers", message)
    await harness.apply_results()
    ended = await harness.job(job.id)
    assert (ended.status, ended.result) == ("succeeded", '{"sum": 3}')
    assert await harness.history(job.id) == ["task.created", "task.claimed", "task.succeeded"]
    assert harness.redis.xlen(TASKS) == harness.redis.xlen(RESULTS) == 0
    await harness.check_integrity()


async def test_failures_are_retried_until_the_retries_are_used_up(harness: StreamHarness) -> None:
    job = await harness.submit()
    for number in range(4):
        await harness.publish()
        message, fields = harness.read()
        assert fields["retry_count"] == str(number)
        harness.report("failed", message, job.id, error="no luck", error_code="LUCK")
        await harness.apply_results()
    await harness.publish()
    ended = await harness.job(job.id)
    assert (ended.status, ended.error_code, ended.failures) == ("failed", "LUCK", 4)
    (dead_letter,) = harness.dead_letters()
    assert (dead_letter["retry_count"], dead_letter["error"]) == ("4", "LUCK: no luck")
    assert not harness.pending() and harness.redis.xlen(TASKS) == 0
    (item,) = await harness.engine.store.read(lambda tx: tx.dead_letters.dead_letters_of([job.id]))
    assert (item.id, item.retries) == (dead_letter["dlq_id"], 4)
    await harness.check_integrity()


@pytest.mark.parametrize("key", ["ORDER-1", None])
async def test_the_idempotency_key_survives_retries_and_requeues(harness: StreamHarness, key: str | None) -> None:
    """A worker that checks it does an effect once, although three tasks and four messages ask for it."""
    job = await harness.submit(idempotency_key=key, max_retries=1)
    effects, task_ids = list[str](), [job.id]
    for requeues in range(3):
        for _ in range(2 if requeues == 0 else 1):
            await harness.publish()
            message, fields = harness.read()
            assert fields["task_id"] == task_ids[-1]
            if fields["idempotency_key"] not in effects:
                effects.append(fields["idempotency_key"])
            retryable = "true" if requeues == 0 else "false"
            harness.report("failed", message, task_ids[-1], error="after the effect", retryable=retryable)
            await harness.apply_results()
        (item,) = await harness.engine.store.read(lambda tx: tx.dead_letters.dead_letters_of(task_ids[-1:]))
        task_ids.append((await harness.engine.dead_letters.requeue(item.id, Scope("ada"))).job.id)
    assert effects == [job.idempotency_key] and len(set(task_ids)) == 4
    again = await harness.engine.jobs.submit(Submission("add", contract="streams", idempotency_key=effects[0]))
    assert again.hit and again.job.id == job.id, "the first task owns the key"
    await harness.check_integrity()


@pytest.mark.parametrize("retryable", ["false", "False", "0"])
async def test_a_permanent_failure_becomes_a_dead_letter_at_once(harness: StreamHarness, retryable: str) -> None:
    job = await harness.submit()
    await harness.publish()
    message, _ = harness.read()
    harness.report("failed", message, job.id, error="no such tool", error_code="TOOL_UNKNOWN", retryable=retryable)
    await harness.apply_results()
    assert await harness.history(job.id) == ["task.created", "task.claimed", "task.failed", "task.dlq"]


async def test_repeated_results_count_once(harness: StreamHarness) -> None:
    job = await harness.submit()
    await harness.publish()
    message, _ = harness.read()
    for _ in range(2):
        harness.report("claimed", message, job.id)
    await harness.apply_results()
    for _ in range(3):
        harness.report("succeeded", message, job.id, output="1")
    await harness.apply_results()
    harness.report("succeeded", message, job.id, output="1")
    harness.report("claimed", message, job.id)
    await harness.apply_results()
    assert await harness.history(job.id) == ["task.created", "task.claimed", "task.succeeded"]


async def test_a_second_result_is_refused_and_noted(harness: StreamHarness) -> None:
    job = await harness.submit()
    await harness.publish()
    message, _ = harness.read()
    harness.report("succeeded", message, job.id, output="1")
    harness.report("failed", message, job.id, error="another result")
    harness.report("succeeded", "1-1", job.id, worker="other", output="2")
    await harness.apply_results()
    assert (await harness.job(job.id)).result == "1"
    assert await harness.history(job.id) == [
        "task.created", "task.claimed", "task.succeeded", "settle.refused", "settle.refused",
    ]  # fmt: skip
    noted = await harness.entry(job.id, "settle.refused")
    assert noted["actor"] == "other" and "1-1" in noted["data"]["message"]
    await harness.check_integrity()


async def _claimed_with_timeout(harness: StreamHarness) -> tuple[Job, str]:
    """A task with a timeout of 2 s that worker `slow` has claimed, and its message."""
    job = await harness.submit(timeout_ms=2_000)
    await harness.publish()
    message, _ = harness.read("slow")
    harness.report("claimed", message, job.id, "slow")
    await harness.apply_results()
    return job, message


@pytest.mark.parametrize("swept", [True, False])
async def test_a_task_that_outlasts_its_timeout_is_published_again(harness: StreamHarness, swept: bool) -> None:
    """Its worker reports a success too late. Without a sweep the next message about the task finds it out."""
    job, first = await _claimed_with_timeout(harness)
    harness.clock.advance(2.5)
    harness.report("succeeded", first, job.id, "slow", output="1")
    await harness.apply_results()
    assert (await harness.job(job.id)).status == "running", "refused, and its worker may still report the timeout"
    harness.clock.advance(0.5)
    if swept:
        await harness.engine.expire()
    else:
        harness.report("claimed", first, job.id, "another")
        await harness.apply_results()
    late = await harness.job(job.id)
    assert (late.status, late.error_code, late.failures) == ("queued", "JOB_TIMEOUT", 1)
    await harness.publish()
    second, fields = harness.read("other")
    assert (fields["task_id"], fields["retry_count"]) == (job.id, "1")
    harness.report("succeeded", second, job.id, "other", output="2")
    await harness.apply_results()
    ended = await harness.job(job.id)
    assert (ended.status, ended.result) == ("succeeded", "2")
    await harness.check_integrity()


async def test_a_result_of_another_message_does_not_end_an_execution_before_its_grace(harness: StreamHarness) -> None:
    """After the timeout the worker has a second to report it; a late result of an older message leaves that time."""
    job, first = await _claimed_with_timeout(harness)
    harness.clock.advance(2.5)
    harness.report("succeeded", "0-1", job.id, "older", output="1")
    await harness.apply_results()
    held = await harness.job(job.id)
    assert (held.status, held.token, held.worker) == ("running", first, "slow")
    assert await harness.history(job.id) == ["task.created", "task.claimed", "settle.refused"]
    harness.clock.advance(0.5)
    harness.report("succeeded", "0-1", job.id, "older", output="1")
    await harness.apply_results()
    late = await harness.job(job.id)
    assert (late.status, late.error_code, late.failures) == ("queued", "JOB_TIMEOUT", 1)
    await harness.check_integrity()


async def test_a_claim_after_the_end_of_its_own_message_claims_nothing(harness: StreamHarness) -> None:
    """The end of a second message ends the first execution by its timeout; its `claimed` comes in the same batch.

    Else the task would be held by a message that is acknowledged, until the lease expires.
    """
    job, _ = await _claimed_with_timeout(harness)
    harness.clock.advance(3)
    harness.report("failed", "9-1", job.id, "second", error="no")
    harness.report("claimed", "9-1", job.id, "second")
    await harness.apply_results()
    late = await harness.job(job.id)
    assert (late.status, late.error_code, late.failures) == ("queued", "JOB_TIMEOUT", 1)
    await harness.check_integrity()


async def test_the_orchestrator_ends_timeouts_where_no_other_process_sweeps(harness: StreamHarness) -> None:
    job, _ = await _claimed_with_timeout(harness)
    harness.clock.advance(3)
    orchestrator = asyncio.create_task(harness.orchestrator.run())
    try:
        await until(lambda: _has_failed_once(harness, job.id))
    finally:
        orchestrator.cancel()
        await asyncio.gather(orchestrator, return_exceptions=True)
    assert (await harness.job(job.id)).error_code == "JOB_TIMEOUT"


async def _has_failed_once(harness: StreamHarness, job_id: str) -> bool:
    return (await harness.job(job_id)).failures == 1


async def test_a_lost_worker_is_replaced_and_its_late_result_refused(harness: StreamHarness) -> None:
    job = await harness.submit()
    await harness.publish()
    first, _ = harness.read("slow")
    harness.report("claimed", first, job.id, "slow")
    await harness.apply_results()
    harness.set_idle(first, "slow", 299)
    assert await harness.orchestrator.reclaim() == 0
    harness.set_idle(first, "slow")
    assert await harness.orchestrator.reclaim() == 1
    second, fields = harness.read("quick")
    assert second != first and fields["retry_count"] == "0"
    harness.report("claimed", second, job.id, "quick")
    harness.report("succeeded", first, job.id, "slow", output='"late"')
    await harness.apply_results()
    harness.report("succeeded", second, job.id, "quick", output='"in time"')
    await harness.apply_results()
    assert (await harness.job(job.id)).result == '"in time"'
    reclaimed = await harness.entry(job.id, "task.reclaimed")
    assert reclaimed["data"] == {
        "old_consumer": "slow", "new_consumer": "quick", "message_id": first, "new_message_id": second,
    }  # fmt: skip
    assert (await harness.entry(job.id, "settle.refused"))["actor"] == "slow"
    assert not harness.pending()
    await harness.check_integrity()


async def test_a_worker_that_keeps_its_message_alive_keeps_its_task(harness: StreamHarness) -> None:
    """Its lease in the database expires, but it resets the idle time of its message."""
    job = await harness.submit()
    await harness.publish()
    message, _ = harness.read()
    harness.report("claimed", message, job.id)
    await harness.apply_results()
    for _ in range(3):
        harness.clock.advance(400)
        harness.set_idle(message, seconds=20)
        assert await harness.orchestrator.reclaim() == 0
        await harness.orchestrator.recover_lost_messages()
        await harness.publish()
        lease = (await harness.job(job.id)).lease_until or 0
        assert 270_000_000 < lease - harness.clock.now() <= 280_000_000
    assert harness.pending() == [message] and harness.redis.xlen(TASKS) == 1


async def test_a_message_read_but_never_claimed_is_logged_as_reclaimed(harness: StreamHarness) -> None:
    job = await harness.submit()
    await harness.publish()
    first, _ = harness.read("lost")
    harness.set_idle(first, "lost")
    await harness.orchestrator.reclaim()
    second, _ = harness.read("second")
    harness.report("succeeded", second, job.id, "second")
    await harness.apply_results()
    assert await harness.history(job.id) == ["task.created", "task.claimed", "task.reclaimed", "task.succeeded"]
    data = (await harness.entry(job.id, "task.reclaimed"))["data"]
    assert (data["old_consumer"], data["new_consumer"], data["message_id"]) == ("lost", "second", first)
    await harness.check_integrity()


async def test_a_worker_may_reclaim_messages_of_others_itself(harness: StreamHarness) -> None:
    """With XAUTOCLAIM, then `claimed` with the same message id."""
    job = await harness.submit()
    await harness.publish()
    message, _ = harness.read("first")
    harness.report("claimed", message, job.id, "first")
    harness.redis.xclaim(TASKS, "cg:workers", "second", 0, [message])
    harness.report("claimed", message, job.id, "second")
    harness.report("succeeded", message, job.id, "first", output="1")
    harness.report("succeeded", message, job.id, "second", output="2")
    await harness.apply_results()
    assert (await harness.job(job.id)).result == "2"
    history = await harness.history(job.id)
    assert history == ["task.created", "task.claimed", "task.reclaimed", "settle.refused", "task.succeeded"]


async def test_a_task_fails_after_max_deliveries(harness: StreamHarness) -> None:
    harness.orchestrator = harness.new_orchestrator(max_deliveries=2)
    job = await harness.submit()
    await harness.publish()
    for _ in range(2):
        message, _ = harness.read()
        harness.report("claimed", message, job.id)
        await harness.apply_results()
        harness.set_idle(message)
        await harness.orchestrator.reclaim()
    message, _ = harness.read()
    harness.report("claimed", message, job.id)
    await harness.apply_results()
    ended = await harness.job(job.id)
    assert (ended.status, ended.error_code, ended.failures) == ("failed", "WORKER_LOST", 0)
    assert (await harness.history(job.id))[-2:] == ["task.failed", "task.dlq"]
    await harness.check_integrity()


async def test_results_of_an_orchestrator_that_died_are_applied_by_another(harness: StreamHarness) -> None:
    job = await harness.submit()
    await harness.publish()
    message, _ = harness.read()
    harness.report("succeeded", message, job.id, output="1")
    taken = await harness.orchestrator.transport.read_results(harness.orchestrator.id, 100, 0.001)
    assert [result.task_id for result in taken] == [job.id]
    other = harness.new_orchestrator()
    await harness.apply_results(other)
    assert (await harness.job(job.id)).status == "queued", "the first orchestrator may still apply it"
    harness.redis.xclaim(RESULTS, "cg:orchestrator", "gone", 0, [taken[0].id], idle=60_000, justid=True)
    await harness.apply_results(other)
    assert (await harness.job(job.id)).result == "1"
    await harness.orchestrator.apply_results(taken)
    assert await harness.history(job.id) == ["task.created", "task.claimed", "task.succeeded"]
    assert harness.redis.xlen(RESULTS) == 0


@pytest.mark.parametrize(
    "fields",
    [{"output": "{oops"}, {"output": "NaN"}, {"status": "finished"}, {"output": "x" * 2_000_000}],
    ids=["not JSON", "not a number", "unknown status", "too long"],
)
async def test_an_invalid_result_fails_its_task_for_good(harness: StreamHarness, fields: dict[str, str]) -> None:
    job = await harness.submit()
    await harness.publish()
    message, _ = harness.read()
    harness.report(**{"status": "succeeded", "message_id": message, "task_id": job.id, **fields})  # type: ignore[arg-type]
    await harness.apply_results()
    ended = await harness.job(job.id)
    assert (ended.status, ended.error_code) == ("failed", "RESULT_INVALID")
    assert harness.redis.xlen(RESULTS) == 0


async def test_text_no_database_can_store_blocks_no_other_result(harness: StreamHarness) -> None:
    invalid, plain = await harness.submit(), await harness.submit()
    await harness.publish()
    first, second = harness.read()[0], harness.read()[0]
    harness.report("claimed", first, invalid.id, worker="\x00bad")
    harness.report("failed", first, invalid.id, worker="\x00bad", error="\x00", error_code="\x00", retryable="false")
    harness.report("succeeded", second, plain.id)
    await harness.apply_results()
    assert (await harness.job(invalid.id)).error_code == "\\x00"
    assert (await harness.job(plain.id)).status == "succeeded"


async def test_a_result_the_store_refuses_fails_its_task_and_blocks_no_other(
    harness: StreamHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = await harness.submit(), await harness.submit()
    await harness.publish()
    first, second = harness.read()[0], harness.read()[0]
    harness.report("succeeded", first, bad.id, output='"refused"')
    harness.report("succeeded", second, good.id, output='"fine"')
    write = harness.engine.store.write

    async def refusing(act: Any) -> Any:
        async def apply_policy(tx: Any) -> Any:
            answer = await act(tx)
            if (await tx.jobs.lock([bad.id]))[bad.id].result == '"refused"':
                raise StoreRefused("the value is not allowed")
            return answer

        return await write(apply_policy)

    monkeypatch.setattr(harness.engine.store, "write", refusing)
    await harness.apply_results()
    assert [(await harness.job(job.id)).status for job in (bad, good)] == ["failed", "succeeded"]
    assert "the value is not allowed" in str((await harness.job(bad.id)).error_message)
    assert harness.redis.xlen(RESULTS) == 0


@pytest.mark.parametrize("fields", [{}, {"task_id": "unknown", "status": "claimed"}, {"x": "\x00\ud800"}])
async def test_a_result_without_a_task_is_a_dead_letter(harness: StreamHarness, fields: dict[str, str]) -> None:
    message = {name.encode(): value.encode("utf-8", "surrogatepass") for name, value in ({"y": "1"} | fields).items()}
    harness.redis.xadd(RESULTS, message)
    await harness.apply_results()
    dead_letters = await harness.engine.dead_letters.list(Filter())
    assert [dead_letter.error_code for dead_letter in dead_letters] == ["RESULT_INVALID"]
    assert harness.redis.xlen(RESULTS) == 0
    await harness.check_integrity()
