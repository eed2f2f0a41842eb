"""`detent jobs`: acting on one job. cancel, abort, signal, requeue, reopen."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.contract import Contract
from ..core.errors import NotFound
from ..core.job import Job
from ..engine import Engine, Submitted
from ..engine.views import job_view, submitted_view
from .connection import on_engine
from .editor import in_editor
from .known_app import App, application, url_of
from .options import Actor, AsJson, JobId, Reason, Tenant, Url, actor_or_user, json_value, option
from .output import tell

if TYPE_CHECKING:
    from ..app import Detent

Payload = Annotated[str | None, option("--payload", "Another payload for the new job, as a JSON object.")]
Edit = Annotated[bool, option("--edit", "Open the payload in $EDITOR first.")]
TakeSteps = Annotated[bool, option("--take-steps", "Take over the steps that were recorded; they do not run again.")]


def register(group: typer.Typer) -> None:
    for name, command in (
        ("cancel", cancel),
        ("abort", abort),
        ("signal", signal),
        ("requeue", requeue),
        ("reopen", reopen),
    ):
        group.command(name)(command)


def cancel(
    job_id: JobId,
    force: Annotated[bool, option("--force", "Do not wait for the holder to obey.")] = False,
    reason: Reason = None,
    actor: Actor = None,
    tenant: Tenant = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Cancel a job: at once, or by asking its holder, as the contract says."""
    who = actor_or_user(actor)
    _act(url, as_json, lambda e: e.cancel(job_id, actor=who, reason=reason, tenant=tenant, force=force))


def abort(
    job_id: JobId,
    reason: Reason = None,
    actor: Actor = None,
    tenant: Tenant = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Give up a job that no worker holds: it fails for good, with a dead letter where the contract has them."""
    who = actor_or_user(actor)
    _act(url, as_json, lambda e: e.abort(job_id, actor=who, reason=reason, tenant=tenant))


def reopen(
    job_id: JobId,
    reason: Reason = None,
    actor: Actor = None,
    tenant: Tenant = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Run the same ended job again, where the contract has such an edge."""
    who = actor_or_user(actor)
    _act(url, as_json, lambda e: e.reopen(job_id, actor=who, reason=reason, tenant=tenant))


def _act(url: str | None, as_json: bool, call: Callable[[Engine], Awaitable[Job]]) -> None:
    async def act(engine: Engine) -> tuple[Contract, Job]:
        job = await call(engine)
        return engine.contract(job.contract), job

    contract, job = on_engine(url, act)
    asked = "; the holder is asked to stop" if job.cancel_requested else ""
    tell(as_json, job_view(contract, job), f"{job.id} {job.status}{asked}")


def signal(
    job_id: JobId,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name the job waits under.")],
    data: Annotated[str | None, option("--data", "What the job is told, as JSON; - reads stdin, @FILE a file.")] = None,
    actor: Actor = None,
    tenant: Tenant = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Send a job the signal it waits for, or will wait for."""
    value = json_value(data, "--data")

    async def act(engine: Engine) -> tuple[Contract, Job, bool]:
        job, first = await engine.signal(job_id, name, value, actor=actor_or_user(actor), tenant=tenant)
        return engine.contract(job.contract), job, first

    contract, job, first = on_engine(url, act)
    said = f"told {name!r}" if first else f"had {name!r} already, and the first one counts"
    tell(as_json, {"first": first, "job": job_view(contract, job)}, f"{job.id} {said}; it is {job.status}")


def requeue(
    some_id: Annotated[str, typer.Argument(metavar="ID", help="The dead letter, or the job that left it.")],
    payload: Payload = None,
    edit: Edit = False,
    take_steps: TakeSteps = False,
    reason: Reason = None,
    actor: Actor = None,
    tenant: Tenant = None,
    app: App = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Make a new job of a dead letter: fresh counters, the same effect keys, linked to what it came from."""
    known = application(app)
    given: Any = json_value(payload, "--payload")

    async def act(engine: Engine) -> tuple[Contract, Submitted]:
        asked = Requeue(some_id, actor_or_user(actor), reason, given, tenant, take_steps, edit)
        made = await _requeued(engine, asked, known)
        return engine.contract(made.job.contract), made

    contract, made = on_engine(url_of(url, known), act)
    said = f"{made.job.id} {made.job.status}, made of {made.job.requeued_from}"
    tell(as_json, submitted_view(contract, made), said)


@dataclass(frozen=True, slots=True)
class Requeue:
    """What was asked for on the command line."""

    some_id: str
    actor: str
    reason: str | None
    payload: Any
    tenant: str | None
    take_steps: bool
    edit: bool


async def _requeued(engine: Engine, asked: Requeue, known: "Detent | None") -> Submitted:
    """By the letter's own id, else by the id of a job that has ended."""
    told: dict[str, Any] = {"actor": asked.actor, "reason": asked.reason, "tenant": asked.tenant}
    try:
        letter = await engine.dead_letter(asked.some_id, tenant=asked.tenant)
    except NotFound:
        job = await engine.job(asked.some_id, tenant=asked.tenant)
        payload = _repaired(asked, job.payload, job.job_type, known)
        return await engine.requeue_job(job.id, payload=payload, **told)
    payload = _repaired(asked, letter.payload, letter.job_type, known)
    return await engine.requeue(letter.id, payload=payload, take_steps=asked.take_steps, **told)


def _repaired(asked: Requeue, stored: str, job_type: str, known: "Detent | None") -> Any:
    """The payload that was given or edited, as the handler would take it; None: the stored one is good."""
    given = asked.payload
    if asked.edit:
        shown = stored if given is None else json.dumps(given)
        given = json_value(in_editor(json.dumps(json.loads(shown), indent=2, ensure_ascii=False)), "the payload")
    job = known.jobs.get(job_type) if known else None
    if given is None or job is None or not isinstance(given, dict):
        return given
    return job.handler.payload((), given)
