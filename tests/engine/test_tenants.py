"""Nothing crosses tenants: an act that names another tenant than its job's is refused, and nothing is written."""

import pytest

from detent.core.access import Scope
from detent.engine import Engine
from detent.ports.listing import Filter
from support.acts import reach, refused_untouched, submit
from support.clock import FakeClock
from support.stores import Place

pytestmark = pytest.mark.anyio

ON_JOBS = {
    "cancel": lambda e, i, t: e.jobs.cancel(i, Scope("ann", tenant=t)),
    "abort": lambda e, i, t: e.jobs.abort(i, Scope("ann", tenant=t)),
    "reopen": lambda e, i, t: e.jobs.reopen(i, Scope("ann", tenant=t)),
    "approve": lambda e, i, t: e.approvals.approve(i, Scope("ann", tenant=t)),
    "reject": lambda e, i, t: e.approvals.reject(i, Scope("ann", tenant=t)),
    "signal": lambda e, i, t: e.jobs.signal(i, "answer", Scope("test", tenant=t)),
    "transition": lambda e, i, t: e.jobs.transition(i, "running", Scope("ann", tenant=t)),
}
ON_LETTERS = {
    "requeue": lambda e, i, t: e.dead_letters.requeue(i, Scope("ann", tenant=t)),
    "discard": lambda e, i, t: e.dead_letters.discard(i, Scope("ann", "old", t)),
}


@pytest.mark.parametrize("act", ON_JOBS)
async def test_a_job_of_another_tenant_is_out_of_reach(engine: Engine, place: Place, act: str) -> None:
    job = await submit(engine, tenant_id="acme")
    for stranger in ("rival", "ACME", ""):
        await refused_untouched(place, ON_JOBS[act](engine, job.id, stranger), "TENANT_SCOPE_VIOLATION", 403)


@pytest.mark.parametrize("act", ON_LETTERS)
async def test_a_dead_letter_of_another_tenant_is_out_of_reach(
    engine: Engine, place: Place, clock: FakeClock, act: str
) -> None:
    job = await reach(engine, clock, "gate-b2", "failed", tenant_id="acme")
    await refused_untouched(place, ON_LETTERS[act](engine, job.dlq_id, "rival"), "TENANT_SCOPE_VIOLATION", 403)
    await ON_LETTERS[act](engine, job.dlq_id, "acme")


async def test_ones_own_jobs_are_within_reach(engine: Engine) -> None:
    job = await submit(engine, tenant_id="acme")
    assert (await engine.scoped(tenant="acme").jobs.get(job.id)).id == job.id
    assert (await engine.jobs.cancel(job.id, Scope("ann", tenant="acme"))).status == "cancelled"


async def test_lists_show_one_tenant_if_asked(engine: Engine, clock: FakeClock) -> None:
    mine = await reach(engine, clock, "gate-b2", "failed", tenant_id="acme")
    other = await reach(engine, clock, "gate-b2", "failed", tenant_id="rival")
    assert [j.id for j in await engine.jobs.list(Filter(tenant_id="acme"))] == [mine.id]
    assert [d.job_id for d in await engine.dead_letters.list(Filter(tenant_id="rival"))] == [other.id]


async def test_a_requeued_job_stays_with_its_tenant(engine: Engine, clock: FakeClock) -> None:
    job = await reach(engine, clock, "gate-b2", "failed", tenant_id="acme")
    assert job.dlq_id
    assert (await engine.dead_letters.requeue(job.dlq_id, Scope("ann", tenant="acme"))).job.tenant_id == "acme"
