"""`detent jobs`, the commands that change one job: cancel, abort, signal, requeue, reopen."""

import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from detent.cli.loader import load_app
from detent.cli.option_groups import ConnectionOptions, TenantAuditOptions
from detent.cli.options import Actor, App, JobId, Tenant, actor_or_user, option, parse_json
from detent.client.app import Detent
from detent.core.access import Scope
from detent.core.contract.model import Contract
from detent.core.errors import NotFound
from detent.core.job import DeadLetter, Job
from detent.engine import Engine, Submitted
from detent.engine.reads.views import job_view, submitted_view

from .jobs import group


@dataclass(frozen=True, slots=True)
class RepairOptions:
    """What the new job of a requeue takes from the dead letter, and what it replaces."""

    payload: Annotated[str | None, option("Replace the payload of the new job: a JSON object.")] = None
    edit: Annotated[bool, option("Edit the payload in $EDITOR first.")] = False
    take_steps: Annotated[bool, option("Copy the recorded steps to the new job; they do not run again.")] = False


@group.command("cancel")
def cancel(
    job_id: JobId,
    force: Annotated[bool, option("Cancel at once instead of asking the worker that runs the job.")] = False,
    *,
    audit: TenantAuditOptions,
    connection: ConnectionOptions,
) -> None:
    """Cancel a job: at once, or by asking the worker that runs it, depending on the contract."""
    _change_job(connection, lambda engine: engine.jobs.cancel(job_id, audit.scope(), force=force))


@group.command("abort")
def abort(job_id: JobId, audit: TenantAuditOptions, connection: ConnectionOptions) -> None:
    """Fail a job that no worker is running, for good; a dead letter is written if the contract has dead letters."""
    _change_job(connection, lambda engine: engine.jobs.abort(job_id, audit.scope()))


def _change_job(connection: ConnectionOptions, call: Callable[[Engine], Awaitable[Job]]) -> None:
    async def act(engine: Engine) -> tuple[Contract, Job]:
        job = await call(engine)
        return engine.contract(job.contract), job

    contract, job = connection.run(act)
    request = "; its worker was asked to stop" if job.cancel_requested else ""
    connection.print_result(job_view(contract, job), f"{job.id} {job.status}{request}")


@group.command("signal")
def signal(
    job_id: JobId,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the signal.")],
    data: Annotated[str | None, option("The data of the signal as JSON; - reads stdin, @FILE a file.")] = None,
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


@group.command("requeue")
def requeue(
    some_id: Annotated[str, typer.Argument(metavar="ID", help="The id of the dead letter or of its job.")],
    *,
    repair: RepairOptions,
    audit: TenantAuditOptions,
    app: App = None,
    connection: ConnectionOptions,
) -> None:
    """Requeue a dead letter as a new job: counters start at zero, effect keys stay the same, both are linked."""
    application = load_app(app) if app else None
    payload = parse_json(repair.payload, "--payload")
    scope = audit.scope()

    async def act(engine: Engine) -> tuple[Contract, Submitted]:
        """Requeue the dead letter with this id, else the finished job with this id."""
        scoped = engine.scoped(tenant=scope.tenant)
        stored: DeadLetter | Job
        try:
            stored = await scoped.dead_letters.get(some_id)
        except NotFound:
            stored = await scoped.jobs.get(some_id)
        new: dict[str, Any] = {"payload": _new_payload(stored, payload, repair.edit, application)}
        if isinstance(stored, DeadLetter):
            submitted = await engine.dead_letters.requeue(stored.id, scope, **new, take_steps=repair.take_steps)
        else:
            submitted = await engine.jobs.requeue(stored.id, scope, **new)
        return engine.contract(submitted.job.contract), submitted

    contract, submitted = connection.with_app(application).run(act)
    job = submitted.job
    message = f"{job.id} {job.status}, requeued from {job.requeued_from}"
    connection.print_result(submitted_view(contract, submitted), message)


@group.command("reopen")
def reopen(job_id: JobId, audit: TenantAuditOptions, connection: ConnectionOptions) -> None:
    """Run the same finished job again, if its contract has an edge for that."""
    _change_job(connection, lambda engine: engine.jobs.reopen(job_id, audit.scope()))


def _new_payload(stored: DeadLetter | Job, payload: Any, edit: bool, app: Detent | None) -> Any:
    """The payload from the command line or the editor, validated by the handler; None keeps the stored one."""
    if edit:
        text = stored.payload if payload is None else json.dumps(payload)
        edited = _edit_text(json.dumps(json.loads(text), indent=2, ensure_ascii=False))
        payload = parse_json(edited, "the payload")
    return app.jobs.checked_payload(stored.job_type, payload) if app and isinstance(payload, dict) else payload


def _edit_text(text: str) -> str:
    """Open the text in $VISUAL or $EDITOR and return what was saved."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "payload.json"
        path.write_text(text, "utf-8")
        try:
            subprocess.run([*shlex.split(editor), str(path)], check=True)
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            raise typer.BadParameter(f"the editor {editor!r} failed ({error}); set $EDITOR") from None
        return path.read_text("utf-8")
