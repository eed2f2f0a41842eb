"""Cell by cell: every operation a tenant has, on its own and on another's; and every operation is accounted for."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from detent.core.access import Reach, Scope
from detent.core.job import ApprovalRequest, Wait
from detent.core.outcome import Waits
from detent.engine import Engine, Submission
from detent.engine.execution.manual_run import ManualRun
from detent.engine.metrics.webhooks import WebhookRequest
from detent.engine.runtime import Runtime, Service
from detent.engine.schedules.request import ScheduleRequest
from detent.ports.children import ChildState
from detent.ports.listing import Filter
from support.acts import claim_one, reach, refused, refused_untouched, submit
from support.clock import FakeClock
from support.stores import Place

pytestmark = pytest.mark.anyio
Act = Callable[[Engine, str], Awaitable[Any]]
ANN = Scope("ann", "why not")
SPAN = ("2026-02-25T11:50:00Z", "2026-02-25T11:55:00Z")


def ended(job_id: str) -> ChildState:
    return ChildState(job_id, None, "mail", "standard", "failed", "final", '"secret"', "BAD", "secret")


ON_JOBS: dict[str, tuple[tuple[str, str], Act]] = {
    "jobs.get": (("standard", "queued"), lambda t, i: t.jobs.get(i)),
    "jobs.history": (("standard", "queued"), lambda t, i: t.jobs.history(i)),
    "jobs.why": (("standard", "queued"), lambda t, i: t.jobs.why(i)),
    "jobs.tree": (("standard", "queued"), lambda t, i: t.jobs.tree(i)),
    "jobs.signal": (("standard", "waiting"), lambda t, i: t.jobs.signal(i, "answer", ANN)),
    "jobs.cancel": (("standard", "queued"), lambda t, i: t.jobs.cancel(i, ANN)),
    "jobs.abort": (("standard", "retrying"), lambda t, i: t.jobs.abort(i, ANN)),
    "jobs.reopen": (("formal", "Failed"), lambda t, i: t.jobs.reopen(i, ANN)),
    "jobs.requeue": (("standard", "succeeded"), lambda t, i: t.jobs.requeue(i, ANN)),
    "jobs.transition": (("standard", "queued"), lambda t, i: t.jobs.transition(i, "cancelled", ANN)),
    "jobs.run_manually": (("standard", "queued"), lambda t, i: t.jobs.run_manually(i, ManualRun.SUCCEED, ANN)),
    "approvals.approve": (("standard", "waiting_approval"), lambda t, i: t.approvals.approve(i, ANN)),
    "approvals.reject": (("standard", "waiting_approval"), lambda t, i: t.approvals.reject(i, ANN)),
    "results.wait": (("standard", "failed"), lambda t, i: t.results.wait(i)),
    "results.failure": (("standard", "failed"), lambda t, i: t.results.failure(ended(i))),
    "jobs.steps": (("standard", "queued"), lambda t, i: t.jobs.steps(i, 10)),
    "jobs.children": (("standard", "queued"), lambda t, i: t.jobs.children(i, None, 10)),
    "jobs.log_lines": (("standard", "queued"), lambda t, i: t.jobs.log_lines(i, None, 10)),
    "jobs.newest_entries": (("standard", "queued"), lambda t, i: t.jobs.newest_entries(i, 10)),
    "approvals.of_job": (("standard", "queued"), lambda t, i: t.approvals.of_job(i)),
}
IN_BULK: dict[str, tuple[tuple[str, str], Act]] = {
    "jobs.cancel_many": (("standard", "queued"), lambda t, i: t.jobs.cancel_many([i], ANN)),
    "jobs.requeue_many": (("standard", "succeeded"), lambda t, i: t.jobs.requeue_many([i], ANN)),
}
ON_DEAD_LETTERS: dict[str, Act] = {
    "dead_letters.requeue": lambda t, i: t.dead_letters.requeue(i, ANN),
    "dead_letters.discard": lambda t, i: t.dead_letters.discard(i, ANN),
    "dead_letters.get": lambda t, i: t.dead_letters.get(i),
    "dead_letters.history": lambda t, i: t.dead_letters.history(i),
}
SUBMITS: dict[str, Callable[[Engine, Submission], Awaitable[Any]]] = {
    "jobs.submit": lambda t, submission: t.jobs.submit(submission),
    "jobs.submit_many": lambda t, submission: t.jobs.submit_many([submission]),
    "jobs.submit_uniform": lambda t, submission: t.jobs.submit_uniform(submission, [{}, {"n": 1}]),
}
LISTS: dict[str, Callable[[Engine, Filter], Awaitable[Any]]] = {
    "jobs.list": lambda t, filter: t.jobs.list(filter),
    "jobs.page": lambda t, filter: t.jobs.page(filter),
    "dead_letters.list": lambda t, filter: t.dead_letters.list(filter),
    "dead_letters.page": lambda t, filter: t.dead_letters.page(filter),
    "schedules.list": lambda t, filter: t.schedules.list(filter),
}
ON_FILTERS: dict[str, Callable[[Engine, Filter], Awaitable[Any]]] = {
    "dead_letters.requeue_many": lambda t, filter: t.dead_letters.requeue_many(filter, ANN),
    "dead_letters.discard_many": lambda t, filter: t.dead_letters.discard_many(filter, ANN),
}
ON_SCHEDULES: dict[str, Act] = {
    "schedules.get": lambda t, i: t.schedules.get(i),
    "schedules.fires": lambda t, i: t.schedules.fires(i),
    "schedules.preview": lambda t, i: t.schedules.preview(i),
    "schedules.edit": lambda t, i: t.schedules.edit(i, {"every": 60}, ANN),
    "schedules.pause": lambda t, i: t.schedules.pause(i, ANN),
    "schedules.resume": lambda t, i: t.schedules.resume(i, ANN),
    "schedules.remove": lambda t, i: t.schedules.remove(i, ANN),
    "schedules.run_now": lambda t, i: t.schedules.run_now(i, ANN),
    "schedules.backfill": lambda t, i: t.schedules.backfill(i, *SPAN, ANN),
}
OWN = {
    "audit", "approvals.waiting", "limits.quotas", "stats.view", "limits.pause", "limits.resume",
    "schedules.add", "tokens.create", "tokens.revoke", "tokens.list",
    "jobs.get_many", "dead_letters.get_many", "dead_letters.groups",
    "webhooks.add", "webhooks.list", "webhooks.remove", "webhooks.edit", "webhooks.pause", "webhooks.resume",
    "webhooks.replay", "webhooks.deliveries", "webhooks.get",
}  # fmt: skip
"""Each has a test of its own below."""
OPERATORS = {
    "open", "close", "sibling", "claim", "claim_request", "settle", "settle_and_claim", "extend", "expire", "wake",
    "wake_missed_signals", "process_child_events", "prune",
    "schedules.declare", "schedules.fire_due", "limits.set", "limits.remove", "limits.list", "limits.declare",
    "limits.set_quota", "limits.remove_quota", "workers.overview", "workers.send_command", "workers.recoveries",
    "workers.delete_old_rows", "stats.read", "stats.queues", "tokens.find", "tokens.exist", "tokens.authenticate",
    "sessions.create", "sessions.use", "sessions.end",
    "tokens.rotate", "on_store", "results.close", "workers.detail",
    "stats.backlog", "stats.queue", "stats.job_type",
    "workers.check_in", "workers.command", "workers.deregister", "workers.record_heartbeat",
    "executions.add_log_lines", "executions.check_children", "executions.enqueue_children", "executions.progress",
    "executions.record_step", "executions.signals", "executions.steps",
}  # fmt: skip
"""Operations of processes and operators: a tenant is refused, whatever the arguments."""
NO_OPERATION = {"scoped"} | {name for name in vars(Runtime) if not name.startswith("_")}


def services() -> dict[str, type[Service]]:
    properties = {name: getattr(value, "func", None) for name, value in vars(Engine).items()}
    return {name: kind for name, kind in properties.items() if isinstance(kind, type) and issubclass(kind, Service)}


def operations() -> set[str]:
    """Every public method of the engine and of its services."""
    methods = {name for name, value in vars(Engine).items() if inspect.isfunction(value) and not name.startswith("_")}
    for service, kind in services().items():
        methods |= {f"{service}.{name}" for name, value in vars(kind).items() if inspect.isfunction(value)}
    return {name for name in methods if not name.split(".")[-1].startswith("_")} - NO_OPERATION


def test_every_operation_is_a_tenants_or_an_operators() -> None:
    assert len(services()) == 12
    tables = (ON_JOBS, IN_BULK, ON_DEAD_LETTERS, SUBMITS, LISTS, ON_FILTERS, ON_SCHEDULES, OWN)
    tenants = {name for table in tables for name in table}
    assert not tenants & OPERATORS
    assert operations() == tenants | OPERATORS, "limit it to a tenant and test it here, or mark it operators_only"


@pytest.mark.parametrize("act", sorted(OPERATORS))
async def test_an_operation_of_operators(engine: Engine, place: Place, act: str) -> None:
    acme: Any = engine.scoped(tenant="acme")
    *service, name = act.split(".")
    method = getattr(getattr(acme, service[0]) if service else acme, name)
    parameters = list(inspect.signature(method).parameters.values())

    async def call() -> Any:
        return method(*(None for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD))

    await refused_untouched(place, call(), "TENANT_SCOPE_VIOLATION", 403)


@pytest.mark.parametrize("act", ON_JOBS)
async def test_a_job(engine: Engine, place: Place, clock: FakeClock, act: str) -> None:
    (contract, status), call = ON_JOBS[act]
    job = await reach(engine, clock, contract, status, tenant_id="acme")
    await refused_untouched(place, call(engine.scoped(tenant="rival"), job.id), "JOB_NOT_FOUND", 404)
    await call(engine.scoped(tenant="acme"), job.id)


async def test_an_awaited_result_is_within_reach_and_without_payloads(engine: Engine, clock: FakeClock) -> None:
    job = await reach(engine, clock, "standard", "failed")
    assert job.error_message and (await engine.results.wait(job.id)).error_message == job.error_message
    outside = engine.scoped(tenant=None, reach=Reach(queues=("other",)))
    await refused(outside.results.wait(job.id), "JOB_NOT_FOUND", 404)
    blind = engine.scoped(tenant=None, payloads=False).results
    state = await blind.wait(job.id)
    assert (state.result, state.error_message, state.error_code) == (None, None, job.error_code)
    assert "secret" not in str(vars(await blind.failure(ended(job.id))))


@pytest.mark.parametrize("act", IN_BULK)
async def test_many_jobs(engine: Engine, clock: FakeClock, act: str) -> None:
    (contract, status), call = IN_BULK[act]
    job = await reach(engine, clock, contract, status, tenant_id="acme")
    result = await call(engine.scoped(tenant="rival"), job.id)
    assert (result.done, result.refusals[0]["code"]) == (0, "JOB_NOT_FOUND")
    assert (await call(engine.scoped(tenant="acme"), job.id)).done == 1


@pytest.mark.parametrize("act", ON_DEAD_LETTERS)
async def test_a_dead_letter(engine: Engine, place: Place, clock: FakeClock, act: str) -> None:
    job = await reach(engine, clock, "standard", "failed", tenant_id="acme")
    assert job.dlq_id
    call = ON_DEAD_LETTERS[act]
    await refused_untouched(place, call(engine.scoped(tenant="rival"), job.dlq_id), "DLQ_ITEM_NOT_FOUND", 404)
    await call(engine.scoped(tenant="acme"), job.dlq_id)


@pytest.mark.parametrize("act", ON_FILTERS)
async def test_dead_letters_by_filter(engine: Engine, place: Place, clock: FakeClock, act: str) -> None:
    for tenant in ("acme", "rival"):
        await reach(engine, clock, "streams", "failed", tenant_id=tenant)  # one person may discard
    acme, call = engine.scoped(tenant="acme"), ON_FILTERS[act]
    await refused_untouched(place, call(acme, Filter(tenant_id="rival")), "TENANT_SCOPE_VIOLATION", 403)
    result = await call(acme, Filter())
    assert (result.matched, result.done) == (1, 1)
    assert [item.tenant_id for item in await engine.dead_letters.list(Filter(status="open"))] == ["rival"]


async def test_many_by_id_and_groups(engine: Engine, clock: FakeClock) -> None:
    jobs = [await reach(engine, clock, "gate-b2", "failed", tenant_id=tenant) for tenant in ("acme", "rival")]
    letters = [item.id for item in await engine.dead_letters.list()]
    acme = engine.scoped(tenant="acme")
    assert [job.tenant_id for job in await acme.jobs.get_many([job.id for job in jobs])] == ["acme"]
    assert [item.tenant_id for item in await acme.dead_letters.get_many(letters)] == ["acme"]
    assert [group.count for group in (await acme.dead_letters.groups()).groups] == [1]


@pytest.mark.parametrize("act", SUBMITS)
async def test_a_submit(engine: Engine, place: Place, act: str) -> None:
    acme, call = engine.scoped(tenant="acme"), SUBMITS[act]
    other = await submit(engine, tenant_id="rival")
    await refused_untouched(place, call(acme, Submission("mail", tenant_id="rival")), "TENANT_SCOPE_VIOLATION", 403)
    await refused_untouched(place, call(acme, Submission("mail", parent_id=other.id)), "JOB_NOT_FOUND", 404)
    await call(acme, Submission("mail"))
    await call(acme, Submission("mail", tenant_id="acme"))
    assert {job.tenant_id for job in await acme.jobs.list()} == {"acme"}


async def test_a_key_of_another_tenant_is_no_hit(engine: Engine, place: Place) -> None:
    """men's keys have a scope without the tenant: a hit there would hand over another's task."""
    await submit(engine, "men", tenant_id="rival", idempotency_key="k")
    submission = Submission("mail", contract="men", idempotency_key="k")
    acme = engine.scoped(tenant="acme")
    await refused_untouched(place, acme.jobs.submit(submission), "TENANT_SCOPE_VIOLATION", 403)


@pytest.mark.parametrize("act", LISTS)
async def test_a_list(engine: Engine, clock: FakeClock, act: str) -> None:
    for tenant in ("acme", "rival"):
        await reach(engine, clock, "gate-b2", "failed", tenant_id=tenant)
        await engine.schedules.add(ScheduleRequest("tick", "mail", every=60, tenant_id=tenant), ANN)
    acme, call = engine.scoped(tenant="acme"), LISTS[act]

    async def rows(filter: Filter) -> list[Any]:
        answer = await call(acme, filter)
        return list(answer[0] if isinstance(answer, tuple) else answer)

    assert [row.tenant_id for row in await rows(Filter())] == ["acme"]
    assert len(await rows(Filter(tenant_id="acme"))) == 1
    await refused(rows(Filter(tenant_id="rival")), "TENANT_SCOPE_VIOLATION", 403)


@pytest.mark.parametrize("act", ON_SCHEDULES)
async def test_a_schedule(engine: Engine, place: Place, act: str) -> None:
    schedule = await engine.schedules.add(ScheduleRequest("tick", "mail", every=60, tenant_id="acme"), ANN)
    call = ON_SCHEDULES[act]
    await refused_untouched(place, call(engine.scoped(tenant="rival"), schedule.id), "SCHEDULE_NOT_FOUND", 404)
    await call(engine.scoped(tenant="acme"), schedule.id)


async def test_a_new_schedule(engine: Engine, place: Place) -> None:
    acme = engine.scoped(tenant="acme")
    request = ScheduleRequest("tick", "mail", every=60, tenant_id="rival")
    await refused_untouched(place, acme.schedules.add(request, ANN), "TENANT_SCOPE_VIOLATION", 403)
    assert (await acme.schedules.add(ScheduleRequest("tick", "mail", every=60), ANN)).tenant_id == "acme"


async def test_a_scope_limits_an_act_like_a_scoped_engine(engine: Engine, place: Place) -> None:
    job = await submit(engine, tenant_id="acme")
    rival, acme = Scope("ann", tenant="rival"), Scope("ann", tenant="acme")
    for other in (rival, Scope("ann", tenant="")):
        await refused_untouched(place, engine.jobs.cancel(job.id, other), "TENANT_SCOPE_VIOLATION", 403)
    scoped = engine.scoped(tenant="rival")
    await refused_untouched(place, scoped.jobs.cancel(job.id, acme), "TENANT_SCOPE_VIOLATION", 403)
    await refused(_scope_again(scoped), "TENANT_SCOPE_VIOLATION", 403)
    assert (await engine.scoped(tenant="acme").jobs.cancel(job.id, acme)).status == "cancelled"


async def _scope_again(engine: Engine) -> Engine:
    return engine.scoped(tenant="acme")


async def test_an_approval_with_roles_and_digest(engine: Engine) -> None:
    """The scoped engine checks both as the engine does."""
    await submit(engine, tenant_id="acme")
    held = await claim_one(engine)
    request = ApprovalRequest("pay", "{}", "d" * 64, roles=("boss",))
    await engine.settle(held.id, held.token, Waits(Wait("pay", "approval", approval=request)))
    approvals = engine.scoped(tenant="acme").approvals
    assert [row.job.id for row in await approvals.waiting()] == [held.id]
    assert await engine.scoped(tenant="rival").approvals.waiting() == []
    await refused(approvals.approve(held.id, ANN, roles=["clerk"]), "APPROVAL_ROLE_REQUIRED", 403)
    await refused(approvals.approve(held.id, ANN, roles=["boss"], digest="e" * 8), "APPROVAL_CHANGED", 409)
    assert (await approvals.approve(held.id, ANN, roles=["boss"], digest="d" * 8)).status == "queued"


async def test_the_audit_log_is_filtered_before_its_limit(engine: Engine) -> None:
    await engine.limits.set_quota("acme", ANN, weight=3)
    for weight in (5, 6, 7):
        await engine.limits.set_quota("rival", ANN, weight=weight)
    entries = await engine.scoped(tenant="acme").audit(limit=2)
    assert [(entry.act, entry.tenant_id) for _, _, entry in entries] == [("tenant.set_quota", "acme")]
    assert len(await engine.audit(limit=2)) == 2


async def test_quotas_and_statistics_of_a_tenant(engine: Engine) -> None:
    for tenant in ("acme", "rival"):
        await engine.limits.set_quota(tenant, ANN, weight=3)
        await submit(engine, tenant_id=tenant)
    acme = engine.scoped(tenant="acme")
    assert [quota.tenant_id for quota in await acme.limits.quotas()] == ["acme"]
    assert (await acme.stats.view())["jobs"] == 1


async def test_a_tenant_pauses_only_itself(engine: Engine, place: Place) -> None:
    limits = engine.scoped(tenant="acme").limits
    for kind, name in (("tenant", "rival"), ("queue", "default"), ("job_type", "mail")):
        await refused_untouched(place, limits.pause(kind, name, ANN), "TENANT_SCOPE_VIOLATION", 403)
        await refused_untouched(place, limits.resume(kind, name, ANN), "TENANT_SCOPE_VIOLATION", 403)
    await limits.pause("tenant", "acme", ANN)
    await limits.resume("tenant", "acme", ANN)


async def test_tokens_of_a_tenant(engine: Engine, place: Place) -> None:
    acme, rival = engine.scoped(tenant="acme").tokens, engine.scoped(tenant="rival").tokens
    await refused_untouched(place, acme.create("ann", "viewer", ANN, tenant="rival"), "TENANT_SCOPE_VIOLATION", 403)
    token, _ = await acme.create("ann", "viewer", ANN)
    everywhere, _ = await engine.tokens.create("op", "admin", ANN)
    assert token.tenant_id == "acme" and [other.id for other in await acme.list()] == [token.id]
    await refused_untouched(place, rival.revoke(token.id, ANN), "TOKEN_NOT_FOUND", 404)
    await refused_untouched(place, acme.revoke(everywhere.id, ANN), "TOKEN_NOT_FOUND", 404)
    assert (await acme.revoke(token.id, ANN)).revoked_at is not None


async def test_webhooks_of_a_tenant(engine: Engine, place: Place) -> None:
    acme, rival = engine.scoped(tenant="acme").webhooks, engine.scoped(tenant="rival").webhooks
    foreign = WebhookRequest("crm", "https://crm.example/", tenant_id="rival")
    await refused_untouched(place, acme.add(foreign, ANN), "TENANT_SCOPE_VIOLATION", 403)
    webhook, _ = await acme.add(WebhookRequest("crm", "https://crm.example/"), ANN)
    assert webhook.tenant_id == "acme"
    assert [len(await service.list()) for service in (acme, rival, engine.webhooks)] == [1, 0, 1]
    acts: list[Callable[[Any], Awaitable[Any]]] = [
        lambda service: service.get(webhook.id),
        lambda service: service.pause(webhook.id, ANN),
        lambda service: service.edit(webhook.id, {"url": "https://rival.example/"}, ANN),
        lambda service: service.resume(webhook.id, ANN),
        lambda service: service.replay(webhook.id, ANN, after="0"),
        lambda service: service.deliveries(webhook.id, 10),
        lambda service: service.remove(webhook.id, ANN),
    ]
    for act in acts:
        await refused_untouched(place, act(rival), "WEBHOOK_NOT_FOUND", 404)
        await act(acme)
