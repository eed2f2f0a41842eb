"""Claiming: only what was asked for, only what is due, highest priority first, fairly over tenants, oldest first."""

from collections import Counter

import pytest

from detent.core.access import Scope
from detent.core.job import TIMEOUT_GRACE
from detent.engine import Engine, Submission
from detent.ports.listing import Filter
from support.acts import NAMES, claim, claim_one, events_of, reach, retryable, running, submit
from support.clock import START, FakeClock
from support.stores import Place, make_engine

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("contract", NAMES)
async def test_what_is_claimed_is_what_was_submitted(engine: Engine, contract: str) -> None:
    job = await submit(
        engine, contract, payload={"n": 1}, queue="q", tenant_id="t", timeout_ms=9, idempotency_key="k", trace_id="tr"
    )
    held = await claim_one(engine, worker="w7")
    assert held[:1] + held[2:7] == (job.id, contract, "mail", "q", "t", '{"n":1}')
    assert (held.execution_no, held.retries, held.timeout_ms) == (1, 0, 9)
    assert (held.trace_id, held.effect_root, held.idempotency_key, held.cancel_requested) == ("tr", job.id, "k", None)
    row = await engine.jobs.get(job.id)
    assert (row.phase, row.worker, row.token, row.version) == ("leased", "w7", held.token, held.version)
    assert row.lease_until == START + 9_000 + TIMEOUT_GRACE, "not beyond the timeout"


async def test_only_the_asked_types(engine: Engine) -> None:
    jobs = {kind: await submit(engine, job_type=kind) for kind in ("a", "b", "c")}
    assert {c.id for c in await claim(engine, job_types={"a", "c", "z"})} == {jobs["a"].id, jobs["c"].id}
    assert await claim(engine, job_types={"z"}) == []
    assert await claim(engine, job_types=set()) == []
    assert [c.id for c in await claim(engine)] == [jobs["b"].id]


async def test_only_the_asked_queues(engine: Engine) -> None:
    jobs = {queue: await submit(engine, queue=queue) for queue in ("a", "b")}
    assert await claim(engine, queues={"z"}) == []
    assert [c.id for c in await claim(engine, queues={"b", "z"})] == [jobs["b"].id]
    assert [c.id for c in await claim(engine, queues={"a"}, job_types={"mail"})] == [jobs["a"].id]


async def test_contracts_can_be_left_out(engine: Engine) -> None:
    await submit(engine, "streams")
    job = await submit(engine, "p3c")
    assert [c.id for c in await claim(engine, exclude_contracts=frozenset({"streams"}))] == [job.id]


@pytest.mark.parametrize(("kind", "field"), [("queue", "queue"), ("job_type", "job_type"), ("tenant", "tenant_id")])
async def test_what_is_paused_is_left_out_and_comes_back(engine: Engine, kind: str, field: str) -> None:
    paused = await submit(engine, **{field: "x"})
    free = await submit(engine, **{field: "y"})
    await engine.limits.pause(kind, "x", Scope("ann", "deploy"))
    late = await submit(engine, **{field: "x", "limit_key": "new-lane", "priority": 9})
    assert [c.id for c in await claim(engine)] == [free.id]
    assert await claim(engine) == []
    assert await engine.limits.resume(kind, "x", Scope("bob"))
    assert not await engine.limits.resume(kind, "x", Scope("eve"))  # it is not paused, so the audit has no entry
    assert [c.id for c in await claim(engine)] == [late.id, paused.id]
    entries = [(entry.actor, entry.act, entry.subject, entry.reason) for _, _, entry in await engine.audit()]
    assert entries == [("bob", f"{kind}.resume", "x", None), ("ann", f"{kind}.pause", "x", "deploy")]


async def test_a_pause_before_the_first_job_holds(engine: Engine) -> None:
    for kind, field in (("queue", "queue"), ("job_type", "job_type"), ("tenant", "tenant_id")):
        await engine.limits.pause(kind, "x", Scope("ann"))
        await submit(engine, **{field: "x"})
    assert await claim(engine) == []


async def test_a_pause_is_seen_by_every_process(engine: Engine, place: Place, clock: FakeClock) -> None:
    other = make_engine(place, clock)
    await other.open()
    await submit(engine)
    assert len(await claim(other)) == 1
    await submit(engine)
    await engine.limits.pause("queue", "default", Scope("ann"))
    assert await claim(other) == []
    await engine.limits.resume("queue", "default", Scope("ann"))
    assert len(await claim(other)) == 1
    await other.close()


async def test_resuming_and_pausing_again_is_no_error(engine: Engine) -> None:
    await engine.limits.resume("queue", "x", Scope("ann"))
    await engine.limits.pause("queue", "x", Scope("ann"))
    await engine.limits.pause("queue", "x", Scope("bob"))
    await engine.limits.resume("queue", "x", Scope("ann"))
    await submit(engine, queue="x")
    assert len(await claim(engine)) == 1


async def test_the_highest_priority_goes_first(engine: Engine) -> None:
    order = [0, 100, -100, 5, -5, 99]
    jobs = {p: await submit(engine, priority=p, tenant_id=f"t{n % 2}") for n, p in enumerate(order)}
    ranked = [jobs[p].id for p in sorted(order, reverse=True)]
    assert [(await claim(engine, 1))[0].id for _ in order] == ranked


async def test_priorities_order_one_batch(engine: Engine) -> None:
    jobs = {p: await submit(engine, priority=p) for p in (0, 7, -7)}
    assert [c.id for c in await claim(engine, 2)] == [jobs[7].id, jobs[0].id]


async def test_within_a_lane_the_oldest_goes_first(engine: Engine, clock: FakeClock) -> None:
    jobs = []
    for _ in range(6):
        jobs.append((await submit(engine)).id)
        clock.advance(0.001)
    assert [c.id for c in await claim(engine, 4)] == jobs[:4]
    assert [c.id for c in await claim(engine, 4)] == jobs[4:]


async def test_at_one_moment_the_first_submitted_goes_first(engine: Engine) -> None:
    jobs = [m.job.id for m in await engine.jobs.submit_many([Submission("mail") for _ in range(20)])]
    assert [c.id for c in await claim(engine)] == jobs


async def test_due_time_counts_not_submission(engine: Engine, clock: FakeClock) -> None:
    late = await submit(engine, "p3c", delay=10)
    soon = await submit(engine, "p3c", delay=5)
    clock.advance(10)
    assert [c.id for c in await claim(engine)] == [soon.id, late.id]


async def test_a_second_helping_goes_on_where_the_even_share_ended(engine: Engine) -> None:
    """Shares first, then whoever has more: nothing of a lane is passed over, nothing is left while there is room."""
    whale = [
        m.job.id for m in await engine.jobs.submit_many([Submission("mail", tenant_id="whale") for _ in range(20)])
    ]
    await engine.jobs.submit_many([Submission("mail", tenant_id=tenant) for tenant in ("a", "b")])
    assert [c.id for c in await claim(engine, 12) if c.tenant_id == "whale"] == whale[:10]
    await submit(engine, tenant_id="a")
    assert [c.id for c in await claim(engine, 12) if c.tenant_id == "whale"] == whale[10:]


async def test_what_has_just_come_due_is_claimed_with_what_was_ready(engine: Engine, clock: FakeClock) -> None:
    later = [(await submit(engine, "p3c", delay=5)).id for _ in range(2)]
    ready = await submit(engine, "p3c")
    clock.advance(5)
    assert {c.id for c in await claim(engine)} == {ready.id, *later}


async def test_tenants_share_a_batch(engine: Engine) -> None:
    await engine.jobs.submit_many([Submission("mail", tenant_id="whale") for _ in range(100)])
    await engine.jobs.submit_many([Submission("mail", tenant_id=t) for t in ("a", "b", "c") for _ in range(10)])
    assert Counter(c.tenant_id for c in await claim(engine, 20)) == {"whale": 5, "a": 5, "b": 5, "c": 5}


async def test_tenants_take_turns_one_by_one(engine: Engine) -> None:
    await engine.jobs.submit_many([Submission("mail", tenant_id="whale") for _ in range(50)])
    await engine.jobs.submit_many([Submission("mail", tenant_id=t) for t in ("a", "b") for _ in range(3)])
    served = [(await claim(engine, 1))[0].tenant_id for _ in range(9)]
    assert Counter(served) == {"whale": 3, "a": 3, "b": 3}
    assert all(len(set(served[n : n + 3])) == 3 for n in range(0, 9, 3)), served


async def test_a_share_nobody_needs_goes_to_the_others(engine: Engine) -> None:
    await engine.jobs.submit_many([Submission("mail", tenant_id="whale") for _ in range(50)])
    await submit(engine, tenant_id="a")
    assert Counter(c.tenant_id for c in await claim(engine, 20)) == {"whale": 19, "a": 1}


async def test_more_tenants_than_the_limit_are_all_served_in_turn(engine: Engine) -> None:
    tenants = {f"t{n}" for n in range(150)}
    await engine.jobs.submit_many([Submission("mail", tenant_id=t) for t in sorted(tenants) for _ in range(2)])
    served: Counter[str] = Counter()
    for _ in range(15):
        served.update(c.tenant_id for c in await claim(engine, 10))
    assert served == Counter(dict.fromkeys(tenants, 1))


@pytest.mark.parametrize("limit", [0, 1, 7, 1000])
async def test_never_more_than_the_limit(engine: Engine, limit: int) -> None:
    submissions = [Submission("mail", tenant_id=f"t{n % 3}", priority=n % 2, queue=f"q{n % 2}") for n in range(30)]
    await engine.jobs.submit_many(submissions)
    claimed = await claim(engine, limit)
    assert len(claimed) == min(limit, 30)
    assert len({c.id for c in claimed}) == len(claimed)
    assert len(await engine.jobs.list(Filter(phase="leased", limit=100))) == len(claimed)


@pytest.mark.parametrize("contract", ["gate-b2", "p3c", "streams", "formal"])
async def test_a_future_job_is_claimed_at_its_time_and_not_before(
    engine: Engine, clock: FakeClock, contract: str
) -> None:
    job = await submit(engine, contract, delay=60)
    assert await claim(engine) == []
    clock.advance(59.999_999)
    assert await claim(engine) == []
    clock.advance(0.000_001)
    assert (await claim_one(engine)).id == job.id


async def test_many_future_jobs_come_due_at_once(engine: Engine, clock: FakeClock) -> None:
    await engine.jobs.submit_many([Submission("mail", contract="formal", delay=60) for _ in range(1_200)])
    clock.advance(60)
    assert len([c for _ in range(4) for c in await claim(engine, 400)]) == 1_200


BACKOFF = {"gate-b2": ("retrying", 1.0), "p3c": ("retry_scheduled", 15.0), "formal": ("Queued", 1.0)}


@pytest.mark.parametrize("contract", BACKOFF)
async def test_a_retry_waits_for_its_backoff(place: Place, clock: FakeClock, contract: str) -> None:
    engine = make_engine(place, clock, jitter=lambda job, retry, upper: 0)
    await engine.open()
    status, seconds = BACKOFF[contract]
    held = await running(engine, contract)
    assert (await engine.settle(held.id, held.token, retryable(contract))).status == status
    clock.advance(seconds - 0.000_001)
    assert await claim(engine) == []
    clock.advance(0.000_001)
    assert (await claim_one(engine)).execution_no == 2
    await engine.close()


@pytest.mark.parametrize("contract", ["men", "streams"])
async def test_a_retry_without_backoff_is_due_at_once(engine: Engine, contract: str) -> None:
    held = await running(engine, contract)
    await engine.settle(held.id, held.token, retryable(contract))
    assert (await claim_one(engine)).execution_no == 2


@pytest.mark.parametrize(
    ("contract", "status"),
    [("men", "pending"), ("streams", "waiting_approval"), ("formal", "Waiting"), ("standard", "parked")],
)
async def test_blocked_jobs_are_never_claimed(engine: Engine, clock: FakeClock, contract: str, status: str) -> None:
    await reach(engine, clock, contract, status)
    clock.advance(1)
    assert await claim(engine, reclaim=True) == []


async def test_what_is_held_is_not_claimed_again(engine: Engine, clock: FakeClock) -> None:
    for contract in NAMES:
        await running(engine, contract)
    assert await claim(engine, reclaim=True) == []
    clock.advance(29)
    assert await claim(engine, reclaim=True) == []


async def test_every_claim_has_a_token_of_its_own(engine: Engine) -> None:
    await engine.jobs.submit_many([Submission("mail") for _ in range(4)])
    first, second = await claim(engine, 2), await claim(engine, 2)
    assert {c.token for c in first}.isdisjoint({c.token for c in second})
    assert all(c.token for c in first)


async def test_time_never_runs_backwards_within_a_job(engine: Engine, clock: FakeClock) -> None:
    job = await submit(engine)
    clock.advance(-100)
    held = await claim(engine)
    if held:
        assert [e.at for e in await events_of(engine, job.id)] == [START, START]
        assert (await engine.jobs.get(job.id)).lease_until == START + 30_000_000
