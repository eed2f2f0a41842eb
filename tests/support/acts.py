"""Short words for what tests do over and over: make a job, lead it somewhere, read what was logged."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from detent.core.access import Scope
from detent.core.errors import DetentError
from detent.core.job import Event, Failure, Job, Note, Wait
from detent.core.outcome import Cancelled, Failed, Succeeded, Waits
from detent.engine import Engine, Submission
from detent.ports.claims import Claimed
from support.clock import FakeClock
from support.stores import Place

NAMES = ("gate-b2", "men", "p3c", "streams", "formal", "standard")
LEASE_SECONDS = 30.0
LONG = 100_000.0
"""Seconds after which every backoff, lease and schedule of these tests is over."""


def retryable(contract: str, message: str = "try again") -> Failed:
    """A failure the contract retries: men knows two codes only."""
    return Failed(Failure("TASK_EXECUTION_FAILED" if contract == "men" else "BOOM", message, "Boom"))


def own_id(number: int) -> str:
    """An id as a client makes one before the call."""
    return f"01900000-0000-7000-8000-{number:012d}"


PERMANENT = Failed(Failure("BROKEN", "never works", "Broken", retryable=False))


async def submit(engine: Engine, contract: str = "standard", job_type: str = "mail", **fields: Any) -> Job:
    return (await engine.jobs.submit(Submission(job_type, contract=contract, **fields))).job


async def claim(engine: Engine, limit: int = 100, worker: str = "w1", **options: Any) -> list[Claimed]:
    for name in ("job_types", "queues"):
        if name in options:
            options[name] = frozenset(options[name])
    return await engine.claim(engine.claim_request(worker, limit, LEASE_SECONDS, **options))


async def claim_one(engine: Engine, worker: str = "w1", **options: Any) -> Claimed:
    claimed = await claim(engine, worker=worker, **options)
    assert len(claimed) == 1, f"expected one claimable job, got {claimed}"
    return claimed[0]


async def running(engine: Engine, contract: str = "standard", **fields: Any) -> Claimed:
    """A new job, held by w1; no other job of its type may be claimable."""
    job = await submit(engine, contract, **fields)
    return await claim_one(engine, job_types={job.job_type})


async def events_of(engine: Engine, job_id: str) -> list[Event]:
    return (await engine.jobs.history(job_id)).events


async def notes_of(engine: Engine, job_id: str) -> list[Note]:
    return (await engine.jobs.history(job_id)).notes


async def path_of(engine: Engine, job_id: str) -> list[str]:
    """The statuses a job went through, from its log."""
    return [event.target for event in await events_of(engine, job_id)]


async def note_names(engine: Engine, job_id: str) -> list[str]:
    return [note.name for note in await notes_of(engine, job_id)]


async def refused(act: Awaitable[Any], code: str, http_status: int | None = None) -> DetentError:
    """The act must be refused with this code, and say something a person can act on."""
    with pytest.raises(DetentError) as caught:
        await act
    error = caught.value
    assert error.code == code, error
    assert http_status is None or error.http_status == http_status, error
    assert len(error.message.split()) >= 4, f"no sentence: {error.message!r}"
    return error


async def refused_untouched(
    place: Place, act: Awaitable[Any], code: str, http_status: int | None = None
) -> DetentError:
    """Refused, and not a single row of any table is other than before."""
    before = place.dump()
    error = await refused(act, code, http_status)
    assert place.dump() == before
    return error


async def refused_noted(engine: Engine, job_id: str, act: Awaitable[Any], code: str, note: str) -> DetentError:
    """Refused with 409 or 422, the job and its events as before, and one note that tells of it."""
    before = await engine.jobs.history(job_id)
    error = await refused(act, code)
    after = await engine.jobs.history(job_id)
    assert after.job == before.job
    assert after.events == before.events
    assert [n.name for n in after.notes] == [*(n.name for n in before.notes), note]
    assert (after.notes[-1].data or {})["code"] == code
    return error


Step = Callable[[Engine, FakeClock, str], Awaitable[None]]


async def _claim(engine: Engine, clock: FakeClock, job_id: str) -> None:
    job = await engine.jobs.get(job_id)
    assert (await claim_one(engine, job_types={job.job_type})).id == job_id


async def _settle(engine: Engine, job_id: str, outcome: Any) -> None:
    job = await engine.jobs.get(job_id)
    assert job.token is not None
    await engine.settle(job_id, job.token, outcome)


async def _fail(engine: Engine, clock: FakeClock, job_id: str) -> None:
    await _settle(engine, job_id, retryable((await engine.jobs.get(job_id)).contract))


async def _break(engine: Engine, clock: FakeClock, job_id: str) -> None:
    await _settle(engine, job_id, PERMANENT)


async def _succeed(engine: Engine, clock: FakeClock, job_id: str) -> None:
    await _settle(engine, job_id, Succeeded('{"n":1}'))


async def _wait(engine: Engine, clock: FakeClock, job_id: str) -> None:
    await _settle(engine, job_id, Waits(Wait("answer")))


async def _park(engine: Engine, clock: FakeClock, job_id: str) -> None:
    await _settle(engine, job_id, Waits(Wait("answer", park=True)))


async def _give_up(engine: Engine, clock: FakeClock, job_id: str) -> None:
    await _settle(engine, job_id, Cancelled("no need"))


async def _lose(engine: Engine, clock: FakeClock, job_id: str) -> None:
    clock.advance(LEASE_SECONDS)
    assert job_id in [job.id for job in await engine.expire()]


async def _cancel(engine: Engine, clock: FakeClock, job_id: str) -> None:
    await engine.jobs.cancel(job_id, Scope("ann"))


HELD, LATER = {"hold": True}, {"delay": 3600.0}
ROUTES: dict[str, dict[str, tuple[dict[str, Any], tuple[Step, ...]]]] = {
    "gate-b2": {
        "queued": ({}, ()),
        "running": ({}, (_claim,)),
        "retrying": ({}, (_claim, _fail)),
        "succeeded": ({}, (_claim, _succeed)),
        "failed": ({}, (_claim, _break)),
    },
    "men": {
        "pending": (LATER, ()),
        "ready": ({}, ()),
        "running": ({}, (_claim,)),
        "succeeded": ({}, (_claim, _succeed)),
        "failed": ({}, (_claim, _break)),
        "cancelled": ({}, (_cancel,)),
    },
    "p3c": {
        "queued": ({}, ()),
        "running": ({}, (_claim,)),
        "retry_scheduled": ({}, (_claim, _fail)),
        "interrupted": ({}, (_claim, _lose)),
        "succeeded": ({}, (_claim, _succeed)),
        "failed": ({}, (_claim, _break)),
        "cancelled": ({}, (_cancel,)),
    },
    "streams": {
        "queued": ({}, ()),
        "running": ({}, (_claim,)),
        "waiting_approval": (HELD, ()),
        "succeeded": ({}, (_claim, _succeed)),
        "failed": ({}, (_claim, _break)),
    },
    "formal": {
        "Queued": ({}, ()),
        "Running": ({}, (_claim,)),
        "Waiting": ({}, (_claim, _wait)),
        "Completed": ({}, (_claim, _succeed)),
        "Failed": ({}, (_claim, _break)),
        "Cancelled": ({}, (_claim, _give_up)),
    },
    "standard": {
        "scheduled": (LATER, ()),
        "queued": ({}, ()),
        "retrying": ({}, (_claim, _fail)),
        "interrupted": ({}, (_claim, _lose)),
        "running": ({}, (_claim,)),
        "waiting": ({}, (_claim, _wait)),
        "parked": ({}, (_claim, _park)),
        "waiting_approval": (HELD, ()),
        "succeeded": ({}, (_claim, _succeed)),
        "failed": ({}, (_claim, _break)),
        "cancelled": ({}, (_cancel,)),
    },
}
"""How a lone job gets into each status it can rest in; statuses of no contract but in passing are left out."""
RESTING = [(contract, status) for contract, routes in ROUTES.items() for status in routes]


async def reach(engine: Engine, clock: FakeClock, contract: str, status: str, **fields: Any) -> Job:
    """A new job in this status; no other job of its type may be claimable."""
    submit_options, steps = ROUTES[contract][status]
    job = await submit(engine, contract, **(submit_options | fields))
    for step in steps:
        await step(engine, clock, job.id)
    job = await engine.jobs.get(job.id)
    assert job.status == status
    return job
