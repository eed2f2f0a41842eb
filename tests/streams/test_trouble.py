"""A Redis that goes away, comes back empty or comes back without its last moments; messages that were lost."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from servers.proxy import Proxy
from servers.valkey import running
from worker.waiting import until

from detent import Detent
from detent.client.stream_app import orchestrator, stream_settings
from detent.core.errors import InvalidInput
from detent.core.times import SECOND
from detent.engine import Submission
from detent.engine.streams.deliveries import Taker, receive
from detent.ports.listing import WorkerRow
from detent.ports.stream import StreamSettings, StreamUnavailable
from detent.transports.redis_streams.transport import RedisStreamTransport

from .stage import TASKS, Stage

pytestmark = pytest.mark.anyio


async def test_a_wiped_server_gets_every_unfinished_task_again(stage: Stage) -> None:
    """What waits, at once; what a worker holds, when its lease has run out."""
    jobs = [await stage.submit() for _ in range(5)]
    given_up = await stage.submit(max_retries=0)
    await stage.publish()
    held, _ = stage.read("survivor")
    stage.say("claimed", held, jobs[0].id, "survivor")
    for _ in range(4):
        stage.read("victim")
    lost, _ = stage.read("victim")
    stage.say("failed", lost, given_up.id)
    await stage.hear()
    await stage.publish()
    stage.redis.flushdb()

    before = stage.orchestrator.refilled
    await stage.publish()
    assert sorted(fields["task_id"] for _, fields in stage.redis.xrange(TASKS)) == sorted(job.id for job in jobs[1:])
    assert [dead_letter["task_id"] for dead_letter in stage.dead_letters()] == [given_up.id]
    assert stage.orchestrator.refilled - before == 5
    stage.say("succeeded", held, jobs[0].id, "survivor", output="7")
    await stage.hear()
    assert (await stage.job(jobs[0].id)).result == "7", "the worker outlived the server"
    await stage.work()
    assert {(await stage.job(job.id)).status for job in jobs} == {"succeeded"}
    await stage.verified()


async def test_a_holder_that_went_with_the_server_is_replaced(stage: Stage) -> None:
    job = await stage.submit()
    await stage.publish()
    message, _ = stage.read("gone too")
    stage.say("claimed", message, job.id, "gone too")
    await stage.hear()
    stage.redis.flushdb()
    await stage.publish()
    await stage.orchestrator.find_lost()
    await stage.publish()
    assert stage.redis.xlen(TASKS) == 0, "it may live"
    stage.clock.advance(301)
    await stage.orchestrator.find_lost()
    await stage.orchestrator.find_lost()
    await stage.publish()
    assert stage.redis.xlen(TASKS) == 1
    await stage.work()
    assert await stage.history(job.id) == ["task.created", "task.claimed", "task.reclaimed", "task.succeeded"]
    await stage.verified()


async def test_only_what_is_missing_is_published_again(stage: Stage) -> None:
    """A replica that lacked the last moments took over: it has our mark, but is another run of the server."""
    jobs = [await stage.submit() for _ in range(6)]
    await stage.publish()
    entries = stage.redis.xrange(TASKS)
    stage.redis.xdel(TASKS, *[message for message, fields in entries if fields["task_id"] in (jobs[2].id, jobs[5].id)])
    epoch, _ = await stage.orchestrator.wire.mark("unused")
    known = await stage.engine.store.read(lambda tx: tx.epoch(TASKS))
    await stage.engine.store.write(lambda tx: tx.put_epoch(TASKS, f"{epoch}/another run", known))
    before = stage.orchestrator.refilled
    await stage.publish()
    tasks = [fields["task_id"] for _, fields in stage.redis.xrange(TASKS)]
    assert sorted(tasks) == sorted(job.id for job in jobs) and stage.orchestrator.refilled - before == 2


async def test_a_message_that_was_deleted_while_pending_is_replaced(stage: Stage) -> None:
    job = await stage.submit()
    await stage.publish()
    message, _ = stage.read()
    stage.say("claimed", message, job.id)
    await stage.hear()
    stage.redis.xdel(TASKS, message)
    stage.age(message)
    stage.clock.advance(301)
    for _ in range(2):
        await stage.orchestrator.reclaim()
        await stage.orchestrator.find_lost()
        await stage.publish()
    await stage.work()
    assert (await stage.job(job.id)).status == "succeeded"
    await stage.verified()


async def test_a_lease_in_the_database_protects_a_worker_of_ours(stage: Stage) -> None:
    """Its signs of life did not reach Redis; the database has them."""
    job = await stage.submit()
    await stage.publish()
    (delivery,) = await stage.orchestrator.wire.read("ours", 10)
    row = WorkerRow("ours", "host", 1, "0", None, "[]", 1, 1, "working", 0, stage.clock.now(), 300 * SECOND)
    await stage.engine.store.write(lambda tx: tx.put_worker(row))
    taker = Taker("ours", 300 * SECOND)
    found = await stage.engine.store.write(lambda tx: receive(stage.engine, tx, taker, [delivery]))
    assert [claimed.id for claimed in found.claimed] == [job.id]
    again = await stage.engine.store.write(lambda tx: receive(stage.engine, tx, taker, [delivery]))
    assert again.claimed == found.claimed, "asked again after a lost reply"
    stage.age(delivery.message_id, "ours", 500)
    await stage.orchestrator.reclaim()
    (entry,) = stage.redis.xpending_range(TASKS, "cg:workers", "-", "+", 9)
    assert entry["consumer"] == "ours" and entry["time_since_delivered"] >= 500_000
    stage.clock.advance(301)
    await stage.orchestrator.reclaim()
    assert stage.redis.xlen(TASKS) == 1 and not stage.pending()


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Detent]:
    made = Detent(f"sqlite:///{tmp_path / 'jobs.db'}")

    @made.job("add", contract="streams")
    async def add(a: int) -> int:
        return a

    async with made:
        yield made


async def test_a_server_that_is_gone_for_a_while_and_comes_back_empty(app: Detent) -> None:
    """Orchestrator and worker go on by themselves; nothing is lost, nothing ends twice."""
    with running() as server, Proxy(server.port) as proxy:
        settings = StreamSettings(f"redis://127.0.0.1:{proxy.port}/0", visibility_timeout_s=1.0)
        engine = await app.ready()
        conductor = await orchestrator(app, settings)
        worker = await app.worker(transport="redis", settings=settings)
        tasks = [asyncio.create_task(conductor.run()), asyncio.create_task(worker.run(handle_signals=False))]

        async def some() -> list[str]:
            made = await engine.submit_many([Submission("add", {"a": n}, "streams") for n in range(40)])
            return [one.job.id for one in made]

        async def ended(ids: list[str]) -> bool:
            return {(await engine.job(one)).status for one in ids} == {"succeeded"}

        first = await some()
        await until(lambda: ended(first))
        proxy.cut()
        second = await some()
        await until(lambda: conductor.troubles >= 2)
        server.kill()
        server.start()
        proxy.open()
        await until(lambda: ended(second))
        third = await some()
        await until(lambda: ended(third))
        worker.stop()
        await tasks[1]
        tasks[0].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await conductor.wire.close()
        for one in (*first, *second, *third):
            events = (await engine.history(one)).events
            assert [event.event for event in events].count("task.succeeded") == 1


async def test_a_replica_takes_over_without_the_last_moments(app: Detent) -> None:
    """What the dead server had taken and never passed on is missed by the new one, and told to it again."""
    with running() as first, running() as second, Proxy(first.port) as proxy:
        second.client().replicaof("127.0.0.1", first.port)
        await until(lambda: second.client().info("replication").get("master_link_status") == "up")
        settings = StreamSettings(f"redis://127.0.0.1:{proxy.port}/0", visibility_timeout_s=1.0)
        engine = await app.ready()
        conductor = await orchestrator(app, settings)
        await conductor.watch_epoch()
        asks = [Submission("add", {"a": n}, "streams") for n in range(30)]
        passed_on = [one.job.id for one in await engine.submit_many(asks)]
        await conductor.relay()
        await until(lambda: second.client().xlen(TASKS) == 30)
        second.client().replicaof("NO", "ONE")  # the link is cut: from here on the first one speaks to itself
        lost = [one.job.id for one in await engine.submit_many(asks)]
        await conductor.relay()
        assert first.client().xlen(TASKS) == 60 and second.client().xlen(TASKS) == 30
        first.kill()
        proxy.target = second.port
        running_on = asyncio.create_task(conductor.run())
        worker = await app.worker(transport="redis", settings=settings)
        working = asyncio.create_task(worker.run(handle_signals=False))

        async def ended() -> bool:
            return {(await engine.job(one)).status for one in (*passed_on, *lost)} == {"succeeded"}

        await until(ended)
        assert conductor.refilled == 30
        worker.stop()
        await working
        running_on.cancel()
        await asyncio.gather(running_on, return_exceptions=True)
        await conductor.wire.close()
        assert {(await engine.job(one)).version for one in (*passed_on, *lost)} == {3}


async def test_a_server_that_does_not_answer_is_told_as_such() -> None:
    with running() as server:
        port = server.port
    wire = RedisStreamTransport(StreamSettings(f"redis://127.0.0.1:{port}/0"))
    with pytest.raises(StreamUnavailable, match="does not answer"):
        await wire.length()
    with pytest.raises(InvalidInput) as refused:
        RedisStreamTransport(StreamSettings("http://nowhere"))
    assert refused.value.code == "REDIS_URL_INVALID"


async def test_a_replica_is_not_written_to() -> None:
    with running() as first, running() as second:
        second.client().replicaof("127.0.0.1", first.port)
        wire = RedisStreamTransport(StreamSettings(second.url()))
        await until(lambda: second.client().info("replication")["role"] == "slave")
        with pytest.raises(StreamUnavailable, match="READONLY"):
            await wire.mark("epoch")
        second.client().replicaof("NO", "ONE")
        assert (await wire.mark("epoch"))[0] == "epoch"
        await wire.close()


async def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DETENT_REDIS_URL", raising=False)
    with pytest.raises(InvalidInput) as refused:
        stream_settings()
    assert refused.value.code == "REDIS_URL_MISSING"
    default = stream_settings("redis://here")
    assert (default.visibility_timeout_s, default.heartbeat_interval_s, default.task_stream) == (300, 30, "stream:task")
    assert (default.worker_group, default.orchestrator_group) == ("cg:workers", "cg:orchestrator")
    monkeypatch.setenv("DETENT_REDIS_URL", "redis://there")
    monkeypatch.setenv("DETENT_TASK_STREAM", "jobs")
    monkeypatch.setenv("VISIBILITY_TIMEOUT_S", "60")
    monkeypatch.setenv("DETENT_MAX_DELIVERIES", "4")
    given = stream_settings()
    assert (given.url, given.task_stream, given.visibility_timeout_s) == ("redis://there", "jobs", 60.0)
    assert given.max_deliveries == 4
    monkeypatch.setenv("DETENT_VISIBILITY_TIMEOUT_S", "soon")
    with pytest.raises(InvalidInput, match="soon"):
        stream_settings()
