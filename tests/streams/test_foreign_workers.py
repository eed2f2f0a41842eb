"""Workers that know only the stream: what they say is held against the database, in any order, any number of times."""

from typing import Any

import pytest

from detent.core.errors import StoreRefused
from detent.ports.listing import Filter

from .stage import RESULTS, TASKS, Stage

pytestmark = pytest.mark.anyio


async def test_a_task_and_its_result_go_round(stage: Stage) -> None:
    job = await stage.submit(payload={"a": 2}, idempotency_key="order 7")
    await stage.publish()
    message, fields = stage.read()
    assert fields == {
        "task_id": job.id,
        "tool_name": "add",
        "payload": '{"a":2}',
        "retry_count": "0",
        "idempotency_key": "order 7",
        "trace_id": job.trace_id,
    }
    stage.say("claimed", message, job.id)
    await stage.hear()
    held = await stage.job(job.id)
    assert (held.status, held.token, held.worker) == ("running", message, "foreign")
    stage.say("succeeded", message, job.id, output='{"sum": 3}')
    stage.redis.xack(TASKS, "cg:workers", message)
    await stage.hear()
    ended = await stage.job(job.id)
    assert (ended.status, ended.result) == ("succeeded", '{"sum": 3}')
    assert await stage.history(job.id) == ["task.created", "task.claimed", "task.succeeded"]
    assert stage.redis.xlen(TASKS) == stage.redis.xlen(RESULTS) == 0
    await stage.verified()


async def test_failures_come_back_until_the_tries_are_used_up(stage: Stage) -> None:
    job = await stage.submit()
    for number in range(4):
        await stage.publish()
        message, fields = stage.read()
        assert fields["retry_count"] == str(number)
        stage.say("failed", message, job.id, error="no luck", error_code="LUCK")
        await stage.hear()
    await stage.publish()
    ended = await stage.job(job.id)
    assert (ended.status, ended.error_code, ended.failures) == ("failed", "LUCK", 4)
    (dead_letter,) = stage.dead_letters()
    assert (dead_letter["retry_count"], dead_letter["error"]) == ("4", "LUCK: no luck")
    assert not stage.pending() and stage.redis.xlen(TASKS) == 0
    (item,) = await stage.engine.store.read(lambda tx: tx.dead_letters_of([job.id]))
    assert (item.id, item.retries) == (dead_letter["dlq_id"], 4)
    await stage.verified()


@pytest.mark.parametrize("retryable", ["false", "False", "0"])
async def test_a_failure_for_good_is_buried_at_once(stage: Stage, retryable: str) -> None:
    job = await stage.submit()
    await stage.publish()
    message, _ = stage.read()
    stage.say("failed", message, job.id, error="no such tool", error_code="TOOL_UNKNOWN", retryable=retryable)
    await stage.hear()
    assert await stage.history(job.id) == ["task.created", "task.claimed", "task.failed", "task.dlq"]


async def test_what_is_said_twice_counts_once(stage: Stage) -> None:
    job = await stage.submit()
    await stage.publish()
    message, _ = stage.read()
    for _ in range(2):
        stage.say("claimed", message, job.id)
    await stage.hear()
    for _ in range(3):
        stage.say("succeeded", message, job.id, output="1")
    await stage.hear()
    stage.say("succeeded", message, job.id, output="1")
    stage.say("claimed", message, job.id)
    await stage.hear()
    assert await stage.history(job.id) == ["task.created", "task.claimed", "task.succeeded"]


async def test_another_end_after_the_end_is_refused_and_noted(stage: Stage) -> None:
    job = await stage.submit()
    await stage.publish()
    message, _ = stage.read()
    stage.say("succeeded", message, job.id, output="1")
    stage.say("failed", message, job.id, error="changed my mind")
    stage.say("succeeded", "1-1", job.id, worker="liar", output="2")
    await stage.hear()
    assert (await stage.job(job.id)).result == "1"
    assert await stage.history(job.id) == [
        "task.created", "task.claimed", "task.succeeded", "settle.refused", "settle.refused",
    ]  # fmt: skip
    noted = await stage.entry(job.id, "settle.refused")
    assert noted["actor"] == "liar" and "1-1" in noted["data"]["message"]
    await stage.verified()


async def test_the_dead_are_robbed_and_come_too_late(stage: Stage) -> None:
    job = await stage.submit()
    await stage.publish()
    first, _ = stage.read("slow")
    stage.say("claimed", first, job.id, "slow")
    await stage.hear()
    stage.age(first, "slow", 299)
    assert await stage.orchestrator.reclaim() == 0
    stage.age(first, "slow")
    assert await stage.orchestrator.reclaim() == 1
    second, fields = stage.read("quick")
    assert second != first and fields["retry_count"] == "0"
    stage.say("claimed", second, job.id, "quick")
    stage.say("succeeded", first, job.id, "slow", output='"late"')
    await stage.hear()
    stage.say("succeeded", second, job.id, "quick", output='"in time"')
    await stage.hear()
    assert (await stage.job(job.id)).result == '"in time"'
    reclaimed = await stage.entry(job.id, "task.reclaimed")
    assert reclaimed["data"] == {
        "old_consumer": "slow", "new_consumer": "quick", "message_id": first, "new_message_id": second,
    }  # fmt: skip
    assert (await stage.entry(job.id, "settle.refused"))["actor"] == "slow"
    assert not stage.pending()
    await stage.verified()


async def test_a_worker_that_keeps_its_message_is_not_robbed(stage: Stage) -> None:
    """Its lease in the database runs out; its message, touched again and again, says that it lives."""
    job = await stage.submit()
    await stage.publish()
    message, _ = stage.read()
    stage.say("claimed", message, job.id)
    await stage.hear()
    for _ in range(3):
        stage.clock.advance(400)
        stage.age(message, seconds=20)
        assert await stage.orchestrator.reclaim() == 0
        await stage.orchestrator.find_lost()
        await stage.publish()
        lease = (await stage.job(job.id)).lease_until or 0
        assert 270_000_000 < lease - stage.clock.now() <= 280_000_000
    assert stage.pending() == [message] and stage.redis.xlen(TASKS) == 1


async def test_a_message_that_was_read_and_never_claimed_is_told_as_a_takeover(stage: Stage) -> None:
    job = await stage.submit()
    await stage.publish()
    first, _ = stage.read("died early")
    stage.age(first, "died early")
    await stage.orchestrator.reclaim()
    second, _ = stage.read("heir")
    stage.say("succeeded", second, job.id, "heir")
    await stage.hear()
    assert await stage.history(job.id) == ["task.created", "task.claimed", "task.reclaimed", "task.succeeded"]
    told = (await stage.entry(job.id, "task.reclaimed"))["data"]
    assert (told["old_consumer"], told["new_consumer"], told["message_id"]) == ("died early", "heir", first)
    await stage.verified()


async def test_a_worker_that_claims_messages_of_others_by_itself_takes_over_too(stage: Stage) -> None:
    """As the protocol lets it: XAUTOCLAIM, then `claimed` under the same message."""
    job = await stage.submit()
    await stage.publish()
    message, _ = stage.read("first")
    stage.say("claimed", message, job.id, "first")
    stage.redis.xclaim(TASKS, "cg:workers", "second", 0, [message])
    stage.say("claimed", message, job.id, "second")
    stage.say("succeeded", message, job.id, "first", output="1")
    stage.say("succeeded", message, job.id, "second", output="2")
    await stage.hear()
    assert (await stage.job(job.id)).result == "2"
    history = await stage.history(job.id)
    assert history == ["task.created", "task.claimed", "task.reclaimed", "settle.refused", "task.succeeded"]


async def test_a_task_survives_only_so_many_deliveries_if_asked(stage: Stage) -> None:
    stage.orchestrator = stage.another(max_deliveries=2)
    job = await stage.submit()
    await stage.publish()
    for _ in range(2):
        message, _ = stage.read()
        stage.say("claimed", message, job.id)
        await stage.hear()
        stage.age(message)
        await stage.orchestrator.reclaim()
    message, _ = stage.read()
    stage.say("claimed", message, job.id)
    await stage.hear()
    ended = await stage.job(job.id)
    assert (ended.status, ended.error_code, ended.failures) == ("failed", "WORKER_LOST", 0)
    assert (await stage.history(job.id))[-2:] == ["task.failed", "task.dlq"]
    await stage.verified()


async def test_results_of_an_orchestrator_that_died_are_applied_by_another(stage: Stage) -> None:
    job = await stage.submit()
    await stage.publish()
    message, _ = stage.read()
    stage.say("succeeded", message, job.id, output="1")
    taken = await stage.orchestrator.wire.read_results(stage.orchestrator.id, 100, 0.001)
    assert [one.task_id for one in taken] == [job.id]
    other = stage.another()
    await stage.hear(other)
    assert (await stage.job(job.id)).status == "queued", "it may still be at work"
    stage.redis.xclaim(RESULTS, "cg:orchestrator", "gone", 0, [taken[0].id], idle=60_000, justid=True)
    await stage.hear(other)
    assert (await stage.job(job.id)).result == "1"
    await stage.orchestrator.settle(taken)
    assert await stage.history(job.id) == ["task.created", "task.claimed", "task.succeeded"]
    assert stage.redis.xlen(RESULTS) == 0


@pytest.mark.parametrize(
    "fields",
    [{"output": "{oops"}, {"output": "NaN"}, {"status": "finished"}, {"output": "x" * 2_000_000}],
    ids=["no JSON", "no number", "unknown status", "too long"],
)
async def test_a_result_nobody_can_read_fails_its_task_for_good(stage: Stage, fields: dict[str, str]) -> None:
    job = await stage.submit()
    await stage.publish()
    message, _ = stage.read()
    stage.say(**{"status": "succeeded", "message_id": message, "task_id": job.id, **fields})  # type: ignore[arg-type]
    await stage.hear()
    ended = await stage.job(job.id)
    assert (ended.status, ended.error_code) == ("failed", "RESULT_INVALID")
    assert stage.redis.xlen(RESULTS) == 0


async def test_names_no_database_can_hold_stop_nobody(stage: Stage) -> None:
    strange, plain = await stage.submit(), await stage.submit()
    await stage.publish()
    first, second = stage.read()[0], stage.read()[0]
    stage.say("claimed", first, strange.id, worker="\x00bad")
    stage.say("failed", first, strange.id, worker="\x00bad", error="\x00", error_code="\x00", retryable="false")
    stage.say("succeeded", second, plain.id)
    await stage.hear()
    assert (await stage.job(strange.id)).error_code == "\\x00"
    assert (await stage.job(plain.id)).status == "succeeded"


async def test_a_result_the_store_refuses_fails_its_task_and_stops_nobody(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = await stage.submit(), await stage.submit()
    await stage.publish()
    first, second = stage.read()[0], stage.read()[0]
    stage.say("succeeded", first, bad.id, output='"unspeakable"')
    stage.say("succeeded", second, good.id, output='"fine"')
    write = stage.engine.store.write

    async def refusing(act: Any) -> Any:
        async def apply_policy(tx: Any) -> Any:
            answer = await act(tx)
            if (await tx.lock([bad.id]))[bad.id].result == '"unspeakable"':
                raise StoreRefused("no such words here")
            return answer

        return await write(apply_policy)

    monkeypatch.setattr(stage.engine.store, "write", refusing)
    await stage.hear()
    assert [(await stage.job(job.id)).status for job in (bad, good)] == ["failed", "succeeded"]
    assert "no such words" in str((await stage.job(bad.id)).error_message)
    assert stage.redis.xlen(RESULTS) == 0


@pytest.mark.parametrize("fields", [{}, {"task_id": "nobody", "status": "claimed"}, {"x": "\x00\ud800"}])
async def test_a_result_about_nothing_is_a_dead_letter(stage: Stage, fields: dict[str, str]) -> None:
    words = {name.encode(): value.encode("utf-8", "surrogatepass") for name, value in ({"y": "1"} | fields).items()}
    stage.redis.xadd(RESULTS, words)
    await stage.hear()
    dead_letters = await stage.engine.dead_letters(Filter())
    assert [dead_letter.error_code for dead_letter in dead_letters] == ["RESULT_INVALID"]
    assert stage.redis.xlen(RESULTS) == 0
    await stage.verified()
