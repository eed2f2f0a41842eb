"""Finds things by what people type: jobs by id, first digits of the id, task id or idempotency key; queues, job types,
schedules and dead letters. Every lookup is bounded."""

import re
from dataclasses import dataclass, field

from detent.core.contract.model import key_space
from detent.core.errors import DetentError
from detent.core.job import DeadLetter, Job
from detent.core.schedule import Schedule
from detent.engine.runtime import Runtime
from detent.ports.listing import Filter
from detent.ports.tx import Tx

MOST = 8
_MAX_LANES, _MAX_TENANTS, _MAX_KEYS = 500, 200, 5_000
_ID_START = re.compile(r"[0-9a-f]{8}[0-9a-f-]{0,28}")


@dataclass(slots=True)
class SearchResult:
    jobs: list[Job] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    queues: list[str] = field(default_factory=list)
    job_types: list[str] = field(default_factory=list)
    schedules: list[Schedule] = field(default_factory=list)


async def search(runtime: Runtime, text: str) -> SearchResult:
    """What the caller may see and matches the text, at most 8 of each kind."""

    async def read(tx: Tx) -> SearchResult:
        result = SearchResult()
        result.jobs = [job for job in await _jobs(runtime, tx, text) if runtime.sees(job)][:MOST]
        items = await tx.dead_letters.dead_letters_by_id([text.lower()])
        result.dead_letters = [item for item in items if runtime.sees(item)]
        if runtime.tenant is None:  # tenants share queues, whose names they may not see
            lanes = await tx.stats.lane_names(text, _MAX_LANES)
            names = [lane for lane in lanes if runtime.reach.includes(lane.queue, lane.job_type)]
            result.queues = _matching({lane.queue for lane in names}, text)
            result.job_types = _matching({lane.job_type for lane in names}, text)
        schedules = await tx.schedules.list_schedules(runtime.visible(Filter(text_outside=text, limit=MOST)))
        result.schedules = [schedule for schedule in schedules if runtime.sees(schedule)]
        return result

    return await runtime.store.read(read)


async def _jobs(runtime: Runtime, tx: Tx, text: str) -> list[Job]:
    lowered, ids = text.lower(), []
    if _ID_START.fullmatch(lowered):
        ids = await tx.jobs.ids_with_prefix(lowered, MOST)
    owners = await tx.keys.key_owners(await _possible_keys(runtime, tx, text))
    found = dict(await tx.jobs.lock([*ids, *owners.values()]))
    try:
        task = await runtime.find(tx, text)
        found[task.id] = task
    except DetentError:
        pass  # no such task, or several
    return sorted(found.values(), key=lambda job: job.id, reverse=True)


async def _possible_keys(runtime: Runtime, tx: Tx, text: str) -> list[tuple[str, str]]:
    """The text as an idempotency key, in the space of every contract and tenant; keys with a scope are not found."""
    tenants = [runtime.tenant] if runtime.tenant is not None else await tx.stats.tenant_names(_MAX_TENANTS)
    spaces = {
        key_space(contract.name, "key", *(tenant if field == "tenant_id" else None for field in contract.keys.scope))
        for contract in runtime.contracts.values()
        for tenant in tenants
    }
    return [(space, text) for space in sorted(spaces)[:_MAX_KEYS]]


def _matching(names: set[str], text: str) -> list[str]:
    return sorted(name for name in names if text.lower() in name.lower())[:MOST]
