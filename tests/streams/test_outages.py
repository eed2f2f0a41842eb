"""A Redis server that is unreachable, comes back empty or without its last writes; lost messages."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from detent import Detent
from detent.client.stream_app import orchestrator as make_orchestrator
from detent.client.stream_app import stream_settings
from detent.core.errors import InvalidInput
from detent.core.times import SECOND
from detent.engine import Submission
from detent.engine.streams.deliveries import StreamClaimer, receive_deliveries
from detent.ports.listing import WorkerRow
from detent.ports.stream import StreamSettings, StreamUnavailable
from detent.transports.redis_streams.transport import RedisStreamTransport
from support.servers.proxy import Proxy
from support.servers.valkey import running
from support.streams.harness import TASKS, StreamHarness
from support.waiting import until

pytestmark = pytest.mark.anyio


async def test_after_a_flush_every_unfinished_task_is_published_again(harness: StreamHarness) -> None:
    """Claimable tasks at once; leased tasks when their lease has expired."""
    jobs = [await harness.submit() for _ in range(5)]
    failed_job = await harness.submit(max_retries=0)
    await harness.publish()
    held, _ = harness.read("survivor")
    harness.report("claimed", held, jobs[0].id, "survivor")
    for _ in range(4):
        harness.read("victim")
    lost, _ = harness.read("victim")
    harness.report("failed", lost, failed_job.id)
    await harness.apply_results()
    await harness.publish()
    harness.redis.flushdb()

    before = harness.orchestrator.republished
    await harness.publish()
    assert sorted(fields["task_id"] for _, fields in harness.redis.xrange(TASKS)) == sorted(job.id for job in jobs[1:])
    assert [dead_letter["task_id"] for dead_letter in harness.dead_letters()] == [failed_job.id]
    assert harness.orchestrator.republished - before == 5
    harness.report("succeeded", held, jobs[0].id, "survivor", output="7")
    await harness.apply_results()
    assert (await harness.job(jobs[0].id)).result == "7", "the worker survived the loss of the stream"
    await harness.work()
    assert {(await harness.job(job.id)).status for job in jobs} == {"succeeded"}
    await harness.check_integrity()


async def test_a_task_that_the_clock_made_future_again_is_published_after_a_flush(harness: StreamHarness) -> None:
    """Its message is lost, its item has left the outbox, and it is not due: the clock was set back in between."""
    published, waiting = await harness.submit(delay=2.0), await harness.submit(delay=60.0)
    harness.clock.advance(3)
    await harness.publish()
    assert [fields["task_id"] for _, fields in harness.redis.xrange(TASKS)] == [published.id]
    harness.clock.advance(-30)
    harness.redis.flushdb()
    await harness.publish()
    assert harness.redis.xlen(TASKS) == 0, "it is not due"
    assert await harness.engine.store.read(lambda tx: tx.outbox.count_outbox_items()) == 2, "each is in it once"
    harness.clock.advance(32)
    await harness.publish()
    assert [fields["task_id"] for _, fields in harness.redis.xrange(TASKS)] == [published.id]
    harness.clock.advance(60)
    await harness.work()
    assert {(await harness.job(job.id)).status for job in (published, waiting)} == {"succeeded"}
    await harness.check_integrity()


async def test_a_worker_lost_with_the_server_is_replaced(harness: StreamHarness) -> None:
    job = await harness.submit()
    await harness.publish()
    message, _ = harness.read("lost")
    harness.report("claimed", message, job.id, "lost")
    await harness.apply_results()
    harness.redis.flushdb()
    await harness.publish()
    await harness.orchestrator.recover_lost_messages()
    await harness.publish()
    assert harness.redis.xlen(TASKS) == 0, "the worker may be alive"
    harness.clock.advance(301)
    await harness.orchestrator.recover_lost_messages()
    await harness.orchestrator.recover_lost_messages()
    await harness.publish()
    assert harness.redis.xlen(TASKS) == 1
    await harness.work()
    assert await harness.history(job.id) == ["task.created", "task.claimed", "task.reclaimed", "task.succeeded"]
    await harness.check_integrity()


async def test_only_missing_messages_are_published_again(harness: StreamHarness) -> None:
    """A replica without the last writes took over: it has the epoch key, but another run id."""
    jobs = [await harness.submit() for _ in range(6)]
    await harness.publish()
    entries = harness.redis.xrange(TASKS)
    harness.redis.xdel(
        TASKS, *[message for message, fields in entries if fields["task_id"] in (jobs[2].id, jobs[5].id)]
    )
    epoch, _ = await harness.orchestrator.transport.ensure_epoch("unused")
    stored = await harness.engine.store.read(lambda tx: tx.outbox.epoch(TASKS))
    await harness.engine.store.write(lambda tx: tx.outbox.put_epoch(TASKS, f"{epoch}/another run", stored))
    before = harness.orchestrator.republished
    await harness.publish()
    tasks = [fields["task_id"] for _, fields in harness.redis.xrange(TASKS)]
    assert sorted(tasks) == sorted(job.id for job in jobs) and harness.orchestrator.republished - before == 2


async def test_a_message_that_was_deleted_while_pending_is_replaced(harness: StreamHarness) -> None:
    job = await harness.submit()
    await harness.publish()
    message, _ = harness.read()
    harness.report("claimed", message, job.id)
    await harness.apply_results()
    harness.redis.xdel(TASKS, message)
    harness.set_idle(message)
    harness.clock.advance(301)
    for _ in range(2):
        await harness.orchestrator.reclaim()
        await harness.orchestrator.recover_lost_messages()
        await harness.publish()
    await harness.work()
    assert (await harness.job(job.id)).status == "succeeded"
    await harness.check_integrity()


async def test_a_valid_lease_in_the_database_protects_a_detent_worker(harness: StreamHarness) -> None:
    """Its heartbeats did not reach Redis, but the database."""
    job = await harness.submit()
    await harness.publish()
    (delivery,) = await harness.orchestrator.transport.read("ours", 10)
    row = WorkerRow("ours", "host", 1, "0", None, "[]", 1, 1, "working", 0, harness.clock.now(), 300 * SECOND)
    await harness.engine.store.write(lambda tx: tx.workers.put_worker(row))
    claimer = StreamClaimer("ours", 300 * SECOND)
    received = await harness.engine.store.write(lambda tx: receive_deliveries(harness.engine, tx, claimer, [delivery]))
    assert [claimed.id for claimed in received.claimed] == [job.id]
    again = await harness.engine.store.write(lambda tx: receive_deliveries(harness.engine, tx, claimer, [delivery]))
    assert again.claimed == received.claimed, "the same call again, after a lost reply"
    harness.set_idle(delivery.message_id, "ours", 500)
    await harness.orchestrator.reclaim()
    (entry,) = harness.redis.xpending_range(TASKS, "cg:workers", "-", "+", 9)
    assert entry["consumer"] == "ours" and entry["time_since_delivered"] >= 500_000
    harness.clock.advance(301)
    await harness.orchestrator.reclaim()
    assert harness.redis.xlen(TASKS) == 1 and not harness.pending()


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Detent]:
    app = Detent(f"sqlite:///{tmp_path / 'jobs.db'}")

    @app.job("add", contract="streams")
    async def add(a: int) -> int:
        return a

    async with app:
        yield app


async def test_a_server_that_is_unreachable_and_comes_back_empty(app: Detent) -> None:
    """Orchestrator and worker recover without help; no task is lost, none ends twice."""
    with running() as server, Proxy(server.port) as proxy:
        settings = StreamSettings(f"redis://127.0.0.1:{proxy.port}/0", visibility_timeout_s=1.0)
        engine = await app.ready()
        orchestrator = await make_orchestrator(app, settings)
        worker = await app.worker(transport="redis", settings=settings)
        tasks = [asyncio.create_task(orchestrator.run()), asyncio.create_task(worker.run(handle_signals=False))]

        async def submit_tasks() -> list[str]:
            submitted = await engine.jobs.submit_many([Submission("add", {"a": n}, "streams") for n in range(40)])
            return [entry.job.id for entry in submitted]

        async def ended(ids: list[str]) -> bool:
            return {(await engine.jobs.get(job_id)).status for job_id in ids} == {"succeeded"}

        first = await submit_tasks()
        await until(lambda: ended(first))
        proxy.cut()
        second = await submit_tasks()
        await until(lambda: orchestrator.errors >= 2)
        server.kill()
        server.start()
        proxy.open()
        await until(lambda: ended(second))
        third = await submit_tasks()
        await until(lambda: ended(third))
        worker.stop()
        await tasks[1]
        tasks[0].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await orchestrator.transport.close()
        for job_id in (*first, *second, *third):
            events = (await engine.jobs.history(job_id)).events
            assert [event.event for event in events].count("task.succeeded") == 1


@pytest.mark.long
async def test_a_replica_takes_over_without_the_last_writes(app: Detent) -> None:
    """Messages the primary did not replicate before it died are published again to the new primary."""
    with running() as first, running() as second, Proxy(first.port) as proxy:
        second.client().replicaof("127.0.0.1", first.port)
        await until(lambda: second.client().info("replication").get("master_link_status") == "up")
        settings = StreamSettings(f"redis://127.0.0.1:{proxy.port}/0", visibility_timeout_s=1.0)
        engine = await app.ready()
        orchestrator = await make_orchestrator(app, settings)
        await orchestrator.check_epoch()
        submissions = [Submission("add", {"a": n}, "streams") for n in range(30)]
        replicated = [submitted.job.id for submitted in await engine.jobs.submit_many(submissions)]
        await orchestrator.publish_outbox()
        await until(lambda: second.client().xlen(TASKS) == 30)
        second.client().replicaof("NO", "ONE")  # replication is cut: from here on the primary is alone
        lost = [submitted.job.id for submitted in await engine.jobs.submit_many(submissions)]
        await orchestrator.publish_outbox()
        assert first.client().xlen(TASKS) == 60 and second.client().xlen(TASKS) == 30
        first.kill()
        proxy.target = second.port
        running_orchestrator = asyncio.create_task(orchestrator.run())
        worker = await app.worker(transport="redis", settings=settings)
        working = asyncio.create_task(worker.run(handle_signals=False))

        async def ended() -> bool:
            return {(await engine.jobs.get(job_id)).status for job_id in (*replicated, *lost)} == {"succeeded"}

        await until(ended)
        assert orchestrator.republished == 30
        worker.stop()
        await working
        running_orchestrator.cancel()
        await asyncio.gather(running_orchestrator, return_exceptions=True)
        await orchestrator.transport.close()
        assert {(await engine.jobs.get(job_id)).version for job_id in (*replicated, *lost)} == {3}


async def test_a_server_that_refuses_to_trim(app: Detent, caplog: pytest.LogCaptureFixture) -> None:
    """It costs memory, but no grace begins in which messages of lost workers would be left alone."""
    with running("--save", "", "--rename-command", "XTRIM", "") as server:
        orchestrator = await make_orchestrator(app, StreamSettings(server.url(), visibility_timeout_s=0.5))
        task = asyncio.create_task(orchestrator.run())
        (submitted,) = await (await app.ready()).jobs.submit_many([Submission("add", {"a": 1}, "streams")])
        await until(lambda: server.client().xlen(TASKS) == 1)
        ((_, ((message, _),)),) = server.client().xreadgroup("cg:workers", "lost", {TASKS: ">"})
        await until(lambda: any("trimming the streams failed" in line for line in caplog.messages))
        await until(lambda: server.client().xrange(TASKS)[0][0] != message)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await orchestrator.transport.close()
        assert orchestrator.errors == 0 and submitted.job.id == server.client().xrange(TASKS)[0][1]["task_id"]


async def test_an_unreachable_server_is_a_clear_error() -> None:
    with running() as server:
        port = server.port
    transport = RedisStreamTransport(StreamSettings(f"redis://127.0.0.1:{port}/0"))
    with pytest.raises(StreamUnavailable, match="does not answer"):
        await transport.length()
    with pytest.raises(InvalidInput) as refused:
        RedisStreamTransport(StreamSettings("http://nowhere"))
    assert refused.value.code == "REDIS_URL_INVALID"


async def test_a_replica_is_not_written_to() -> None:
    with running() as first, running() as second:
        second.client().replicaof("127.0.0.1", first.port)
        transport = RedisStreamTransport(StreamSettings(second.url()))
        await until(lambda: second.client().info("replication")["role"] == "slave")
        with pytest.raises(StreamUnavailable, match="ReadOnlyError"):
            await transport.ensure_epoch("epoch")
        second.client().replicaof("NO", "ONE")
        assert (await transport.ensure_epoch("epoch"))[0] == "epoch"
        await transport.close()


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
    monkeypatch.setenv("DETENT_WRITE_RESULTS", "true")
    settings = stream_settings()
    assert (settings.url, settings.task_stream, settings.visibility_timeout_s) == ("redis://there", "jobs", 60.0)
    assert settings.max_deliveries == 4 and settings.write_results and not default.write_results
    monkeypatch.setenv("DETENT_VISIBILITY_TIMEOUT_S", "soon")
    with pytest.raises(InvalidInput, match="soon"):
        stream_settings()
