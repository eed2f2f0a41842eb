"""Redis 5.0, 6.2 and 7.0, each of which lacks commands or replies of the shared server, with real binaries.

The acceptance criteria on these servers are drills: test_acceptance and test_other_languages.
"""

from contextlib import ExitStack

import pytest

from detent.ports.stream import StreamSettings, StreamUnavailable, TaskMessage
from detent.transports.redis_streams import maintenance, transport
from detent.transports.redis_streams.transport import RedisStreamTransport
from support.servers.old_redis import VERSIONS, running
from support.servers.proxy import Proxy
from support.streams.harness import RESULTS, TASKS, StreamHarness

pytestmark = pytest.mark.anyio
on_each_server = pytest.mark.parametrize(
    ("harness", "redis_url"),
    [
        ("postgres", None),
        *(("sqlite-thread", version) for version in VERSIONS),
        *(pytest.param("postgres", version, marks=pytest.mark.drill) for version in VERSIONS),
    ],
    indirect=True,
)


@on_each_server
async def test_messages_of_lost_workers_are_reclaimed(harness: StreamHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of live workers are not. What was acknowledged is trimmed, what is missing is found, page by page."""
    monkeypatch.setattr(maintenance, "_DELETED_AT_ONCE", 2)
    monkeypatch.setattr(transport, "_SCAN", 2)
    jobs = [await harness.submit() for _ in range(7)]
    await harness.publish()
    messages = [harness.read("lost")[0] for _ in jobs]
    for message in messages[::2]:
        harness.set_idle(message, "lost")
    assert sum([await harness.orchestrator.reclaim() for _ in range(4)]) == 4
    alive = {row["message_id"] for row in harness.redis.xpending_range(TASKS, "cg:workers", "-", "+", 99, "lost")}
    assert alive == set(messages[1::2])
    assert await harness.orchestrator.transport.published_tasks() == {(job.id, 0) for job in jobs}
    for job, message in zip(jobs[1::2], messages[1::2], strict=True):
        harness.report("succeeded", message, job.id, "still alive")
        harness.redis.xack(TASKS, "cg:workers", message)
    harness.redis.xgroup_create(RESULTS, "watcher", "0")
    harness.redis.xreadgroup("watcher", "me", {RESULTS: ">"}, noack=True)
    await harness.orchestrator.transport.trim()
    assert harness.redis.xlen(TASKS) == 4 and harness.redis.xlen(RESULTS) == 3, "no group needs the others"
    await harness.apply_results()
    await harness.work()
    histories = [await harness.history(job.id) for job in jobs]
    assert histories[::2] == [["task.created", "task.claimed", "task.reclaimed", "task.succeeded"]] * 4
    assert histories[1::2] == [["task.created", "task.claimed", "task.succeeded"]] * 3
    await harness.check_integrity()


@on_each_server
async def test_a_message_deleted_while_pending_is_acknowledged(harness: StreamHarness) -> None:
    """Servers before 7.0 return an empty entry for it and keep it pending."""
    for _ in range(2):
        await harness.submit()
    await harness.publish()
    gone, second_id = harness.read()[0], harness.read()[0]
    harness.redis.xdel(TASKS, gone)
    for message in (gone, second_id):
        harness.set_idle(message)
    claimed = await harness.orchestrator.transport.claim_idle_messages("us", 10)
    assert [message.delivery.message_id for message in claimed] == [second_id]
    assert harness.pending() == [second_id]


@on_each_server
async def test_health_and_the_removal_of_idle_consumers(harness: StreamHarness) -> None:
    """A consumer with a pending message is not removed: its message would be lost."""
    for _ in range(3):
        await harness.submit()
    await harness.publish()
    harness.read("busy")
    acknowledged, _ = harness.read("idle")
    harness.redis.xack(TASKS, "cg:workers", acknowledged)
    streams = harness.orchestrator.transport
    tasks, results = await streams.health()
    assert (tasks.length, tasks.pending, tasks.lag, tasks.consumers) == (3, 1, 1, 2)
    assert (results.length, results.pending, results.lag) == (0, 0, 0)
    await streams.remove_idle_consumers(-1)
    await streams.remove_consumer("busy")
    assert [row["name"] for row in harness.redis.xinfo_consumers(TASKS, "cg:workers")] == ["busy"]


@on_each_server
async def test_results_that_an_orchestrator_left_are_applied_by_another(harness: StreamHarness) -> None:
    job = await harness.submit()
    await harness.publish()
    message, _ = harness.read()
    harness.report("succeeded", message, job.id, output="5")
    ((_, ((result_id, _),)),) = harness.redis.xreadgroup("cg:orchestrator", "stopped", {RESULTS: ">"})
    await harness.apply_results()
    assert (await harness.job(job.id)).result is None, "its reader may be alive"
    harness.redis.xclaim(RESULTS, "cg:orchestrator", "stopped", 0, [result_id], idle=16_000, justid=True)
    await harness.apply_results()
    assert (await harness.job(job.id)).result == "5" and harness.redis.xlen(RESULTS) == 0


@pytest.mark.parametrize("versions", [("7.0", "5.0"), ("5.0", "7.0")], ids=" to ".join)
async def test_a_failover_to_a_server_of_another_version(versions: tuple[str, str]) -> None:
    """Its commands are read with each connection; the version of the first server is not remembered."""
    with ExitStack() as stack:
        before, after = (stack.enter_context(running(version)) for version in versions)
        proxy = stack.enter_context(Proxy(before.port))
        streams = RedisStreamTransport(StreamSettings(f"redis://127.0.0.1:{proxy.port}/0"))
        for server in (before, after):
            proxy.target = server.port
            await streams.ensure_epoch("epoch")
            await streams.publish([TaskMessage("task", "add", "{}", 0, "key", "trace")])
            ((_, ((message_id, _),)),) = server.client().xreadgroup("cg:workers", "lost", {TASKS: ">"})
            server.client().xclaim(TASKS, "cg:workers", "lost", 0, [message_id], idle=300_000)
            assert [message.consumer for message in await streams.claim_idle_messages("us", 10)] == ["lost"]
            await streams.acknowledge([message_id])
            await streams.trim()
            proxy.cut()
            with pytest.raises(StreamUnavailable):
                await streams.length()
            proxy.open()
        await streams.close()
