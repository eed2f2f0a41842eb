"""`detent jobs`, commands that change one job: cancel, abort, signal, requeue, reopen."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from detent.cli.app_option import App, load_optional_app
from detent.cli.option_groups import ConnectionOptions, TenantAuditOptions, expand_option_groups
from detent.cli.options import Actor, JobId, Tenant, actor_or_user, option, parse_json
from detent.core.access import Scope
from detent.core.contract.model import Contract
from detent.core.errors import NotFound
from detent.core.job import Job
from detent.engine import Engine, Submitted
from detent.engine.reads.views import job_view, submitted_view

from .editor import edit_text

if TYPE_CHECKING:
    from detent.client.app import Detent


@dataclass(frozen=True, slots=True)
class RepairOptions:
    """What the new job of a requeue takes from the dead letter, and what it replaces."""

    payload: Annotated[str | None, option("--payload", "Replace the payload of the new job: a JSON object.")] = None
    edit: Annotated[bool, option("--edit", "Edit the payload in $EDITOR first.")] = False
    take_steps: Annotated[
        bool, option("--take-steps", "Copy the recorded steps to the new job; they do not run again.")
    ] = False


def register(group: typer.Typer) -> None:
    for name, command in (
        ("cancel", cancel),
        ("abort", abort),
        ("signal", signal),
        ("requeue", requeue),
        ("reopen", reopen),
    ):
        group.command(name)(expand_option_groups(command))


def cancel(
    job_id: JobId,
    force: Annotated[bool, option("--force", "Cancel at once instead of asking the worker that runs the job.")] = False,
    *,
    audit: TenantAuditOptions,
    connection: ConnectionOptions,
) -> None:
    """Cancel a job: at once, or by asking the worker that runs it, depending on the contract."""
    _change_job(connection, lambda engine: engine.jobs.cancel(job_id, audit.scope(), force=force))


def abort(job_id: JobId, audit: TenantAuditOptions, connection: ConnectionOptions) -> None:
    """Fail a job that no worker is running, for good; a dead letter is written if the contract has dead letters."""
    _change_job(connection, lambda engine: engine.jobs.abort(job_id, audit.scope()))


def reopen(job_id: JobId, audit: TenantAuditOptions, connection: ConnectionOptions) -> None:
    """Run the same finished job again, if its contract has an edge for that."""
    _change_job(connection, lambda engine: engine.jobs.reopen(job_id, audit.scope()))


def _change_job(connection: ConnectionOptions, call: Callable[[Engine], Awaitable[Job]]) -> None:
    async def act(engine: Engine) -> tuple[Contract, Job]:
        job = await call(engine)
        return engine.contract(job.contract), job

    contract, job = connection.run(act)
    request = "; its worker was asked to stop" if job.cancel_requested else ""
    connection.print_result(job_view(contract, job), f"{job.id} {job.status}{request}")


def signal(
    job_id: JobId,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the signal.")],
    data: Annotated[
        str | None, option("--data", "The data of the signal as JSON; - reads stdin, @FILE a file.")
    ] = None,
    actor: Actor = None,
    tenant: Tenant = None,
    *,
    connection: ConnectionOptions,
) -> None:
    """Send a signal to a job; a job that does not wait for it yet receives it when it does."""
    value = parse_json(data, "--data")

    async def act(engine: Engine) -> tuple[Contract, Job, bool]:
        job, first = await engine.jobs.signal(job_id, name, Scope(actor_or_user(actor), tenant=tenant), value)
        return engine.contract(job.contract), job, first

    contract, job, first = connection.run(act)
    outcome = f"received signal {name!r}" if first else f"already has signal {name!r}; this one was ignored"
    view = {"first": first, "job": job_view(contract, job)}
    connection.print_result(view, f"{job.id} {outcome}; status {job.status}")


def requeue(
    some_id: Annotated[str, typer.Argument(metavar="ID", help="The id of the dead letter or of its job.")],
    *,
    repair: RepairOptions,
    audit: TenantAuditOptions,
    app: App = None,
    connection: ConnectionOptions,
) -> None:
    """Requeue a dead letter as a new job: counters start at zero, effect keys stay the same, both are linked."""
    application = load_optional_app(app)
    request = RequeueRequest(some_id, audit, repair, parse_json(repair.payload, "--payload"))

    async def act(engine: Engine) -> tuple[Contract, Submitted]:
        submitted = await _requeue(engine, request, application)
        return engine.contract(submitted.job.contract), submitted

    contract, submitted = connection.with_app(application).run(act)
    job = submitted.job
    connection.print_result(
        submitted_view(contract, submitted), f"{job.id} {job.status}, requeued from {job.requeued_from}"
    )


@dataclass(frozen=True, slots=True)
class RequeueRequest:
    """The arguments of a requeue command."""

    some_id: str
    audit: TenantAuditOptions
    repair: RepairOptions
    payload: Any


async def _requeue(engine: Engine, request: RequeueRequest, app: "Detent | None") -> Submitted:
    """Requeue the dead letter with this id, else the finished job with this id."""
    scope = request.audit.scope()
    scoped = engine.scoped(tenant=scope.tenant)
    try:
        dead_letter = await scoped.dead_letters.get(request.some_id)
    except NotFound:
        job = await scoped.jobs.get(request.some_id)
        payload = _new_payload(request, job.payload, job.job_type, app)
        return await engine.jobs.requeue(job.id, scope, payload=payload)
    payload = _new_payload(request, dead_letter.payload, dead_letter.job_type, app)
    return await engine.dead_letters.requeue(
        dead_letter.id, scope, payload=payload, take_steps=request.repair.take_steps
    )


def _new_payload(request: RequeueRequest, stored: str, job_type: str, app: "Detent | None") -> Any:
    """The payload from the command line or the editor, validated by the handler; None keeps the stored one."""
    payload = request.payload
    if request.repair.edit:
        text = stored if payload is None else json.dumps(payload)
        edited = edit_text(json.dumps(json.loads(text), indent=2, ensure_ascii=False))
        payload = parse_json(edited, "the payload")
    job = app.jobs.get(job_type) if app else None
    if payload is None or job is None or not isinstance(payload, dict):
        return payload
    return job.handler.payload((), payload)
