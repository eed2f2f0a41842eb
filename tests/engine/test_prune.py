"""Pruning: bounded, resumable, whole jobs only, and what others still need is kept."""

from typing import Any

import pytest

from detent.core.access import Scope
from detent.core.job import Job, Note, Signal, Step
from detent.core.outcome import Succeeded
from detent.core.times import SECOND, first_id
from detent.engine import Engine, Submission
from detent.proof.verify.verify import verify
from support.acts import LONG, PERMANENT, claim_one, notes_of, refused, retryable, submit
from support.clock import ClockIds, FakeClock
from support.stores import Place, make_engine

pytestmark = pytest.mark.anyio
DAY = 86_400.0


@pytest.fixture
async def engine(place: Place, clock: FakeClock) -> Any:
    engine = make_engine(place, clock, ids=ClockIds(clock))
    await engine.open()
    yield engine
    await engine.close()


async def ended(engine: Engine, contract: str = "standard", outcome: Any = None, **fields: Any) -> Job:
    """A job that ran to its end; its type must have nothing else claimable."""
    job = await submit(engine, contract, **fields)
    if outcome is None:
        claimed = await claim_one(engine, job_types={job.job_type})
        return await engine.settle(claimed.id, claimed.token, Succeeded('{"n":1}'))
    claimed = await claim_one(engine, job_types={job.job_type})
    return await engine.settle(claimed.id, claimed.token, outcome)


async def ids_left(place: Place) -> set[str]:
    return {str(row[0]) for row in place.dump()["jobs"]}


async def check_clean(engine: Engine) -> None:
    report = await verify(engine.store)
    assert report.violations == []
    assert report.warnings == []


def rows_of(place: Place, *tables: str) -> dict[str, int]:
    dump = place.dump()
    return {table: len(dump[table]) for table in tables}


async def test_all_that_belongs_to_an_old_job_goes_in_one_transaction(
    engine: Engine, place: Place, clock: FakeClock
) -> None:
    old = await ended(engine, idempotency_key="k-1")

    async def leave_traces(tx: Any) -> None:
        await tx.steps.put_step(Step(old.id, "charge", "d", "1", True, 1, tx.now))
        await tx.signals.add_signal(Signal(old.id, "paid", "null", "ann", tx.now))
        await tx.log.add_notes([Note(old.id, old.version, "progress", tx.now)])

    await engine.store.write(leave_traces)
    clock.advance(DAY)
    young = await ended(engine, idempotency_key="k-2")
    clock.advance(DAY)
    done = await engine.prune(1.5 * DAY)
    assert done.as_dict() | {"looked_at": 1, "more": False} == done.as_dict()
    assert (done.jobs, done.events, done.notes, done.steps, done.signals, done.keys) == (1, 3, 1, 1, 1, 1)
    assert await ids_left(place) == {young.id}
    kinds = ("events", "notes", "steps", "signals", "dead_letters", "keys")
    assert rows_of(place, *kinds) == dict(zip(kinds, (3, 0, 0, 0, 0, 1), strict=True))
    await check_clean(engine)
    await refused(engine.jobs.get(old.id), "JOB_NOT_FOUND", 404)


async def test_only_what_has_ended_goes_however_old(engine: Engine, place: Place, clock: FakeClock) -> None:
    waiting = await submit(engine, delay=LONG * 10)
    held = await submit(engine, job_type="held")
    await claim_one(engine, job_types={"held"})
    clock.advance(2 * DAY)
    assert (await engine.prune(DAY)).jobs == 0
    assert await ids_left(place) == {waiting.id, held.id}


async def test_batches_are_bounded_and_the_next_pass_goes_on_where_the_last_one_stopped(
    engine: Engine, place: Place, clock: FakeClock
) -> None:
    jobs = [await ended(engine) for _ in range(7)]
    clock.advance(2 * DAY)
    first = await engine.prune(DAY, batch=3, batches=1)
    assert (first.jobs, first.looked_at, first.more) == (3, 3, True)
    assert await ids_left(place) == {job.id for job in jobs[3:]}
    rest = await engine.prune(DAY, batch=3)
    assert (rest.jobs, rest.looked_at, rest.more) == (4, 4, False)
    assert await ids_left(place) == set()
    await check_clean(engine)


async def test_what_was_passed_over_is_not_looked_at_again_before_the_next_lap(
    engine: Engine, place: Place, clock: FakeClock
) -> None:
    late = await submit(engine, job_type="late")
    await ended(engine)
    clock.advance(2 * DAY)
    claimed = await claim_one(engine, job_types={"late"})
    assert (await engine.prune(DAY, lap_seconds=4 * DAY)).looked_at == 2
    await engine.settle(claimed.id, claimed.token, Succeeded())
    await ended(engine)
    clock.advance(2 * DAY)
    second = await engine.prune(DAY, lap_seconds=4 * DAY)
    assert (second.looked_at, second.jobs) == (1, 1)
    clock.advance(2 * DAY)
    assert (await engine.prune(DAY, lap_seconds=4 * DAY)).looked_at == 0
    again = await engine.prune(DAY, lap_seconds=4 * DAY)
    assert (again.looked_at, again.jobs) == (1, 1)
    assert late.id not in await ids_left(place)


async def test_each_choice_of_jobs_has_its_own_place(engine: Engine, place: Place, clock: FakeClock) -> None:
    mail = await ended(engine, queue="mail")
    bill = await ended(engine, queue="bills")
    broken = await ended(engine, "p3c", PERMANENT, queue="bills")
    clock.advance(2 * DAY)
    assert (await engine.prune(DAY, queue="mail")).jobs == 1
    assert await ids_left(place) == {bill.id, broken.id}
    assert (await engine.prune(DAY, status=broken.status, contract="standard")).jobs == 0
    assert (await engine.prune(DAY, status=broken.status, contract="p3c")).jobs == 1
    assert (await engine.prune(DAY, contract="standard")).jobs == 1
    assert mail.id not in await ids_left(place)


async def test_children_of_a_living_parent_are_kept(engine: Engine, place: Place, clock: FakeClock) -> None:
    parent = await submit(engine, job_type="parent")
    child = await ended(engine, parent_id=parent.id)
    orphan = await ended(engine, parent_id="no-id-of-ours")
    clock.advance(2 * DAY)
    assert (await engine.prune(DAY, lap_seconds=0)).jobs == 1
    assert await ids_left(place) == {parent.id, child.id}
    claimed = await claim_one(engine, job_types={"parent"})
    await engine.settle(claimed.id, claimed.token, Succeeded())
    assert (await engine.prune(DAY, lap_seconds=0)).jobs == 1
    assert await ids_left(place) == {parent.id}
    assert orphan.id not in await ids_left(place)


async def test_an_open_dead_letter_keeps_its_job(engine: Engine, place: Place, clock: FakeClock) -> None:
    broken = await ended(engine, "standard", PERMANENT)
    assert broken.dlq_id
    clock.advance(2 * DAY)
    assert (await engine.prune(DAY, lap_seconds=0)).jobs == 0
    await engine.dead_letters.discard(broken.dlq_id, Scope("ann", "old"))
    await engine.dead_letters.discard(broken.dlq_id, Scope("bob", "old"))
    done = await engine.prune(DAY, lap_seconds=0)
    assert (done.jobs, done.dead_letters) == (1, 1)
    assert rows_of(place, "jobs", "dead_letters") == {"jobs": 0, "dead_letters": 0}
    await check_clean(engine)


@pytest.mark.parametrize("first", ["origin", "successor"])
async def test_a_link_to_something_pruned_is_no_fault(
    engine: Engine, place: Place, clock: FakeClock, first: str
) -> None:
    broken = await ended(engine, "standard", PERMANENT, queue="origin")
    assert broken.dlq_id
    clock.advance(DAY)
    submitted = (await engine.dead_letters.requeue(broken.dlq_id, Scope("ann"))).job
    await check_clean(engine)
    claimed = await claim_one(engine)
    await engine.settle(submitted.id, claimed.token, Succeeded())
    clock.advance(2 * DAY)
    status = broken.status if first == "origin" else (await engine.jobs.get(submitted.id)).status
    assert (await engine.prune(DAY, status=status)).jobs == 1
    assert await ids_left(place) == {submitted.id if first == "origin" else broken.id}
    await check_clean(engine)


async def test_keys_outlive_their_jobs_as_long_as_asked(engine: Engine, place: Place, clock: FakeClock) -> None:
    await ended(engine, idempotency_key="once")
    clock.advance(2 * DAY)
    assert (await engine.prune(DAY, keep_keys_for=DAY)).keys == 0
    await refused(submit(engine, idempotency_key="once"), "IDEMPOTENCY_CONFLICT", 409)
    await check_clean(engine)
    clock.advance(DAY)
    assert (await engine.prune(DAY, keep_keys_for=DAY)).keys == 1
    assert (await submit(engine, idempotency_key="once")).id in await ids_left(place)
    await check_clean(engine)


async def test_runs_of_a_task_go_from_the_first_on(engine: Engine, place: Place, clock: FakeClock) -> None:
    runs = [await ended(engine, "p3c", PERMANENT if n == 0 else None, task_id="nightly") for n in range(3)]
    clock.advance(2 * DAY)
    status = runs[1].status
    assert (await engine.prune(DAY, status=status, lap_seconds=0)).jobs == 0, "run 1 would be missing before 3"
    assert (await engine.prune(DAY, batch=2, batches=1)).jobs == 2
    assert await ids_left(place) == {runs[2].id}
    await check_clean(engine)
    assert (await submit(engine, "p3c", task_id="nightly")).task_attempt == 4


async def test_ids_that_are_no_times_of_ours_are_found_too(engine: Engine, place: Place, clock: FakeClock) -> None:
    strange = "ffffffff-0000-4000-8000-000000000001"
    await ended(engine, id=strange)
    clock.advance(2 * DAY)
    assert (await engine.prune(DAY)).jobs == 1
    assert await ids_left(place) == set()


async def test_histories_are_handed_over_before_they_go(engine: Engine, place: Place, clock: FakeClock) -> None:
    job = await submit(engine, "gate-b2")
    for _ in range(4):
        clock.advance(LONG)
        claimed = await claim_one(engine)
        await engine.settle(claimed.id, claimed.token, retryable("gate-b2"))
    dlq_id = (await engine.jobs.get(job.id)).dlq_id
    assert dlq_id
    await engine.dead_letters.requeue(dlq_id, Scope("ann"))
    clock.advance(DAY)
    kept: list[dict[str, Any]] = []

    async def export(histories: list[dict[str, Any]]) -> None:
        assert job.id in await ids_left(place)
        kept.extend(histories)

    await engine.prune(DAY / 2, export=export)
    assert [history["job"]["id"] for history in kept] == [job.id]
    assert [event["seq"] for event in kept[0]["events"] if not event["note"]] == list(range(1, 12))
    assert kept[0]["dead_letter"]["dlq_id"] == dlq_id
    assert job.id not in await ids_left(place)


async def test_an_export_that_fails_keeps_the_batch(engine: Engine, place: Place, clock: FakeClock) -> None:
    job = await ended(engine)
    clock.advance(2 * DAY)

    def export(histories: list[dict[str, Any]]) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        await engine.prune(DAY, export=export)
    assert await ids_left(place) == {job.id}
    assert (await engine.prune(DAY, export=lambda histories: None)).jobs == 1


async def test_a_job_that_was_reopened_meanwhile_stays(engine: Engine, place: Place, clock: FakeClock) -> None:
    job = await ended(engine, "formal", PERMANENT)
    clock.advance(2 * DAY)

    async def reopen(histories: list[dict[str, Any]]) -> None:
        await engine.jobs.reopen(job.id, Scope("ann"))

    assert (await engine.prune(DAY, export=reopen)).jobs == 0
    assert await ids_left(place) == {job.id}


async def test_a_slow_pruning_does_not_undo_how_far_another_process_got(
    engine: Engine, place: Place, clock: FakeClock
) -> None:
    """`verify` allows links to nothing only up to the highest id that was pruned."""
    broken = await ended(engine, "standard", PERMANENT)
    old = await ended(engine)
    clock.advance(DAY)
    assert broken.dlq_id
    successor = (await engine.dead_letters.requeue(broken.dlq_id, Scope("ann"))).job
    await engine.settle(successor.id, (await claim_one(engine)).token, Succeeded())
    clock.advance(DAY / 2)

    async def prune_meanwhile(histories: list[dict[str, Any]]) -> None:
        assert [history["job"]["id"] for history in histories] == [old.id]
        clock.advance(DAY)
        assert (await engine.prune(DAY, status=old.status)).jobs == 2

    assert (await engine.prune(DAY, status=old.status, export=prune_meanwhile)).jobs == 0
    assert await ids_left(place) == {broken.id}
    await check_clean(engine)


async def test_late_results_of_a_pruned_job_are_refused(engine: Engine, clock: FakeClock) -> None:
    job = await submit(engine, "p3c")
    claimed = await claim_one(engine)
    await engine.jobs.cancel(job.id, Scope("ann"))
    assert await notes_of(engine, job.id) == []
    clock.advance(2 * DAY)
    await engine.prune(DAY)
    await refused(engine.settle(claimed.id, claimed.token, Succeeded()), "LEASE_STALE", 409)


@pytest.mark.parametrize("choice", [{"batch": 0}, {"keep_keys_for": -1.0}, {"older": 3}])
async def test_a_choice_that_makes_no_sense_is_refused(engine: Engine, choice: dict[str, Any]) -> None:
    await refused(engine.prune(DAY, **choice), "PRUNE_INVALID", 422)


def test_the_first_id_of_a_moment_is_below_every_id_of_it() -> None:
    clock = FakeClock()
    ids = ClockIds(clock)
    before = ids.job()
    clock.advance(0.001)
    assert before < first_id(clock.now()) < ids.job()
    assert first_id(-5 * SECOND).startswith("00000000-0000")


async def test_submissions_may_name_the_same_type_again(engine: Engine, clock: FakeClock) -> None:
    """Lanes and contracts are not pruned: the next job of the kind is claimed as before."""
    await ended(engine)
    clock.advance(2 * DAY)
    await engine.prune(DAY)
    submitted = await engine.jobs.submit(Submission("mail"))
    assert (await claim_one(engine)).id == submitted.job.id
