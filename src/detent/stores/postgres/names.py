"""Names that Postgres rows hold as numbers: statuses, transitions, actors, and the parts of a lane.

The numbers never change, so that every name is read from the database once and then kept.
"""

import json
from collections import ChainMap
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, get_args

from detent.core.contract.model import Phase
from detent.core.job import Event, Job
from detent.ports.claims import Claimed
from detent.stores.contract_registry import PHASES
from detent.stores.lanes import (
    FIRST_SUSPECT_LANE,
    GROUP_MASK,
    PARTY_BITS,
    PARTY_MASK,
    LaneCache,
    group_of,
    party_of,
)
from detent.stores.rows import JOB_COLUMNS, MUTABLE, READY, TRACE_PREFIX

Find = Callable[[str, int], Awaitable[Sequence[Any]]]
"""(query, id) -> the row of a name. In a transaction it must use its connection: another one may not be free."""
Intern = Callable[[str, dict[str, str]], Awaitable[Any]]
"""(table, columns) -> id of the row, which is inserted if it is new; ("actors", names as JSON) -> rows (id, name)."""
_NAMED = frozenset({"contract", "job_type", "queue", "tenant_id", "limit_key", "status", "phase", READY, "worker"})
PLAIN_COLUMNS = tuple(name for name in JOB_COLUMNS if name not in _NAMED)
"""The columns of a job that its row holds as they are."""
_RAW = ("lane", "state", "worker", *PLAIN_COLUMNS)
_COUNTERS = frozenset({"failures", "retries", "interruptions", "losses"})
_IF_NULL = {
    **dict.fromkeys(_COUNTERS, "0"),
    "trace_id": f"'{TRACE_PREFIX}' || id",
    "effect_root": "id::text",
}
"""What NULL stands for in columns whose value is the same, or can be derived, for most jobs."""
RAW_COLUMNS = ", ".join(f"coalesce({name}, {_IF_NULL[name]}) AS {name}" if name in _IF_NULL else name for name in _RAW)
"""The columns of table jobs from which `Names.job` builds a job."""
_KINDS = {bool: "boolean", int: "integer"}


def sql_type(column: str) -> str:
    """The type of a parameter for a column of jobs or events. Not the column's own: that may be a domain, which asyncpg
    would ask the server about."""
    if column.endswith(("_at", "_until", "_ms")) or column in ("at", "lane"):
        return "bigint"
    if column in ("state", "worker", "edge", "actor"):
        return "integer"
    kinds = {field.name: field.type for owner in (Job, Event) for field in fields(owner)}
    kind = kinds.get(column, str)
    return next((name for python, name in _KINDS.items() if python in (kind, *get_args(kind))), "text")


def _assignment(name: str) -> str:
    value = f":{name}::{sql_type(name)}"
    return f"{name} = nullif({value}, 0)" if name in _COUNTERS else f"{name} = {value}"


RAW_ASSIGNMENTS = ", ".join(_assignment(name) for name in ("state", *MUTABLE) if name in _RAW)
"""The columns that a change of a job may write."""
_DUE_AT, _UPDATED_AT = map(_RAW.index, ("due_at", "updated_at"))


def edge_key(event: Event) -> tuple[str, str, str]:
    return event.event, event.source or "", event.target


@dataclass(slots=True)
class Names:
    """The names of one database. Calls that may meet a new number get `find`, which looks it up."""

    lane_cache: LaneCache
    intern: Intern
    state_ids: dict[tuple[str, str], int] = field(default_factory=dict)
    states: dict[int, tuple[str, str, Phase]] = field(default_factory=dict)
    """state -> (contract, status, phase)"""
    edge_ids: MutableMapping[tuple[str, str, str], int] = field(default_factory=dict)
    """(event, source or '', target) -> id"""
    actor_ids: MutableMapping[str, int] = field(default_factory=dict)
    actors: MutableMapping[int, str] = field(default_factory=dict)

    def set_states(self, rows: Iterable[tuple[int, str, str]]) -> None:
        """rows: (id, contract, status). Of two states of one status the newest is used for writing."""
        for number, contract, status in sorted(rows):
            self.states[number] = contract, status, PHASES[number & 3]
            self.state_ids[contract, status] = number

    def states_of(self, contract: str, status: str, phase: Phase) -> list[int]:
        """The states of jobs in this status: more than one if a later declaration changed its flags."""
        return [number for number, state in self.states.items() if state == (contract, status, phase)]

    def within(self, intern: Intern) -> "Names":
        """The same names for a transaction that interns new ones itself: they are not kept, as it may roll back."""
        return replace(
            self,
            intern=intern,
            edge_ids=ChainMap({}, self.edge_ids),
            actor_ids=ChainMap({}, self.actor_ids),
            actors=ChainMap({}, self.actors),
        )

    async def edge(self, event: Event) -> int:
        key = edge_key(event)
        number = self.edge_ids.get(key)
        if number is None:
            number = await self.intern("edge", dict(zip(("event", "source", "target"), key, strict=True)))
            self.edge_ids[key] = number
        return number

    async def actor(self, name: str) -> int:
        number = self.actor_ids.get(name)
        if number is None:
            number = await self.intern("actor", {"name": name})
            self._keep_actor(number, name)
        return number

    async def intern_actors(self, names: Iterable[str]) -> None:
        """Intern several names in one statement; one by one, each of them takes a transaction."""
        new = sorted(set(names) - self.actor_ids.keys())
        if len(new) > 1:
            for number, name in await self.intern("actors", {"names": json.dumps(new)}):
                self._keep_actor(number, name)

    def _keep_actor(self, number: int, name: str) -> None:
        if len(self.actors) >= _MAX_ACTORS:
            self.actors.clear()
            self.actor_ids.clear()
        self.actor_ids[name], self.actors[number] = number, name

    async def load(self, rows: Sequence[Sequence[Any]], find: Find) -> None:
        """Look up what the raw rows of jobs name and is not known yet."""
        for row in rows:
            if row[1] not in self.states:
                self.set_states([(row[1], *await find("state", row[1]))])
            if row[2] is not None and row[2] not in self.actors:
                self._keep_actor(row[2], (await find("actor", row[2]))[0])
        await self.load_lanes((row[0] for row in rows), find)

    async def load_lanes(self, lanes: Iterable[int], find: Find) -> None:
        groups, parties = self.lane_cache.groups, self.lane_cache.parties
        for lane in set(lanes):
            if group_of(lane) not in groups:
                groups[group_of(lane)] = tuple(await find("lane_group", group_of(lane)))
            if party_of(lane) not in parties:
                parties[party_of(lane)] = tuple(await find("party", party_of(lane)))

    def job(self, row: Sequence[Any]) -> Job:
        """The job of a raw row; its names must have been loaded. ready is what its last change decided."""
        lane, state, worker = row[0], row[1], row[2]
        contract, status, phase = self.states[state]
        _, queue, job_type = self.lane_cache.groups[group_of(lane)]
        tenant_id, limit_key = self.lane_cache.parties[party_of(lane)]
        return Job(
            contract=contract,
            job_type=job_type,
            queue=queue,
            tenant_id=tenant_id,
            limit_key=limit_key,
            status=status,
            phase=phase,
            ready=phase is Phase.CLAIMABLE and row[_DUE_AT] <= row[_UPDATED_AT],
            worker=None if worker is None else self.actors[worker],
            **dict(zip(PLAIN_COLUMNS, row[3:], strict=True)),
        )

    def claimed(self, row: Any) -> Claimed:
        """A row of a claim statement, see part_answer in claim_parts.sql; the names of its lane must be loaded."""
        (job_id, lane, payload, execution_no, retries, version, timeout_ms, trace_id, effect_root, key, cancel, due_at,
         _, traceparent, parent_id, token, losses, _) = row  # fmt: skip
        contract, queue, job_type = self.lane_cache.groups[lane >> PARTY_BITS & GROUP_MASK]
        tenant_id, _ = self.lane_cache.parties[lane & PARTY_MASK]
        return Claimed(
            job_id, token, contract, job_type, queue, tenant_id, payload, execution_no, retries, version, timeout_ms,
            trace_id or TRACE_PREFIX + job_id, effect_root or job_id, key, cancel, due_at, traceparent, parent_id,
            losses >= 2 or lane >= FIRST_SUSPECT_LANE,
        )  # fmt: skip


_MAX_ACTORS = 50_000
