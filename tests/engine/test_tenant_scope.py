"""Cell by cell: every act a tenant has, on its own and on another's; and every act of the engine is accounted for."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from detent.engine import Engine, Submission
from detent.engine.control.tenancy import TenantEngine
from detent.ports.listing import Filter
from support.acts import reach, refused, refused_untouched, submit
from support.clock import FakeClock
from support.stores import Place

pytestmark = pytest.mark.anyio
Act = Callable[[TenantEngine, str], Awaitable[Any]]

ON_JOBS: dict[str, tuple[tuple[str, str], Act]] = {
    "job": (("standard", "queued"), lambda t, i: t.job(i)),
    "history": (("standard", "queued"), lambda t, i: t.history(i)),
    "why": (("standard", "queued"), lambda t, i: t.why(i)),
    "signal": (("standard", "waiting"), lambda t, i: t.signal(i, "answer")),
    "cancel": (("standard", "queued"), lambda t, i: t.cancel(i, actor="ann")),
    "abort": (("standard", "retrying"), lambda t, i: t.abort(i, actor="ann")),
    "reopen": (("formal", "Failed"), lambda t, i: t.reopen(i, actor="ann")),
    "approve": (("standard", "waiting_approval"), lambda t, i: t.approve(i, actor="ann")),
    "reject": (("standard", "waiting_approval"), lambda t, i: t.reject(i, actor="ann")),
    "requeue_job": (("standard", "succeeded"), lambda t, i: t.requeue_job(i, actor="ann")),
}
ON_LETTERS: dict[str, Act] = {
    "requeue": lambda t, i: t.requeue(i, actor="ann"),
    "discard": lambda t, i: t.discard(i, person="ann", reason="old"),
    "dead_letter": lambda t, i: t.dead_letter(i),
}
SUBMITS: dict[str, Callable[[TenantEngine, Submission], Awaitable[Any]]] = {
    "submit": lambda t, submission: t.submit(submission),
    "submit_many": lambda t, submission: t.submit_many([submission]),
    "submit_uniform": lambda t, submission: t.submit_uniform(submission, [{}, {"n": 1}]),
}
LISTS = ("jobs", "dead_letters")
OWN_ONLY = ("quota", "audit")
"""They take no name of anything: what they answer is the tenant's own."""
OPERATORS = {
    "open", "close", "sibling", "contract", "claim", "claim_request", "settle", "settle_and_claim",
    "extend", "expire", "wake", "wake_missed_signals",
    "pause", "resume", "prune", "set_limit", "limits",
    "remove_limit", "declare_limits", "set_quota", "remove_quota", "tenant_quotas",
    "for_tenant", "transition", "write", "process_child_events",
}  # fmt: skip
"""Acts of processes and operators: a tenant does not have them at all."""


def public(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


def test_every_act_of_a_tenant_has_a_row_here() -> None:
    assert public(TenantEngine) == {*ON_JOBS, *ON_LETTERS, *SUBMITS, *LISTS, *OWN_ONLY}


def test_an_act_of_the_engine_is_a_tenants_or_an_operators() -> None:
    beyond = public(Engine) - public(TenantEngine) - OPERATORS
    scoped = {name for name in beyond if "tenant" in inspect.signature(getattr(Engine, name)).parameters}
    assert beyond - scoped == set(), "scope it by a tenant, or say here that only operators have it"


@pytest.mark.parametrize("act", ON_JOBS)
async def test_a_job(engine: Engine, place: Place, clock: FakeClock, act: str) -> None:
    (contract, status), call = ON_JOBS[act]
    job = await reach(engine, clock, contract, status, tenant_id="acme")
    await refused_untouched(place, call(engine.for_tenant("rival"), job.id), "TENANT_SCOPE_VIOLATION", 403)
    await call(engine.for_tenant("acme"), job.id)


@pytest.mark.parametrize("act", ON_LETTERS)
async def test_a_dead_letter(engine: Engine, place: Place, clock: FakeClock, act: str) -> None:
    job = await reach(engine, clock, "standard", "failed", tenant_id="acme")
    assert job.dlq_id
    call = ON_LETTERS[act]
    await refused_untouched(place, call(engine.for_tenant("rival"), job.dlq_id), "TENANT_SCOPE_VIOLATION", 403)
    await call(engine.for_tenant("acme"), job.dlq_id)


@pytest.mark.parametrize("act", SUBMITS)
async def test_a_submit(engine: Engine, place: Place, act: str) -> None:
    acme, call = engine.for_tenant("acme"), SUBMITS[act]
    other = await submit(engine, tenant_id="rival")
    for submission in (Submission("mail", tenant_id="rival"), Submission("mail", parent_id=other.id)):
        await refused_untouched(place, call(acme, submission), "TENANT_SCOPE_VIOLATION", 403)
    await call(acme, Submission("mail"))
    await call(acme, Submission("mail", tenant_id="acme"))
    assert {job.tenant_id for job in await acme.jobs()} == {"acme"}


async def test_a_key_of_another_tenant_is_no_hit(engine: Engine, place: Place) -> None:
    """men's keys have a scope without the tenant: a hit there would hand over another's task."""
    await submit(engine, "men", tenant_id="rival", idempotency_key="k")
    submission = Submission("mail", contract="men", idempotency_key="k")
    await refused_untouched(place, engine.for_tenant("acme").submit(submission), "TENANT_SCOPE_VIOLATION", 403)


@pytest.mark.parametrize("act", LISTS)
async def test_a_list(engine: Engine, clock: FakeClock, act: str) -> None:
    mine = await reach(engine, clock, "gate-b2", "failed", tenant_id="acme")
    await reach(engine, clock, "gate-b2", "failed", tenant_id="rival")
    acme = engine.for_tenant("acme")
    assert {row.tenant_id for row in await getattr(acme, act)()} == {"acme"}
    assert len(await getattr(acme, act)(Filter(tenant_id="acme", job_type=mine.job_type))) == 1
    await refused(getattr(acme, act)(Filter(tenant_id="rival")), "TENANT_SCOPE_VIOLATION", 403)


async def test_what_is_the_tenants_own(engine: Engine) -> None:
    await engine.set_quota("acme", weight=3, actor="ann")
    await engine.set_quota("rival", weight=5, actor="ann")
    acme = engine.for_tenant("acme")
    assert (await acme.quota()).weight == 3
    assert {entry.tenant_id for _, _, entry in await acme.audit()} == {"acme"}
