"""The stream of all events over a real socket: in order, each once, across reconnects and late commits."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest

from detent.core.job import Failure
from detent.core.outcome import Failed
from detent.engine import Submission
from detent.engine.control.access import list_tokens
from detent.engine.submit.prepare import prepare
from detent.web.http.serving import Server, bind, config_of
from web.conftest import API, Api, code

pytestmark = pytest.mark.anyio
SECRET = "the-secret-thing"


@asynccontextmanager
async def listening(api: Api) -> AsyncIterator[str]:
    server = Server(config_of(api.app), own_signals=False)
    socket = bind("127.0.0.1", 0)
    serving = asyncio.create_task(server.serve([socket]))
    try:
        yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving


class Follower:
    """Reads events of one connection, one at a time."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines
        self.last = ""

    async def next(self) -> dict[str, Any]:
        told: dict[str, str] = {}
        async with asyncio.timeout(20):
            async for line in self._lines:
                name, _, value = line.partition(": ")
                if line and not line.startswith(":"):
                    told[name] = value
                elif not line and "data" in told:
                    break
        self.last = told["id"]
        return {"id": told["id"], "name": told["event"], **json.loads(told["data"])}

    async def some(self, number: int) -> list[dict[str, Any]]:
        return [await self.next() for _ in range(number)]


@asynccontextmanager
async def following(client: httpx.AsyncClient, last: str | None = None, **params: str) -> AsyncIterator[Follower]:
    headers = {"Last-Event-ID": last} if last is not None else {}
    async with client.stream("GET", f"{API}/events/stream", params=params, headers=headers, timeout=30) as answer:
        assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.aiter_lines()
        assert (await anext(lines)).startswith(":")
        yield Follower(lines)


async def test_nothing_is_lost_or_told_twice_across_reconnects(api: Api) -> None:
    async with listening(api) as at, httpx.AsyncClient(base_url=at) as client:
        async with following(client) as first:
            ids = [(await api.submit())["id"] for _ in range(5)]
            seen = await first.some(3)
        ids += [(await api.submit())["id"] for _ in range(4)]
        async with following(client, seen[-1]["id"]) as again:
            seen += await again.some(4)
            ids += [(await api.submit())["id"] for _ in range(2)]
            seen += await again.some(4)
        assert [one["job_id"] for one in seen] == ids
        async with following(client, "0") as all_of_them:
            assert [one["id"] for one in await all_of_them.some(11)] == [one["id"] for one in seen]


async def test_an_event_is_shaped_as_in_the_jobs_own_log(api: Api) -> None:
    job = await api.submit(contract="men", queue="q")
    async with listening(api) as at, httpx.AsyncClient(base_url=at) as client, following(client, "0") as stream:
        told = await stream.some(2)
    log = (await api.open.get(f"{API}/jobs/{job['id']}/events")).json()["events"]
    about = {"job_id": job["id"], "job_type": "mail", "contract": "men", "queue": "q", "tenant_id": "default"}
    pairs = zip(told, log, strict=True)
    assert told == [{"id": one["id"], "name": event["event"], **about, **event} for one, event in pairs]
    assert told[1]["envelope"] is not None


@pytest.mark.parametrize("place", ["postgres"], indirect=True)  # on SQLite no commit can come late
async def test_a_commit_that_comes_late_is_not_missed(api: Api) -> None:
    """It began before others that were committed, read and passed on meanwhile."""
    engine, may_commit, has_begun = api.engine, asyncio.Event(), asyncio.Event()
    late = prepare(engine, Submission("late"), engine.store.now())

    async def slowly(tx: Any) -> None:
        await tx.insert([late.change])
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
            told = {one["job_id"] for one in await stream.some(2)}
        assert told == {late.change.after.id, after["id"]}


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
                told = await stream.some(5)
            assert {one["tenant_id"] for one in told} == {"own"} and SECRET not in json.dumps(told)
            assert code(await client.get(f"{API}/events/stream?tenant=foreign"), 403) == "TENANT_SCOPE_VIOLATION"
            for bad in ("x", "-1", "1.2", "99999999999999999999"):
                got = await client.get(f"{API}/events/stream", headers={"Last-Event-ID": bad})
                assert code(got, 422) == "INPUT_INVALID"
        async with (
            httpx.AsyncClient(base_url=at, headers=boss.headers) as client,
            following(client, "0", queue="nowhere", tenant="own"),
            following(client, "0") as stream,
        ):
            assert SECRET in json.dumps(await stream.some(10))
    assert api.app.state.web.stream.listeners == 0


async def test_what_was_pruned_does_not_make_numbers_free_again(api: Api) -> None:
    async with listening(api) as at, httpx.AsyncClient(base_url=at) as client:
        job = await api.submit()
        await api.open.post(f"{API}/jobs/{job['id']}/cancel")
        async with following(client, "0") as stream:
            last = (await stream.some(2))[-1]["id"]
        await api.engine.prune(0.0)
        fresh = await api.submit()
        async with following(client, last) as stream:
            assert (await stream.next())["job_id"] == fresh["id"]


async def test_a_stream_ends_with_its_token(api: Api) -> None:
    api.app.state.web.settings = replace(api.app.state.web.settings, beat_seconds=0.05)
    boss, guest = await api.person("boss", "admin"), await api.person("guest", "viewer")
    [token] = [one for one in await list_tokens(api.engine) if one.person == "guest"]
    async with listening(api) as at, httpx.AsyncClient(base_url=at, headers=guest.headers) as client:
        async with asyncio.timeout(20), client.stream("GET", f"{API}/events/stream", timeout=30) as answer:
            lines = answer.aiter_lines()
            assert (await anext(lines)).startswith(":")
            assert (await boss.post(f"{API}/tokens/{token.id}/revoke")).status_code == 200
            assert all(not line.startswith("data") for line in [line async for line in lines])
        assert code(await client.get(f"{API}/events/stream"), 401) == "UNAUTHORIZED"
