"""A task is addressed by its task_id wherever a job is addressed by its id."""

import pytest

from detent.core.access import Scope
from detent.core.outcome import Succeeded
from detent.engine import Engine
from support.acts import claim_one, refused, submit

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("contract", ["men", "p3c"])
async def test_read_and_cancel_by_task_id(engine: Engine, contract: str) -> None:
    for task_id in ("order 7/ä", "任务\u30007"):
        job = await submit(engine, contract, task_id=task_id)
        assert (await engine.jobs.get(task_id)).id == job.id
        assert (await engine.jobs.history(task_id)).events[0].job_id == job.id
        assert (await engine.jobs.why(task_id)).reason
        cancelled = await engine.jobs.cancel(task_id, Scope("ann"))
        assert (cancelled.id, cancelled.status) == (job.id, "cancelled")


async def test_what_no_database_stores_is_not_found(engine: Engine) -> None:
    for task_id in ("a\x00b", "\ud800"):
        await refused(engine.jobs.get(task_id), "JOB_NOT_FOUND", 404)


async def test_the_last_run_of_a_p3c_task(engine: Engine) -> None:
    first = await submit(engine, "p3c", task_id="nightly")
    held = await claim_one(engine)
    await engine.settle(held.id, held.token, Succeeded())
    last = await submit(engine, "p3c", task_id="nightly")
    assert first.id != last.id and (await engine.jobs.get("nightly")).id == last.id


async def test_an_id_comes_before_a_task_id(engine: Engine) -> None:
    job = await submit(engine)
    await submit(engine, "men", task_id=job.id)
    assert (await engine.jobs.get(job.id)).contract == "standard"


async def test_a_task_id_of_two_contracts_is_ambiguous(engine: Engine) -> None:
    for contract in ("men", "p3c"):
        await submit(engine, contract, task_id="both")
    error = await refused(engine.jobs.get("both"), "TASK_AMBIGUOUS", 422)
    assert "men and p3c" in error.message


async def test_a_task_of_another_tenant_is_unknown(engine: Engine) -> None:
    await submit(engine, "men", task_id="t-1", tenant_id="acme")
    assert (await engine.scoped(tenant="acme").jobs.get("t-1")).tenant_id == "acme"
    await refused(engine.scoped(tenant="other").jobs.get("t-1"), "JOB_NOT_FOUND", 404)
    await refused(engine.jobs.cancel("t-1", Scope("bob", tenant="other")), "JOB_NOT_FOUND", 404)
    assert (await engine.jobs.get("t-1")).status == "ready"
