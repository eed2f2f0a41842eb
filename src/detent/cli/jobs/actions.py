"""`detent jobs`: acting on one job. cancel, abort, signal, requeue, reopen."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from detent.cli.app_option import App, application
from detent.cli.option_groups import Asked, Place, spread
from detent.cli.options import Actor, JobId, Tenant, actor_or_user, json_value, option
from detent.core.contract.model import Contract
from detent.core.errors import NotFound
from detent.core.job import Job
from detent.engine import Engine, Submitted
from detent.engine.reads.views import job_view, submitted_view

from .editor import in_editor

if TYPE_CHECKING:
    from detent.client.app import Detent


@dataclass(frozen=True, slots=True)
class Repair:
    """What a new job is to have instead of what the dead one had."""

    payload: Annotated[str | None, option("--payload", "Another payload for the new job, as a JSON object.")] = None
    edit: Annotated[bool, option("--edit", "Open the payload in $EDITOR first.")] = False
    take_steps: Annotated[
        bool, option("--take-steps", "Take over the steps that were recorded; they do not run again.")
    ] = False


def register(group: typer.Typer) -> None:
    for name, command in (
        ("cancel", cancel),
        ("abort", abort),
        ("signal", signal),
        ("requeue", requeue),
        ("reopen", reopen),
    ):
        group.command(name)(spread(command))


def cancel(
    job_id: JobId,
    force: Annotated[bool, option("--force", "Do not wait for the holder to obey.")] = False,
    *,
    by: Asked,
    place: Place,
) -> None:
    """Cancel a job: at once, or by asking its holder, as the contract says."""
    _act(place, lambda engine: engine.cancel(job_id, **by.told(), force=force))


def abort(job_id: JobId, by: Asked, place: Place) -> None:
    """Give up a job that no worker holds: it fails for good, with a dead letter where the contract has them."""
    _act(place, lambda engine: engine.abort(job_id, **by.told()))


def reopen(job_id: JobId, by: Asked, place: Place) -> None:
    """Run the same ended job again, where the contract has such an edge."""
    _act(place, lambda engine: engine.reopen(job_id, **by.told()))


def _act(place: Place, call: Callable[[Engine], Awaitable[Job]]) -> None:
    async def act(engine: Engine) -> tuple[Contract, Job]:
        job = await call(engine)
        return engine.contract(job.contract), job

    contract, job = place.run(act)
    asked = "; the holder is asked to stop" if job.cancel_requested else ""
    place.tell(job_view(contract, job), f"{job.id} {job.status}{asked}")


def signal(
    job_id: JobId,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name the job waits under.")],
    data: Annotated[str | None, option("--data", "What the job is told, as JSON; - reads stdin, @FILE a file.")] = None,
    actor: Actor = None,
    tenant: Tenant = None,
    *,
    place: Place,
) -> None:
    """Send a job the signal it waits for, or will wait for."""
    value = json_value(data, "--data")

    async def act(engine: Engine) -> tuple[Contract, Job, bool]:
        job, first = await engine.signal(job_id, name, value, actor=actor_or_user(actor), tenant=tenant)
        return engine.contract(job.contract), job, first

    contract, job, first = place.run(act)
    said = f"told {name!r}" if first else f"had {name!r} already, and the first one counts"
    place.tell({"first": first, "job": job_view(contract, job)}, f"{job.id} {said}; it is {job.status}")


def requeue(
    some_id: Annotated[str, typer.Argument(metavar="ID", help="The dead letter, or the job that left it.")],
    *,
    repair: Repair,
    by: Asked,
    app: App = None,
    place: Place,
) -> None:
    """Make a new job of a dead letter: fresh counters, the same effect keys, linked to what it came from."""
    known = application(app)
    given: Any = json_value(repair.payload, "--payload")

    async def act(engine: Engine) -> tuple[Contract, Submitted]:
        made = await _requeued(engine, Requeue(some_id, by, repair, given), known)
        return engine.contract(made.job.contract), made

    contract, made = place.of(known).run(act)
    said = f"{made.job.id} {made.job.status}, made of {made.job.requeued_from}"
    place.tell(submitted_view(contract, made), said)


@dataclass(frozen=True, slots=True)
class Requeue:
    """What was asked for on the command line."""

    some_id: str
    by: Asked
    repair: Repair
    payload: Any


async def _requeued(engine: Engine, asked: Requeue, known: "Detent | None") -> Submitted:
    """By the letter's own id, else by the id of a job that has ended."""
    told = asked.by.told()
    try:
        dead_letter = await engine.dead_letter(asked.some_id, tenant=asked.by.tenant)
    except NotFound:
        job = await engine.job(asked.some_id, tenant=asked.by.tenant)
        payload = _repaired(asked, job.payload, job.job_type, known)
        return await engine.requeue_job(job.id, payload=payload, **told)
    payload = _repaired(asked, dead_letter.payload, dead_letter.job_type, known)
    return await engine.requeue(dead_letter.id, payload=payload, take_steps=asked.repair.take_steps, **told)


def _repaired(asked: Requeue, stored: str, job_type: str, known: "Detent | None") -> Any:
    """The payload that was given or edited, as the handler would take it; None: the stored one is good."""
    given = asked.payload
    if asked.repair.edit:
        shown = stored if given is None else json.dumps(given)
        given = json_value(in_editor(json.dumps(json.loads(shown), indent=2, ensure_ascii=False)), "the payload")
    job = known.jobs.get(job_type) if known else None
    if given is None or job is None or not isinstance(given, dict):
        return given
    return job.handler.payload((), given)
