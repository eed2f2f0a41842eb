"""Filters of the list of jobs: each finds exactly its jobs. Their thin tables are written only if needed."""

import pytest

from detent.core.access import Scope
from detent.core.child_ids import child_id
from detent.core.job import Failure
from detent.core.outcome import Failed, Succeeded
from detent.core.times import SECOND, first_id, moment_of_id
from detent.engine import Engine, Submission
from detent.ports.listing import Filter
from detent.system.clock import SystemClock
from support.acts import PERMANENT, claim_one, running, submit
from support.clock import FakeClock
from support.stores import Place, make_engine

pytestmark = pytest.mark.anyio
THIN = ("job_traces", "job_errors", "error_groups")


async def ids(engine: Engine, **fields: object) -> set[str]:
    page, cursor = await engine.jobs.page(Filter(**fields), seconds=60)  # type: ignore[arg-type]
    assert cursor is None
    listed = {job.id for job in await engine.jobs.list(Filter(**fields))}  # type: ignore[arg-type]
    assert {job.id for job in page} == listed, "the page and the plain list agree"
    return listed


async def test_jobs_of_a_parent_and_roots(engine: Engine) -> None:
    parent, other = await submit(engine), await submit(engine)
    children = [await submit(engine, parent_id=parent.id) for _ in range(3)]
    assert await ids(engine, parent_id=parent.id) == {child.id for child in children}
    assert await ids(engine, parent_id=other.id) == set()
    assert await ids(engine, roots=True) == {parent.id, other.id}
    assert await ids(engine, roots=False) == {child.id for child in children}


async def test_jobs_of_a_trace(engine: Engine, place: Place) -> None:
    plain = await submit(engine)
    named = [await submit(engine, trace_id="checkout-7") for _ in range(2)]
    child = await submit(engine, parent_id=plain.id, trace_id=plain.trace_id)
    run = await submit(engine, "p3c")
    await engine.jobs.submit_uniform(Submission("mail", trace_id="checkout-7"), [{}, {}])
    assert len(await ids(engine, trace_id="checkout-7")) == 4 and {job.id for job in named} < await ids(
        engine, trace_id="checkout-7"
    )
    assert await ids(engine, trace_id=plain.trace_id) == {plain.id, child.id}
    assert await ids(engine, trace_id=run.trace_id) == {run.id}
    assert await ids(engine, trace_id="checkout") == set()
    assert await ids(engine, trace_id="checkout-7", queue="elsewhere") == set()
    assert len(place.dump()["job_traces"]) == 5, "none for the jobs whose trace id contains their id"


async def test_jobs_that_ended_with_an_error(engine: Engine, place: Place, clock: FakeClock) -> None:
    broken = await running(engine, job_type="a")
    await engine.settle(broken.id, broken.token, PERMANENT)
    retrying = await running(engine, job_type="b")
    await engine.settle(retrying.id, retrying.token, Failed(Failure("BROKEN", "once", "Broken")))
    assert await ids(engine, error_code="BROKEN", phase="final") == {broken.id}
    page, _ = await engine.jobs.page(Filter(error_code="BROKEN"))
    assert [job.id for job in page] == [broken.id], "finished jobs"
    assert await ids(engine, error_code="BROKEN", phase="claimable") == {retrying.id}
    clock.advance(1000)
    again = await claim_one(engine, job_types={"b"})
    await engine.settle(again.id, again.token, Succeeded("1"))
    assert len(place.dump()["job_errors"]) == 1, "a success after a failure leaves none"


async def test_a_reopened_job_is_not_among_the_failed_ones(engine: Engine, place: Place) -> None:
    held = await running(engine, "men")
    await engine.settle(held.id, held.token, Failed(Failure("TASK_EXECUTION_FAILED", "no", "No", retryable=False)))
    assert await ids(engine, error_code="TASK_EXECUTION_FAILED") == {held.id}
    job = await engine.jobs.get(held.id)
    if engine.contract("men").edge(job.status, "reopen"):  # type: ignore[arg-type]
        await engine.jobs.reopen(held.id, Scope("ann"))
        assert place.dump()["job_errors"] == []


async def test_several_statuses(engine: Engine) -> None:
    queued = await submit(engine, job_type="q")
    held = await running(engine, job_type="r")
    done = await running(engine, job_type="d")
    await engine.settle(done.id, done.token, Succeeded("1"))
    assert await ids(engine, statuses=("queued", "running")) == {queued.id, held.id}
    assert await ids(engine, statuses=("succeeded", "failed")) == {done.id}


async def test_a_status_that_is_shown_for_long_waits_is_among_several(engine: Engine, clock: FakeClock) -> None:
    for contract in engine.contracts.values():
        if contract.parks_as is not None and contract.parks_as in contract.unreachable:
            seen = engine.visible(Filter(statuses=("running", contract.parks_as)))
            assert f"*{contract.name}" in (seen.statuses or ())
            break
    else:
        pytest.fail("no contract shows a status for long waits only")


async def test_worker_attempts_and_duration(engine: Engine, clock: FakeClock) -> None:
    first, second = await submit(engine, job_type="a"), await submit(engine, job_type="b")
    waiting = await submit(engine, job_type="c")
    one = await claim_one(engine, worker="w1", job_types={"a"})
    clock.advance(5)
    await engine.settle(one.id, one.token, Succeeded("1"))
    await claim_one(engine, worker="w2", job_types={"b"})
    clock.advance(20)
    assert await ids(engine, worker="w1") == {first.id}, "also after its end"
    assert await ids(engine, worker="w2") == {second.id}
    assert await ids(engine, worker="nobody") == set()
    assert await ids(engine, min_attempts=1) == {first.id, second.id}
    assert await ids(engine, max_attempts=0) == {waiting.id}
    assert await ids(engine, min_duration=10 * SECOND) == {second.id}, "it runs for 20 seconds"
    assert await ids(engine, max_duration=10 * SECOND) == {first.id}


async def test_a_time_range_reads_the_ids_of_that_time(place: Place) -> None:
    engine = make_engine(place, SystemClock())  # type: ignore[arg-type]
    await engine.open()
    try:
        before = engine.store.now()
        job = await submit(engine)
        assert await ids(engine, since=before) == {job.id}
        assert await ids(engine, until=before) == set()
        assert await ids(engine, since=before, until=engine.store.now()) == {job.id}
        far = await engine.jobs.page(Filter(since=before - 10 * 86_400 * SECOND, until=before - 86_400 * SECOND))
        assert far == ([], None)
    finally:
        await engine.close()


async def pages(engine: Engine, **fields: object) -> list[set[str]]:
    """The ids of all pages, each of which ends at its first opportunity."""
    cursor, found = None, []
    while True:
        filter = Filter(**fields, before=cursor)  # type: ignore[arg-type]
        page, cursor = await engine.jobs.page(filter, seconds=0)
        found.append({job.id for job in page})
        if cursor is None:
            return [page for page in found if page]


async def test_a_time_range_finds_children_of_a_parent_that_is_days_older(engine: Engine, clock: FakeClock) -> None:
    """The id of a child has the time of its parent: the first page ends a day before, the next ones look further."""

    def new_id() -> str:
        return first_id(clock.now())[:14] + "7000-8000-000000000001"

    parent = await submit(engine, id=new_id())
    clock.advance(7 * 86_400)
    since, recent = clock.now(), await submit(engine, id=new_id())
    assert await pages(engine, since=since) == [{recent.id}], "without children there is nothing older to look at"
    child = await submit(engine, id=child_id(parent.id, "a"), parent_id=parent.id, trace_id=parent.trace_id)
    assert child.id[:13] == parent.id[:13]
    assert await pages(engine, since=since) == [{recent.id}, {child.id}]
    assert await ids(engine, since=since) == {recent.id, child.id}, "one page has time for all"
    clock.advance(2 * 86_400)
    page, cursor = await engine.jobs.page(Filter(since=clock.now()), seconds=0)
    assert page == [] and cursor is not None and moment_of_id(cursor) == clock.now() - 86_400 * SECOND
    assert await pages(engine, since=since, roots=True) == [{recent.id}]
    assert await pages(engine, since=since, parent_id=parent.id) == [{child.id}]
    assert await pages(engine, since=since, trace_id=parent.trace_id) == [{child.id}]
    assert await pages(engine, since=since + SECOND) == []


async def test_pruning_deletes_the_rows_that_found_a_job(engine: Engine, place: Place, clock: FakeClock) -> None:
    held = await running(engine, trace_id="checkout-7")
    await engine.settle(held.id, held.token, PERMANENT)
    assert [len(place.dump()[name]) for name in THIN] == [1, 1, 1]
    (item,) = await engine.dead_letters.list()
    for person in ("ann", "bo"):
        await engine.dead_letters.discard(item.id, Scope(person, "old"))
    clock.advance(100)
    assert (await engine.prune(1.0)).jobs == 1
    assert [len(place.dump()[name]) for name in THIN] == [0, 0, 1], "an error that comes back is not new"


async def test_the_hot_path_writes_no_thin_rows(engine: Engine, place: Place) -> None:
    for contract in ("standard", "p3c", "gate-b2"):
        held = await running(engine, contract)
        await engine.settle(held.id, held.token, Succeeded("1"))
    assert [place.dump()[name] for name in THIN] == [[], [], []]
