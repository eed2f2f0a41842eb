"""The commit happened and its answer was lost: said again, everything is done once."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from detent import Context, Detent
from detent.core.job import Wait
from detent.core.outcome import Cancelled, Outcome, Snoozed, Succeeded, Waits
from detent.engine import Engine, Settlement
from detent.stores.postgres.store import PostgresStore
from support.acts import (
    LEASE_SECONDS,
    NAMES,
    PERMANENT,
    claim,
    claim_one,
    events_of,
    own_id,
    path_of,
    refused,
    retryable,
    submit,
)
from support.clock import FakeClock
from support.servers.databases import Database
from support.servers.lossy import LossyProxy

pytestmark = pytest.mark.anyio
ID = own_id(1)
SOON = 30.0


@pytest.fixture
async def proxy(database: Database) -> AsyncIterator[LossyProxy]:
    parts = urlsplit(database.url)
    proxy = await LossyProxy(parts.hostname or "127.0.0.1", parts.port or 5432).start()
    yield proxy
    await proxy.stop()


@pytest.fixture
def through(database: Database, proxy: LossyProxy) -> str:
    """The database's URL by way of the proxy."""
    parts = urlsplit(database.url)
    user = f"{parts.username}{':' + parts.password if parts.password else ''}"
    return f"postgresql://{user}@127.0.0.1:{proxy.port}{parts.path}"


@pytest.fixture
async def far(through: str) -> AsyncIterator[Engine]:
    """An engine whose answers can be lost."""
    engine = Engine(PostgresStore(through, clock=FakeClock()))
    await engine.open()
    yield engine
    await engine.close()


async def lose(proxy: LossyProxy, words: str, act: Any) -> None:
    """The act is carried out, but all its caller hears is that the store was lost."""
    before = proxy.lost
    proxy.lose_reply_to(words.encode())
    await refused(asyncio.wait_for(act, SOON), "STORE_UNAVAILABLE", 503)
    assert proxy.lost == before + 1


@pytest.mark.parametrize("contract", NAMES)
@pytest.mark.parametrize("key", [None, "k"])
async def test_a_submit_said_again_is_one_job(
    far: Engine, proxy: LossyProxy, database: Database, contract: str, key: str | None
) -> None:
    ask = {"id": ID, "payload": {"n": 1}, "idempotency_key": key}
    await submit(far, contract)  # so that names of lanes are known
    await lose(proxy, "COMMIT;", submit(far, contract, **ask))
    before = len(database.sql("SELECT 1 FROM jobs"))
    assert before == 2, "the lost call did write"
    job = await submit(far, contract, **ask)
    assert job.id == ID
    assert len(database.sql("SELECT 1 FROM jobs")) == 2
    assert len(await events_of(far, ID)) == len(database.sql("SELECT 1 FROM events WHERE job_id = %s", ID))


OUTCOMES: dict[str, tuple[str, Outcome]] = {
    "success": ("standard", Succeeded('{"n":1}')),
    "success of men": ("men", Succeeded("[1]")),
    "failure": ("standard", retryable("standard")),
    "last failure": ("gate-b2", PERMANENT),
    "wait": ("formal", Waits(Wait("answer"))),
    "snooze": ("standard", Snoozed(5_000_000)),
    "cancel": ("standard", Cancelled("no need")),
}


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "in a cycle"])
@pytest.mark.parametrize("case", OUTCOMES)
async def test_a_settlement_said_again_is_settled_once(
    far: Engine, proxy: LossyProxy, database: Database, case: str, alone: bool
) -> None:
    contract, outcome = OUTCOMES[case]
    await far.settle_and_claim([], far.claim_request("w0", 1))
    await submit(far, contract)
    held = await claim_one(far)
    settlement = Settlement(held.id, held.token, contract, outcome)
    plain = isinstance(outcome, Succeeded) and not alone

    async def settle() -> Any:
        return await (far.settle(held.id, held.token, outcome) if alone else far.settle_and_claim([settlement], None))

    await lose(proxy, held.id if plain else "COMMIT;", settle())
    before = database.dump()
    settled = await settle()
    assert alone or settled.refused == {}
    after = database.dump()
    assert (after["jobs"], after["events"], after["dead_letters"]) == (
        before["jobs"], before["events"], before["dead_letters"],
    )  # fmt: skip
    other = await refused(far.settle(held.id, held.token, Succeeded('"other"')), "LEASE_STALE")
    assert other.http_status == 409


async def lost_claim(far: Engine, proxy: LossyProxy, database: Database) -> None:
    """A job that is held under a token its holder never heard of."""
    await submit(far)
    await claim(far, job_types={"none"})  # so that the lanes are known
    request = far.claim_request("w-lost", 100, LEASE_SECONDS)
    await lose(proxy, request.token, far.claim(request))
    assert database.sql("SELECT phase, worker FROM jobs WHERE phase = 'leased'") == [("leased", "w-lost")]


async def test_a_lost_claim_is_adopted_by_the_worker_that_made_it(
    far: Engine, proxy: LossyProxy, database: Database
) -> None:
    await lost_claim(far, proxy, database)
    assert await claim(far, worker="w2") == [], "another worker has nothing to do with it"
    await submit(far)
    first, second = await claim(far, worker="w-lost")
    assert first.token != second.token
    assert first.payload == second.payload and first.effect_root == first.id
    for held in (first, second):
        assert (await far.settle(held.id, held.token, Succeeded())).execution_no == 1
    assert await claim(far, worker="w-lost") == []


async def test_an_adopted_job_counts_among_those_asked_for(far: Engine, proxy: LossyProxy, database: Database) -> None:
    await lost_claim(far, proxy, database)
    await submit(far)
    assert len(await claim(far, 1, worker="w-lost")) == 1
    assert len(await claim(far, 1, worker="w-lost")) == 1
    assert await claim(far, 1, worker="w-lost") == []


async def test_a_claim_lost_beside_a_failure_is_adopted_too(far: Engine, proxy: LossyProxy, database: Database) -> None:
    await submit(far)
    held = await claim_one(far, worker="w-lost")
    await submit(far)
    settlement = Settlement(held.id, held.token, "standard", PERMANENT)
    await lose(proxy, "COMMIT;", far.settle_and_claim([settlement], far.claim_request("w-lost", 1)))
    done = await far.settle_and_claim([settlement], None)
    assert done.refused == {}
    assert len((await far.settle_and_claim([], far.claim_request("w-lost", 1))).claimed) == 1


async def test_a_lost_claim_is_adopted_after_an_outage_longer_than_its_lease(
    far: Engine, proxy: LossyProxy, database: Database
) -> None:
    """As long as nobody has taken it, it is ours: a lease begins anew, as a heartbeat would begin it."""
    await lost_claim(far, proxy, database)
    clock: Any = far.store._own_clock  # type: ignore[attr-defined]
    clock.advance(31)
    held = await claim_one(far, worker="w-lost")
    assert await far.expire() == [], "the lease began anew"
    assert (await far.settle(held.id, held.token, Succeeded())).execution_no == 1


async def test_a_lost_claim_of_a_dead_worker_runs_out(far: Engine, proxy: LossyProxy, database: Database) -> None:
    await lost_claim(far, proxy, database)
    clock: Any = far.store._own_clock  # type: ignore[attr-defined]
    clock.advance(31)
    assert len(await far.expire()) == 1
    clock.advance(100_000)
    again = await claim_one(far, worker="w-lost")
    assert again.execution_no == 2, "somebody had taken it: it was not ours to adopt"
    assert (await path_of(far, again.id)) == ["queued", "running", "interrupted", "running"]


async def test_a_worker_goes_on_after_lost_answers(through: str, proxy: LossyProxy, database: Database) -> None:
    """Its own settlements are lost one after the other; every job runs once and ends once."""
    app, runs = Detent(through), []

    @app.job("mail")
    async def mail(ctx: Context, n: int) -> int:
        runs.append(n)
        proxy.lose_reply_to(ctx._claimed.token.encode())  # only its settlement says that; others ask for its id, too
        return n

    handles = await mail.enqueue_many([{"n": n} for n in range(4)])
    worker = await app.worker(slots=1)
    work = asyncio.create_task(worker.run(handle_signals=False))
    assert await asyncio.wait_for(asyncio.gather(*(handle.result(SOON) for handle in handles)), SOON) == [0, 1, 2, 3]
    worker.stop()
    await asyncio.wait_for(work, SOON)
    await app.close()
    assert sorted(runs) == [0, 1, 2, 3]
    assert proxy.lost >= 3
    counts = database.sql("SELECT status, version, execution_no, count(*) FROM jobs GROUP BY 1, 2, 3")
    assert counts == [("succeeded", 3, 1, 4)]
