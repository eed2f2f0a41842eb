"""Our own worker on the stream: batches, duplicates, poison, tools it does not have, and the older servers' way."""

import asyncio
import json

import pytest
from worker.waiting import until

from detent.engine import Submission
from detent.engine.streams.deliveries import receive
from detent.ports.listing import Filter
from detent.streams.stream_worker import StreamLeaseListener, StreamWorker

from .stage import TASKS, Stage, handlers

pytestmark = pytest.mark.anyio


async def test_many_tasks_leave_nothing_behind(stage: Stage) -> None:
    asks = [Submission("add", {"a": n, "b": 0}, "streams") for n in range(500)]
    made = await stage.engine.submit_many(asks)
    await stage.work()
    ended = [await stage.job(one.job.id) for one in made]
    assert [job.result for job in ended] == [str(n) for n in range(500)]
    assert {job.version for job in ended} == {3}
    assert not stage.pending() and stage.redis.xlen(TASKS) == 0
    assert await stage.engine.store.read(lambda tx: tx.count_outbox_items()) == 0
    await stage.verified()


async def test_a_message_told_twice_runs_once(stage: Stage) -> None:
    """The orchestrator died between telling the stream and forgetting the parcel."""
    job = await stage.submit()
    await stage.publish()
    ((_, fields),) = stage.redis.xrange(TASKS)
    for _ in range(3):
        stage.redis.xadd(TASKS, fields)
    await stage.work()
    assert await stage.history(job.id) == ["task.created", "task.claimed", "task.succeeded"]
    stage.redis.xadd(TASKS, fields)
    stage.redis.xadd(TASKS, {**fields, "retry_count": "3"})
    await stage.work()
    assert (await stage.job(job.id)).execution_no == 1
    assert not stage.pending() and stage.redis.xlen(TASKS) == 0


async def test_messages_beyond_a_short_claim_are_looked_at_too(stage: Stage) -> None:
    """They are ours and kept alive: nobody else would take them, and no further message comes to wake us."""
    await stage.submit()
    await stage.publish()
    ((_, fields),) = stage.redis.xrange(TASKS)
    for _ in range(5):
        stage.redis.xadd(TASKS, fields)
    worker = StreamWorker(stage.engine, handlers(), stage.wire(), slots=2)
    worker._keep(await worker.wire.read(worker.id, 6))
    run = asyncio.create_task(worker.run(handle_signals=False))
    await until(lambda: not stage.pending())
    worker.stop()
    assert await run == 0
    assert stage.redis.xlen(TASKS) == 0
    await stage.verified()


async def test_a_message_of_an_earlier_try_takes_nothing(stage: Stage) -> None:
    job = await stage.submit()
    await stage.publish()
    message, fields = stage.read()
    stage.say("failed", message, job.id)
    await stage.hear()
    stage.redis.xadd(TASKS, fields)
    worker = await stage.work()
    assert worker.done == 1
    history = await stage.history(job.id)
    assert history == ["task.created", "task.claimed", "task.retrying", "task.claimed", "task.succeeded"]
    assert not stage.pending()
    await stage.verified()


async def test_a_tool_the_worker_does_not_have_is_buried_at_once(stage: Stage) -> None:
    job = await stage.submit("teleport")
    await stage.publish()
    await stage.work()
    ended = await stage.job(job.id)
    assert (ended.error_code, ended.failures) == ("TOOL_UNKNOWN", 1)
    assert await stage.history(job.id) == ["task.created", "task.claimed", "task.failed", "task.dlq"]
    assert not stage.pending()


POISON = {
    "no JSON": ({"payload": "{oops"}, "TASK_UNKNOWN"),
    "nothing": ({"task_id": None, "tool_name": None, "payload": None, "retry_count": None}, "SCHEMA_INVALID"),
    "no tool": ({"tool_name": None}, "SCHEMA_INVALID"),
    "no count": ({"retry_count": "many"}, "SCHEMA_INVALID"),
    "10 MB": ({"payload": '{"x": "' + "y" * 10_000_000 + '"}'}, "SCHEMA_INVALID"),
    "bytes": ({"payload": b"\xff\x00\xfe", "tool_name": b"\xff", "task_id": b"\xff"}, "SCHEMA_INVALID"),
    "unknown task": ({"task_id": "01900000-0000-7000-8000-000000000001", "payload": '{"a": 1}'}, "TASK_UNKNOWN"),
}


@pytest.mark.parametrize("case", POISON)
async def test_poison_is_buried_and_stops_nobody(stage: Stage, case: str) -> None:
    fields, code = POISON[case]
    stage.group()
    message = stage.poison(**fields)
    good = await stage.submit()
    worker = await stage.work()
    assert (await stage.job(good.id)).status == "succeeded" and worker.done == 1
    (dead_letter,) = await stage.engine.dead_letters(Filter())
    assert dead_letter.error_code == code and dead_letter.contract == "streams"
    assert await stage.history(dead_letter.job_id) == ["task.created", "task.claimed", "task.failed", "task.dlq"]
    assert not stage.pending() and stage.redis.xlen(TASKS) == 0
    await stage.publish()
    assert [one["task_id"] for one in stage.dead_letters()] == [dead_letter.job_id]
    assert message in json.dumps((await stage.entry(dead_letter.job_id, "task.failed"))["data"])
    if case == "unknown task":
        again = await stage.engine.requeue(dead_letter.id, actor="ada")
        assert json.loads(again.job.payload) == {"a": 1}
    await stage.verified()


async def test_a_known_task_whose_message_is_broken_fails_for_good(stage: Stage) -> None:
    """Claimed and finished, as nothing leads from queued to failed."""
    broken, spoilt = await stage.submit(), await stage.submit()
    await stage.publish()
    stage.redis.xtrim(TASKS, 0)
    stage.poison(task_id=broken.id, payload="{oops")
    stage.poison(task_id=spoilt.id, tool_name=None)
    await stage.work()
    for job in (broken, spoilt):
        assert (await stage.job(job.id)).error_code == "SCHEMA_INVALID"
        assert await stage.history(job.id) == ["task.created", "task.claimed", "task.failed", "task.dlq"]
    await stage.verified()


async def test_poison_pending_with_a_dead_worker_is_buried_by_the_orchestrator(stage: Stage) -> None:
    stage.group()
    stage.poison(retry_count=None)
    message, _ = stage.read("died of it")
    stage.age(message, "died of it")
    await stage.orchestrator.reclaim()
    (dead_letter,) = await stage.engine.dead_letters(Filter())
    assert dead_letter.error_code == "SCHEMA_INVALID" and not stage.pending()


@pytest.mark.parametrize("autoclaim", [True, False], ids=["XAUTOCLAIM", "XPENDING + XCLAIM"])
async def test_messages_of_the_dead_go_to_the_living(stage: Stage, autoclaim: bool) -> None:
    """On old servers too: found page by page, taken by id."""
    jobs = [await stage.submit() for _ in range(7)]
    await stage.publish()
    stage.orchestrator = stage.another(autoclaim=autoclaim)
    messages = [stage.read("dead")[0] for _ in jobs]
    for message in messages[::2]:
        stage.age(message, "dead")
    taken = 0
    for _ in range(4):
        taken += await stage.orchestrator.reclaim()
    assert taken == 4
    alive = {row["message_id"] for row in stage.redis.xpending_range(TASKS, "cg:workers", "-", "+", 99, "dead")}
    assert alive == set(messages[1::2])
    await stage.orchestrator.wire.trim()
    for job, message in zip(jobs[1::2], messages[1::2], strict=True):
        stage.say("succeeded", message, job.id, "not so dead")
    await stage.hear()
    await stage.work()
    histories = [await stage.history(job.id) for job in jobs]
    assert histories[::2] == [["task.created", "task.claimed", "task.reclaimed", "task.succeeded"]] * 4
    assert histories[1::2] == [["task.created", "task.claimed", "task.succeeded"]] * 3


async def test_what_was_deleted_while_pending_does_not_stay_so(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server before 7.0 answers nothing in the place of such a message; the one here is made to."""
    for _ in range(2):
        await stage.submit()
    await stage.publish()
    (gone, _), (there, fields) = stage.read(), stage.read()
    stage.redis.xdel(TASKS, gone)
    wire = stage.orchestrator.wire
    rows = [(one.encode(), b"foreign", 300_000, 1) for one in (gone, there)]
    entry = (there.encode(), [text.encode() for pair in fields.items() for text in pair])

    async def together(commands: object) -> list[object]:
        return [rows, [b"0-0", [None, entry]]]

    monkeypatch.setattr(wire.link, "together", together)
    assert [one.delivery.message_id for one in await wire.stranded("us", 10)] == [there]
    assert stage.pending() == [there]


async def test_a_long_task_leaves_signs_of_life(stage: Stage) -> None:
    """The message is touched at every beat; a note in the database at most every 30 s, and none for short tasks."""
    job = await stage.submit()
    await stage.publish()
    worker = StreamWorker(stage.engine, {}, stage.wire())
    keeper = StreamLeaseListener(worker)
    (delivery,) = await worker.wire.read(worker.id, 1)
    taker = worker.taker
    await stage.engine.store.write(lambda tx: receive(stage.engine, tx, taker, [delivery]))
    held = {job.id: delivery.message_id}
    assert keeper.beat_seconds == 30
    notes = []
    for seconds in (10, 10, 10, 10, 20):
        stage.clock.advance(seconds)
        stage.age(delivery.message_id, worker.id, 200)
        await keeper.keep(stage.engine, held)
        (entry,) = stage.redis.xpending_range(TASKS, "cg:workers", "-", "+", 9)
        assert entry["time_since_delivered"] < 200_000
        notes.append((await stage.history(job.id)).count("task.heartbeat"))
    assert notes == [0, 0, 0, 1, 1]
    stage.clock.advance(30)
    await keeper.keep(stage.engine, held)
    assert (await stage.entry(job.id, "task.heartbeat"))["actor"] == worker.id
    assert (await stage.history(job.id)).count("task.heartbeat") == 2
    assert stage.redis.xlen(TASKS) == 1, "nothing is written to the stream"
    await keeper.close()
    await stage.verified()


async def test_two_orchestrators_share_the_work(stage: Stage) -> None:
    other = stage.another()
    for _ in range(20):
        await stage.submit()
    await stage.orchestrator.watch_epoch()
    await other.watch_epoch()
    taken = await stage.engine.store.write(lambda tx: tx.take_outbox_items(10, 5_000_000))
    assert len(taken) == 10
    while await other.relay():
        pass
    assert stage.redis.xlen(TASKS) == 10, "what another has taken is left to it for a while"
    stage.clock.advance(6)
    await stage.publish()
    assert stage.redis.xlen(TASKS) == 20
    await stage.work()
    await stage.verified()


async def test_paused_tasks_stay_in_the_outbox(stage: Stage) -> None:
    job = await stage.submit(queue="slow")
    await stage.engine.pause("queue", "slow", actor="ada")
    await stage.publish()
    assert stage.redis.xlen(TASKS) == 0
    await stage.engine.resume("queue", "slow", actor="ada")
    stage.clock.advance(6)
    await stage.work()
    assert (await stage.job(job.id)).status == "succeeded"


async def test_what_is_acknowledged_is_trimmed_what_is_not_stays(stage: Stage) -> None:
    jobs = [await stage.submit() for _ in range(4)]
    await stage.publish()
    messages = [stage.read()[0] for _ in jobs[:3]]
    stage.redis.xack(TASKS, "cg:workers", *messages[:2])
    await stage.orchestrator.wire.trim()
    assert next(message for message, _ in stage.redis.xrange(TASKS)) == messages[2]
    assert stage.redis.xlen(TASKS) == 2
    (tasks, _) = await stage.orchestrator.wire.health()
    assert (tasks.length, tasks.pending, tasks.lag) == (2, 1, 1)


async def test_a_full_stream_is_given_no_more(stage: Stage) -> None:
    stage.orchestrator = stage.another(max_length=3)
    for _ in range(3):
        await stage.submit()
        await stage.publish()
    await stage.submit()
    await stage.publish()
    assert stage.redis.xlen(TASKS) == 3
    assert await stage.engine.store.read(lambda tx: tx.count_outbox_items()) == 1


async def test_nothing_of_a_task_that_waits_for_approval_is_on_the_stream(stage: Stage) -> None:
    held, refused = await stage.submit(hold=True), await stage.submit(hold=True)
    await stage.publish()
    assert stage.redis.xlen(TASKS) == 0
    await stage.engine.approve(held.id, actor="ada", reason="fine")
    await stage.engine.reject(refused.id, actor="bob", reason="no")
    await stage.work()
    assert (await stage.job(held.id)).status == "succeeded"
    assert (await stage.history(held.id))[:3] == ["task.created", "approval.requested", "approval.approved"]
    assert await stage.history(refused.id) == [
        "task.created", "approval.requested", "approval.rejected", "task.failed",
    ]  # fmt: skip
    await stage.verified()
