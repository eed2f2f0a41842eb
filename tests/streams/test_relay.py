"""The relay: tasks are published by the process that submits them; orchestrators publish what it did not."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from detent import Context, Detent
from detent.core.access import Scope
from detent.engine import Submission
from detent.streams.orchestrator import Orchestrator
from detent.streams.relay import Relay
from detent.transports.redis_streams.transport import RedisStreamTransport
from support.servers.postgres import free_port
from support.streams.harness import TASKS, StreamHarness

pytestmark = pytest.mark.anyio
HOLD_SECONDS = 1.0


async def attach(harness: StreamHarness) -> Relay:
    """A relay in a process whose stream an orchestrator has used before."""
    await harness.orchestrator.check_epoch()
    harness.engine.relay = relay = Relay(harness.engine.store, harness.transport())
    return relay


async def outbox_items(harness: StreamHarness) -> int:
    return await harness.engine.store.read(lambda tx: tx.outbox.count_outbox_items())


async def test_a_task_is_published_without_an_orchestrator(harness: StreamHarness) -> None:
    relay = await attach(harness)
    job = await harness.submit(payload={"a": 1}, trace_id="t")
    await relay.close()
    ((_, fields),) = harness.redis.xrange(TASKS)
    assert fields == {
        "task_id": job.id, "tool_name": "add", "payload": '{"a":1}', "retry_count": "0",
        "idempotency_key": f"auto-{job.id}", "trace_id": "t",
    }  # fmt: skip
    assert await outbox_items(harness) == 0
    assert await harness.orchestrator.publish_outbox() == 0
    await harness.work()
    assert (await harness.job(job.id)).status == "succeeded"


async def test_bulk_and_keyed_tasks_are_published_too(harness: StreamHarness) -> None:
    relay, jobs = await attach(harness), harness.engine.jobs
    submitted = await jobs.submit_uniform(Submission("add", contract="streams"), [{"a": n} for n in range(1_200)])
    keyed = [Submission("add", contract="streams", idempotency_key=key) for key in ("k", "l", "k")]
    ids = {job.id for job in submitted} | {(await jobs.submit(submission)).job.id for submission in keyed}
    await relay.close()
    assert len(ids) == 1_202
    assert sorted(fields["task_id"] for _, fields in harness.redis.xrange(TASKS)) == sorted(ids)
    assert await outbox_items(harness) == 0


async def test_what_is_delayed_or_paused_is_left_to_the_orchestrators(harness: StreamHarness) -> None:
    relay = await attach(harness)
    await harness.engine.limits.pause("queue", "slow", Scope("me"))
    await harness.submit(delay=60)
    await harness.submit(queue="slow")
    await relay.close()
    assert (harness.redis.xlen(TASKS), await outbox_items(harness)) == (0, 2)
    harness.clock.advance(60)
    await harness.engine.limits.resume("queue", "slow", Scope("me"))
    await harness.publish()
    assert (harness.redis.xlen(TASKS), await outbox_items(harness)) == (2, 0)


async def test_a_stream_that_no_orchestrator_has_used_is_left_alone(harness: StreamHarness) -> None:
    harness.engine.relay = relay = Relay(harness.engine.store, harness.transport())
    await harness.submit()
    await relay.close()
    assert harness.redis.xlen(TASKS) == 0
    harness.clock.advance(HOLD_SECONDS)
    await harness.publish()
    assert harness.redis.xlen(TASKS) == 1


async def test_an_orchestrator_publishes_what_a_crashed_process_did_not(harness: StreamHarness) -> None:
    relay = await attach(harness)
    relay.publish = lambda changes: None  # type: ignore[method-assign]  # it ends right after the commit
    await harness.submit()
    await harness.publish()
    assert harness.redis.xlen(TASKS) == 0
    harness.clock.advance(HOLD_SECONDS)
    await harness.publish()
    assert (harness.redis.xlen(TASKS), await outbox_items(harness)) == (1, 0)


async def test_what_comes_too_late_is_left_to_the_orchestrators(harness: StreamHarness) -> None:
    relay = await attach(harness)
    publish = relay.publish
    relay.publish = lambda changes: (harness.clock.advance(HOLD_SECONDS), publish(changes))[1]  # type: ignore[method-assign]
    await harness.submit()
    await relay.close()
    assert (harness.redis.xlen(TASKS), await outbox_items(harness)) == (0, 1)


async def test_without_a_server_tasks_are_no_longer_held(harness: StreamHarness) -> None:
    await harness.orchestrator.check_epoch()
    nobody = replace(harness.settings, url=f"redis://127.0.0.1:{free_port()}/0")
    harness.engine.relay = relay = Relay(harness.engine.store, RedisStreamTransport(nobody))
    await harness.submit()
    if relay._reading is not None:
        await asyncio.wait([relay._reading])
    await harness.submit()
    await harness.publish()
    assert harness.redis.xlen(TASKS) == 1  # the second one; the first is hidden for a second
    harness.clock.advance(HOLD_SECONDS)
    await harness.publish()
    assert (harness.redis.xlen(TASKS), await outbox_items(harness)) == (2, 0)
    await relay.close()


async def test_tasks_on_a_former_primary_are_published_again(harness: StreamHarness) -> None:
    relay = await attach(harness)
    stream = harness.settings.task_stream
    stored = await harness.engine.store.read(lambda tx: tx.outbox.epoch(stream))
    await harness.engine.store.write(lambda tx: tx.outbox.put_epoch(stream, "e/another process", stored))
    await harness.submit()
    await relay.close()
    assert (harness.redis.xlen(TASKS), await outbox_items(harness)) == (1, 1)


async def test_an_orchestrator_publishes_the_tasks_of_its_engine_at_once(harness: StreamHarness) -> None:
    orchestrator = Orchestrator(harness.engine, harness.transport())
    running = asyncio.create_task(orchestrator.run())
    while await harness.engine.store.read(lambda tx: tx.outbox.epoch(TASKS)) is None:
        await asyncio.sleep(0.01)
    assert harness.engine.relay is not None
    await harness.submit()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert harness.engine.relay is None
    assert (harness.redis.xlen(TASKS), await outbox_items(harness)) == (1, 0)


@pytest.mark.parametrize(
    "contract, redis_set, relays", [("streams", True, True), ("streams", False, False), ("standard", True, False)]
)
async def test_applications_with_stream_jobs_and_a_redis_relay(
    contract: str, redis_set: bool, relays: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if redis_set:
        monkeypatch.setenv("DETENT_REDIS_URL", f"redis://127.0.0.1:{free_port()}/0")
    app = Detent(f"sqlite:///{tmp_path}/jobs.db")

    @app.job("job", contract=contract)
    async def job(ctx: Context) -> None: ...

    async with app:
        assert (app.engine.relay is not None) is relays


async def test_a_bad_redis_url_does_not_stop_an_application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DETENT_REDIS_URL", "http://nowhere")
    app = Detent(f"sqlite:///{tmp_path}/jobs.db")

    @app.job("job", contract="streams")
    async def job(ctx: Context) -> None: ...

    async with app:
        assert app.engine.relay is None
