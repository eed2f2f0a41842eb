"""Connections that no longer answer, without a reset: a host that died, a lost NAT entry. Only time limits notice."""

import asyncio
import gc
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import httpx
import pytest
from psycopg.conninfo import conninfo_to_dict

from detent import Detent
from detent.core.access import Scope
from detent.core.errors import StoreUnavailable
from detent.core.job import Step
from detent.engine import Engine
from detent.ports.listing import Filter
from detent.stores.postgres.store import PostgresStore
from detent.system.clock import SystemClock
from detent.web.app import create_app
from detent.web.http.settings import Settings
from support.acts import claim, submit
from support.servers.databases import Database
from support.servers.proxy import Proxy
from support.waiting import until

pytestmark = pytest.mark.anyio
LIMIT_SECONDS = 0.3
CLOCK = SystemClock()


@pytest.fixture
def proxy(database: Database) -> Iterator[Proxy]:
    with Proxy(int(str(conninfo_to_dict(database.url)["port"]))) as proxy:
        yield proxy


@pytest.fixture
def url(database: Database, proxy: Proxy) -> str:
    return database.url.replace(f":{proxy.target}/", f":{proxy.port}/")


@pytest.fixture
async def engine(url: str) -> AsyncIterator[Engine]:
    """An engine whose time limit is short, with several idle connections of each kind."""
    engine = Engine(PostgresStore(url, command_seconds=LIMIT_SECONDS))
    await engine.open()
    await submit(engine)
    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(engine.store.read(lambda tx: tx.stats.ping()))
    yield engine
    await engine.close()


async def timed(work: Awaitable[Any]) -> tuple[float, Any]:
    began = CLOCK.monotonic()
    try:
        result = await work
    except StoreUnavailable as error:
        result = error
    return CLOCK.monotonic() - began, result


ACTS: dict[str, Callable[[Engine], Awaitable[Any]]] = {
    "read": lambda engine: engine.jobs.list(Filter(limit=1)),
    "write": lambda engine: engine.limits.pause("queue", "other", Scope("ann")),
    "enqueue": submit,
    "claim": claim,
    "step": lambda engine: engine.store.record_step(
        Step("01900000-0000-7000-8000-000000000000", "s", "d", "1", True, 1, 1), "token"
    ),
}


@pytest.mark.parametrize("name", ACTS)
async def test_one_lost_connection_replaces_the_others(engine: Engine, proxy: Proxy, name: str) -> None:
    if name == "claim":
        await claim(engine)
    proxy.forget()
    seconds, result = await timed(ACTS[name](engine))
    repeated = name in ("read", "write")  # their BEGIN changed nothing
    assert isinstance(result, StoreUnavailable) is not repeated and seconds < 4 * LIMIT_SECONDS
    for act in (claim, submit, ACTS["write"], ACTS["step"]):
        seconds, result = await timed(act(engine))
        assert not isinstance(result, StoreUnavailable) and seconds < LIMIT_SECONDS, result


async def test_a_long_read_ends_with_the_connections_it_was_lost_with(
    engine: Engine, proxy: Proxy, database: Database
) -> None:
    """A statement that reads many rows may take a minute, but not on a connection that does not answer."""

    async def read(tx: Any) -> Any:
        return await tx.queries.connection.fetch("SELECT pg_sleep(2)", timeout=60)

    began = CLOCK.monotonic()
    reading = asyncio.create_task(timed(engine.store.read(read)))
    await until(lambda: database.sql("SELECT 1 FROM pg_stat_activity WHERE query ~ 'pg_slee[p]' AND state = 'active'"))
    proxy.forget()
    await engine.jobs.list(Filter(limit=1))
    assert isinstance((await reading)[1], StoreUnavailable) and CLOCK.monotonic() - began < 10


async def test_a_lost_claim_is_found_again_on_a_new_connection(engine: Engine, proxy: Proxy) -> None:
    """The search for the jobs of a lost claim must not wait for a connection that was lost with it."""
    assert await claim(engine)
    await submit(engine)
    proxy.forget()
    assert isinstance((await timed(claim(engine)))[1], StoreUnavailable)
    proxy.forget()
    seconds, claimed = await timed(claim(engine))
    if isinstance(claimed, StoreUnavailable):
        seconds, claimed = await timed(claim(engine))
    assert len(claimed) == 1 and seconds < LIMIT_SECONDS


async def test_a_cancelled_call_ends_at_once_and_leaves_no_trace_in_the_log(
    engine: Engine, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "asyncio")
    for _ in range(3):
        proxy.forget()
        call = asyncio.create_task(engine.jobs.list(Filter(limit=1)))
        done, _ = await asyncio.wait([call], timeout=LIMIT_SECONDS / 6)
        assert not done
        call.cancel()
        done, _ = await asyncio.wait([call], timeout=LIMIT_SECONDS / 3)
        assert done, "it does not wait for an answer to its cancellation"
    await engine.close()
    gc.collect()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_the_kernel_gives_up_on_a_host_that_does_not_acknowledge(engine: Engine) -> None:
    store: Any = engine.store
    async with store._acquired() as connection:
        own_socket = connection._con._transport.get_extra_info("socket")
        assert own_socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert own_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 8_000


async def test_a_cancelled_step_does_not_fail_the_others(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server refuses one value of a batch; the steps are then recorded one by one."""
    (job,) = await claim(engine)
    store: Any = engine.store
    refused, good = ("bad", "a\x00b"), [(f"s{n}", "1") for n in range(3)]
    steps = [Step(job.id, name, "d", result, True, 1, 1) for name, result in (refused, *good)]
    gate = asyncio.Event()
    execute = store._step_batcher._execute

    async def wait_for_gate(batch: Any) -> Any:
        await gate.wait()
        return await execute(batch)

    monkeypatch.setattr(store._step_batcher, "_execute", wait_for_gate)
    busy = [asyncio.create_task(store.record_step(step, "none")) for step in steps[1:3]]
    await asyncio.sleep(0)
    calls = [asyncio.create_task(store.record_step(step, job.token)) for step in steps]
    await asyncio.sleep(0)
    calls[0].cancel()
    gate.set()
    assert await asyncio.gather(*busy) == [False, False]
    assert await asyncio.gather(*calls[1:]) == [True] * 3


@pytest.mark.drill
@pytest.mark.parametrize("silence", ["old connections", "all connections"])
async def test_work_goes_on_after_a_silence(url: str, proxy: Proxy, database: Database, silence: str) -> None:
    """A worker with a lease of 30 s, a server and a client, with the usual time limits."""
    app, ran = Detent(url), 0

    @app.job("mail")
    async def mail() -> None:
        nonlocal ran
        ran += 1

    direct = Detent(database.url)

    @direct.job("mail")
    async def direct_mail() -> None: ...

    web = create_app(app, Settings(open_without_tokens=True))
    client = httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://127.0.0.1")
    slowest = {"serve": 0.0, "enqueue": 0.0}
    stopped = asyncio.Event()

    async def ask_forever(name: str, ask: Callable[[], Awaitable[Any]]) -> None:
        while not stopped.is_set():
            slowest[name] = max(slowest[name], (await timed(ask()))[0])
            await asyncio.sleep(0.02)

    async with app, direct, client:
        worker = await app.worker(slots=8, lease_seconds=30.0)
        run = asyncio.create_task(worker.run(handle_signals=False))
        asking = [
            asyncio.create_task(ask_forever("serve", lambda: client.get("/api/v1/jobs?limit=1"))),
            asyncio.create_task(ask_forever("serve", lambda: client.get("/ready"))),
            asyncio.create_task(ask_forever("enqueue", mail.enqueue)),
        ]
        await until(lambda: ran > 100)
        began = CLOCK.monotonic()
        if silence == "old connections":
            proxy.forget()
        else:
            proxy.go_silent()
            await until(lambda: CLOCK.monotonic() > began + 12)
            began = CLOCK.monotonic()
            proxy.forget()
            proxy.open()
        marker = await direct_mail.enqueue()
        await marker.result(60)
        resumed = CLOCK.monotonic() - began
        status = (await client.get("/api/v1/jobs?limit=1")).status_code
        stopped.set()
        await asyncio.gather(*asking)
        worker.stop()
        await run
    print(f"{silence}: claims resumed after {resumed:.1f} s, slowest answers {slowest}")
    assert resumed < 8 and status == 200
    assert slowest["serve"] < 1.5 and slowest["enqueue"] < 6
