"""The event stream over a real socket: events in order, each exactly once, across reconnects and late commits."""

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import httpx
import pytest

from detent.core.job import Failure
from detent.core.outcome import Failed
from detent.core.times import iso
from detent.engine import Submission
from detent.engine.submit.prepare import prepare
from support.web.api import API, Api, code
from support.web.streams import following, listening

pytestmark = pytest.mark.anyio
SECRET = "the-secret-value"


async def test_every_event_is_sent_once_across_reconnects(api: Api) -> None:
    async with listening(api) as at, httpx.AsyncClient(base_url=at) as client:
        async with following(client) as first:
            ids = [(await api.submit())["id"] for _ in range(5)]
            seen = await first.read(3)
        ids += [(await api.submit())["id"] for _ in range(4)]
        async with following(client, seen[-1]["id"]) as again:
            seen += await again.read(4)
            ids += [(await api.submit())["id"] for _ in range(2)]
            seen += await again.read(4)
        assert [event["job_id"] for event in seen] == ids
        async with following(client, "0") as all_of_them:
            assert [event["id"] for event in await all_of_them.read(11)] == [event["id"] for event in seen]


async def test_an_event_has_the_format_of_the_job_log(api: Api) -> None:
    job = await api.submit(contract="men", queue="q")
    async with listening(api) as at, httpx.AsyncClient(base_url=at) as client, following(client, "0") as stream:
        received = await stream.read(2)
    log = (await api.open.get(f"{API}/jobs/{job['id']}/events")).json()["items"]
    about = {"job_id": job["id"], "job_type": "mail", "contract": "men", "queue": "q", "tenant_id": "default"}
    pairs = zip(received, log, strict=True)
    assert received == [{"id": sent["id"], "name": event["event"], **about, **event} for sent, event in pairs]
    assert received[1]["envelope"] is not None


NINE_FIELDS = {
    *("run_id", "task_id", "previous_status", "status", "attempt"),
    *("idempotency_key", "next_retry_at", "error_code", "actor"),
}


async def test_the_format_envelope_sends_what_each_contract_publishes(api: Api) -> None:
    boss = await api.person("boss", "admin")
    run = await api.submit(boss, contract="p3c", task_id="T", idempotency_key="K")
    (claimed,) = await api.engine.claim(api.engine.claim_request("w", 1, 60.0))
    await api.engine.settle(run["id"], claimed.token, Failed(Failure("E", SECRET, retryable=True)))
    for contract in ("men", "streams", "gate-b2", "formal"):
        await api.submit(boss, contract=contract)
    blind = await api.person("blind", "viewer", payloads=False)
    received = []
    async with listening(api) as at:
        for person in (boss, blind):
            client = httpx.AsyncClient(base_url=at, headers=person.headers)
            async with client, following(client, "0", format="envelope") as stream:
                received.append(await stream.read(7))
    seen, redacted = received
    assert [event["name"] for event in seen] == [
        *["run.status.changed"] * 3, "task_state_changed", "task.created", "job.queued", "job_created",
    ]  # fmt: skip
    runs = [event["payload"] for event in seen[:3]]
    assert [(body["previous_status"], body["status"]) for body in runs] == [
        (None, "queued"), ("queued", "running"), ("running", "retry_scheduled"),
    ]  # fmt: skip
    assert all(set(body) == NINE_FIELDS for body in runs)
    assert (runs[2]["error_code"], runs[2]["attempt"], runs[2]["idempotency_key"]) == ("E", 1, "K")
    row = await api.engine.jobs.get(run["id"])
    assert runs[2]["next_retry_at"] == iso(row.next_retry_at) is not None
    assert [event["payload"] for event in redacted[:3]] == runs, "the nine fields hold no payload"
    assert seen[3]["payload"]["to_state"] == "ready", "men publishes no creation"
    assert set(seen[5]) == {"id", "name", "trace_id", "job_id", "retry_count", "status_transition"}
    assert (seen[6]["event"], seen[6]["target"]) == ("job_created", "Queued"), "the default form"
    exported = list((await api.engine.jobs.history(run["id"])).published())
    assert [(event["event"], event["data"]["payload"]) for event in exported] == [
        ("run.status.changed", b) for b in runs
    ]


@pytest.mark.parametrize("place", ["postgres"], indirect=True)  # on SQLite commits are in order
async def test_a_late_commit_is_not_missed(api: Api) -> None:
    """Its transaction began before others that were committed and sent earlier."""
    engine, may_commit, has_begun = api.engine, asyncio.Event(), asyncio.Event()
    late = prepare(engine, Submission("late"), engine.store.now())

    async def slowly(tx: Any) -> None:
        await tx.jobs.insert([late.change])
        has_begun.set()
        await may_commit.wait()

    async with listening(api) as at, httpx.AsyncClient(base_url=at) as client:
        before = await api.submit()
        async with following(client, "0") as stream:
            assert (await stream.next())["job_id"] == before["id"]
            writing = asyncio.create_task(engine.store.write(slowly))
            await has_begun.wait()
            after = await api.submit()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await stream.next()
            last = stream.last
        may_commit.set()
        await writing
        async with following(client, last) as stream:
            received = {event["job_id"] for event in await stream.read(2)}
        assert received == {late.change.after.id, after["id"]}


async def test_a_token_sees_its_tenant_and_no_payloads(api: Api) -> None:
    boss = await api.person("boss", "admin")
    for tenant in ("own", "foreign"):
        job = await api.submit(boss, tenant_id=tenant, payload={"card": SECRET})
        (claimed,) = await api.engine.claim(api.engine.claim_request("w", 1, 60.0))
        await api.engine.settle(job["id"], claimed.token, Failed(Failure("E", SECRET, retryable=False)))
    bound = await api.person("bound", "viewer", tenant="own", payloads=False)
    async with listening(api) as at:
        async with httpx.AsyncClient(base_url=at, headers=bound.headers) as client:
            async with following(client, "0") as stream:
                received = await stream.read(5)
            assert {event["tenant_id"] for event in received} == {"own"} and SECRET not in json.dumps(received)
            assert code(await client.get(f"{API}/events/stream?tenant=foreign"), 403) == "TENANT_SCOPE_VIOLATION"
            for bad in ("x", "-1", "1.2", "99999999999999999999"):
                response = await client.get(f"{API}/events/stream", headers={"Last-Event-ID": bad})
                assert code(response, 422) == "INPUT_INVALID"
        async with (
            httpx.AsyncClient(base_url=at, headers=boss.headers) as client,
            following(client, "0", queue="nowhere", tenant="own"),
            following(client, "0") as stream,
        ):
            assert SECRET in json.dumps(await stream.read(10))
    assert api.app.state.web.event_tail.listeners == 0


async def test_ids_of_pruned_events_are_not_reused(api: Api) -> None:
    async with listening(api) as at, httpx.AsyncClient(base_url=at) as client:
        job = await api.submit()
        await api.open.post(f"{API}/jobs/{job['id']}/cancel")
        async with following(client, "0") as stream:
            last = (await stream.read(2))[-1]["id"]
        await api.engine.prune(0.0)
        fresh = await api.submit()
        async with following(client, last) as stream:
            assert (await stream.next())["job_id"] == fresh["id"]


async def test_a_token_of_one_queue_gets_the_events_of_that_queue(api: Api) -> None:
    jobs = {queue: await api.submit(queue=queue) for queue in ("b", "a", "c")}
    viewer = await api.person("v", "viewer", queues=["a", "c"])
    async with (
        listening(api) as at,
        httpx.AsyncClient(base_url=at, headers=viewer.headers) as client,
        following(client, after="0") as stream,
    ):
        assert [event["job_id"] for event in await stream.read(2)] == [jobs["a"]["id"], jobs["c"]["id"]]


async def test_revoking_a_token_ends_its_stream_within_a_second(api: Api) -> None:
    boss, guest = await api.person("boss", "admin"), await api.person("guest", "viewer", rotated=False)
    [token] = [token for token in await api.engine.tokens.list() if token.person == "guest"]
    async with listening(api) as at, httpx.AsyncClient(base_url=at, headers=guest.headers) as client:
        async with asyncio.timeout(20), client.stream("GET", f"{API}/events/stream", timeout=30) as response:
            lines = response.aiter_lines()
            assert (await anext(lines)).startswith(":")
            assert (await boss.post(f"{API}/tokens/{token.id}/revoke")).status_code == 200
            revoked_at = asyncio.get_running_loop().time()
            assert all(not line.startswith("data") for line in [line async for line in lines])
            assert asyncio.get_running_loop().time() - revoked_at < 1
        assert code(await client.get(f"{API}/events/stream"), 401) == "UNAUTHORIZED"


async def test_the_number_of_streams_is_limited_for_each_token_and_for_all(api: Api) -> None:
    api.app.state.web.settings = replace(api.app.state.web.settings, max_streams=3, max_streams_per_caller=2)
    people = [await api.person(name, "viewer") for name in ("ann", "bo")]
    async with AsyncExitStack() as stack:
        at = await stack.enter_async_context(listening(api))
        ann, bo = [
            await stack.enter_async_context(httpx.AsyncClient(base_url=at, headers=person.headers)) for person in people
        ]
        for client in (ann, ann, bo):
            await stack.enter_async_context(following(client))
        for client in (ann, bo):
            refused = await client.get(f"{API}/events/stream")
            assert code(refused, 503) == "STREAMS_FULL" and "event streams" in refused.json()["detail"]
    assert not api.app.state.web.streams


async def test_the_id_of_a_heartbeat_is_taken_as_last_event_id(api: Api) -> None:
    """Also on a Postgres that sends the end of a transaction, whose number of the event is the highest one."""
    await api.submit()
    stream = api.app.state.web.event_tail.follow(
        None, lambda frame: True, lambda frame: frame.full, with_progress=False, heartbeat_seconds=0.05
    )
    chunk = await anext(stream)
    while not chunk.endswith(b": beat\n\n"):
        chunk = await anext(stream)
    await stream.aclose()
    (last_id,) = [line[4:].decode() for line in chunk.splitlines() if line.startswith(b"id: ")]
    resumed = await api.open.head(f"{API}/events/stream", headers={"Last-Event-ID": last_id})
    assert resumed.status_code == 200, (last_id, resumed.text)


async def test_a_stream_has_heartbeats_while_events_flow_that_it_does_not_send(api: Api) -> None:
    """Browsers drop a stream that is silent for long: that of a job that does not change, on a busy system."""
    stream = api.app.state.web.event_tail.follow(
        None, lambda frame: False, lambda frame: b"", with_progress=False, heartbeat_seconds=0.2
    )
    received, last = [await anext(stream)], await api.submit()
    async with asyncio.timeout(20):
        while not received[-1].endswith(b": beat\n\n"):
            received.append(await anext(stream))
            last = await api.submit()
    await stream.aclose()
    assert last and {*received[1:-1]} == {b""}, "it was awake between: events came"
