"""One Postgres transaction: runs the named queries, and the operations that differ from other stores."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from detent.core.contract.model import Phase
from detent.core.errors import InvalidInput
from detent.core.job import APPROVAL, Change, Event, Job, Micros
from detent.ports.claims import Extended
from detent.ports.listing import Filter
from detent.ports.tail import Position, TailEvent, end_of_commit
from detent.stores.lanes import LaneCache
from detent.stores.rows import EVENT_COLUMNS, MUTABLE, event_from, event_values, job_from
from detent.stores.sql_files import in_namespace
from detent.stores.stream_queries import TailQueries
from detent.stores.tx_queries import TxQueries

from .connections import Connection
from .dialect import compiled, is_uuid, without_locks
from .insert import insert
from .names import PLAIN_COLUMNS, Intern, Names
from .partitions import PartitionQueries

_EVENT_WIDTH = len(EVENT_COLUMNS)
_TAIL_WINDOW = 2_000
_LOWEST_ID = "00000000-0000-0000-0000-000000000000"
_TAIL_PLAN = "SET LOCAL enable_bitmapscan = on; SET LOCAL plan_cache_mode = force_custom_plan"
"""A BRIN index needs a bitmap scan, which is off for all other statements of the pool."""


_RAW_QUERIES = frozenset({"expired", "due_blocked", "reclaimable", "past_deadline", "cancellable_children"})
"""Queries that return locked rows of table jobs as they are."""
MUTABLE_PLAIN = tuple(name for name in MUTABLE if name in PLAIN_COLUMNS)


def _waits_for_approval(job: Job) -> bool:
    kind = job.wait_kind
    return job.phase is Phase.BLOCKED and (kind == APPROVAL or (kind is None and job.due_at is None))


def _ends_lease(change: Change) -> bool:
    return change.before is not None and change.before.phase is Phase.LEASED and change.after.phase is not Phase.LEASED


@dataclass(slots=True)
class Places:
    """Where a job was in queue and timers, and where it is after a change: parameters of update_job."""

    before_lane: int
    lane: int
    was_due_at: Micros | None
    """None: it was in neither."""
    woke: bool
    wakes: bool
    in_queue: bool
    in_timers: bool
    stays: bool

    @staticmethod
    def of(before: Job, after: Job, before_lane: int, lane: int) -> "Places":
        was_there = before.phase in (Phase.CLAIMABLE, Phase.BLOCKED)
        wakes = after.phase is Phase.BLOCKED
        timed = (wakes and after.due_at is not None) or (after.phase is Phase.CLAIMABLE and not after.ready)
        in_queue = after.phase is Phase.CLAIMABLE and after.ready
        stays = before.phase is after.phase and (before_lane, before.due_at) == (lane, after.due_at)
        was_due_at = before.due_at if was_there else None
        return Places(before_lane, lane, was_due_at, before.phase is Phase.BLOCKED, wakes, in_queue, timed, stays)


_SHORT_READS = frozenset({"lane_version", "next_due", "any_leased_or_due", "check_leases", "tenants", "uptime"})
"""Read by workers and submits all the time: they have the time limit of other statements."""


class PostgresTail(TailQueries):
    """Reads all events in commit order. A position is (transaction id, job id, seq); see ADR 0007."""

    connection: Any

    async def tail(self, after: Position, limit: int) -> tuple[list[TailEvent], Position]:
        horizon = await self.number("tail_horizon")
        await self.connection.execute(_TAIL_PLAN)
        position, window = after, _TAIL_WINDOW
        while position.commit < horizon:
            below = min(horizon, position.commit + window)
            events = await self._tail_between(position, below, limit)
            if len(events) == limit:
                return events, events[-1].position
            reached = end_of_commit(below - 1)
            if events or below == horizon:
                return events, max(reached, position)
            position, window = reached, window * 4
        return [], position

    async def _tail_between(self, after: Position, below: int, limit: int) -> list[TailEvent]:
        start = {"commit": after.commit, "job_id": after.job_id or _LOWEST_ID, "seq": after.seq}
        events = []
        for row in await self.query("tail", **start, below=below, limit=limit):
            event = event_from(row[1 : 1 + _EVENT_WIDTH])
            position = Position(row[0], event.job_id, event.seq)
            events.append(TailEvent(position, event, job_from(row[1 + _EVENT_WIDTH :])))
        return events

    async def tail_end(self) -> Position:
        return end_of_commit(await self.number("tail_horizon") - 1)


class PostgresTxQueries(PostgresTail, PartitionQueries):
    """Named queries on one connection, inside one transaction."""

    contains = "strpos"
    above_all_ids = "ffffffff-ffff-ffff-ffff-ffffffffffff"
    below_all_ids = "00000000-0000-0000-0000-000000000000"

    def __init__(
        self,
        connection: Connection,
        now: Micros,
        lane_cache: LaneCache,
        texts: dict[str, str],
        namespace: str,
        names: Names,
        intern: Intern,
        writes: bool = True,
        interns_itself: bool = False,
        read_seconds: float | None = None,
    ) -> None:
        super().__init__(now, lane_cache)
        self.connection = connection
        self.wrote = False
        """True: rows were changed, so that waiters of this process are woken after the commit."""
        self.made_ready = False
        """True: jobs may have become claimable, so that other processes are notified after the commit."""
        self.ended = False
        """True: jobs ended, so that processes that await their results are notified after the commit."""
        self._texts = texts
        self.namespace = namespace
        self.names = names.within(self.intern_here) if interns_itself else names
        self.ended_leases: list[str] = []
        """Jobs that are no longer leased, if this transaction commits."""
        self._intern_apart = intern
        self._writes = writes
        self._read_seconds = read_seconds

    async def query(self, name: str, where: str | None = None, /, **values: Any) -> list[Any]:
        text = self._texts[name]
        if where is not None:
            text = text.replace("{where}", in_namespace(where, self.namespace))
        query = compiled(text if self._writes else without_locks(text))
        values.setdefault("now", self.now)
        seconds = None if self._writes or name in _SHORT_READS else self._read_seconds
        rows: list[Any] = await self.connection.fetch(query.text, *(values[n] for n in query.names), timeout=seconds)
        return rows

    async def change(self, name: str, /, **values: Any) -> int:
        query = compiled(self._texts[name])
        values.setdefault("now", self.now)
        options = {"timeout": self._read_seconds} if name.startswith("prune_") else {}
        tag = await self.connection.execute(query.text, *(values[n] for n in query.names), **options)
        number = int(tag.rpartition(" ")[2])
        self.wrote |= number > 0
        return number

    async def lock(self, ids: Sequence[str], *, wait: bool = True) -> dict[str, Job]:
        uuids = sorted({job_id for job_id in ids if is_uuid(job_id)})
        rows = await self.query("lock" if wait else "lock_skip_locked", ids=json.dumps(uuids)) if uuids else []
        return {job.id: job for job in await self._jobs(rows)}

    async def _jobs(self, rows: Sequence[Any]) -> list[Job]:
        """The jobs of raw rows. Names are looked up by statements of their own: a row that was locked may be newer than
        the snapshot of the statement that locked it."""
        await self.names.load(rows, self.find_name)
        return [self.names.job(row) for row in rows]

    async def find_name(self, query: str, number: int) -> Sequence[Any]:
        row: Sequence[Any] = (await self.query(query, id=number))[0]
        return row

    async def fetch_jobs(self, name: str, where: str | None = None, /, **values: Any) -> list[Job]:
        rows = await self.query(name, where, **values)
        return await self._jobs(rows) if name in _RAW_QUERIES else [job_from(row) for row in rows]

    async def expired(self, limit: int, contracts: Sequence[str], timed_out: Sequence[str] = ()) -> list[Job]:
        if self._writes:  # a reader only looks at them
            await self.change("sweep_claims")
        return await super().expired(limit, contracts, timed_out)

    async def extend(self, held: Mapping[str, str], lease: Micros) -> Extended:
        """Rows are locked in the order of their ids. An id that is not a UUID is reported as lost."""
        uuids = {job_id: held[job_id] for job_id in sorted(held) if is_uuid(job_id)}
        extended = await super().extend(uuids, lease)
        return Extended(extended.lost | (held.keys() - uuids.keys()), extended.cancels)

    async def check_leases(self, held: Mapping[str, str]) -> Extended:
        uuids = {job_id: token for job_id, token in held.items() if is_uuid(job_id)}
        rows = await self.query("check_leases", held=json.dumps(uuids))
        lost = frozenset(row[0] for row in rows if row[1])
        return Extended(lost | (held.keys() - uuids.keys()), {row[0]: row[2] for row in rows if not row[1]})

    async def list_jobs(self, filter: Filter) -> list[Job]:
        if filter.before is not None and not is_uuid(filter.before):
            raise InvalidInput(
                f"{filter.before!r} is not a cursor; pass the next_cursor of the previous page", code="CURSOR_INVALID"
            )
        return await super().list_jobs(filter)

    async def insert(self, changes: Sequence[Change]) -> set[str]:
        lanes = [await self.lane_of(change.after) for change in changes]
        present = await insert(self.connection, self.namespace, self.names, changes, lanes)
        self.wrote = True
        self.made_ready |= any(change.after.ready for change in changes)
        for change in changes:
            if change.notes and change.after.id not in present:
                await self.add_notes(change.notes)
        return present

    async def apply(self, changes: Sequence[Change]) -> None:
        await super().apply(changes)
        self.made_ready |= any(change.after.ready for change in changes)
        self.ended |= any(change.ended is not None for change in changes)
        self.ended_leases += [change.after.id for change in changes if _ends_lease(change)]

    async def update_job(self, change: Change) -> bool:
        before, after = change.before, change.after
        assert before is not None
        worker = None if after.worker is None else await self.names.actor(after.worker)
        values = {name: getattr(after, name) for name in MUTABLE_PLAIN}
        values |= {"worker": worker, "state": self.names.state_ids[after.contract, after.status]}
        places = Places.of(before, after, await self.lane_of(before), await self.lane_of(after))
        rows = await self.query("update_job", **values, id=after.id, before_version=before.version, **asdict(places))
        self.wrote = True
        if _waits_for_approval(before) != _waits_for_approval(after):
            verb = "put" if _waits_for_approval(after) else "drop"
            await self.change(f"{verb}_awaiting_approval", id=after.id)
        if after.phase is Phase.LEASED and after.lease_until != before.lease_until:
            await self.change("put_claim", id=after.id, check_at=after.lease_until)
        return len(rows) == 1

    async def add_events(self, events: Sequence[Event]) -> None:
        for event in events:
            values = event_values(event)
            actor = None if event.actor is None else await self.names.actor(event.actor)
            await self.change("insert_event", **values | {"edge": await self.names.edge(event), "actor": actor})

    async def resume(self, kind: str, name: str) -> None:
        await super().resume(kind, name)
        self.made_ready = True

    async def intern_here(self, table: str, values: dict[str, str]) -> Any:
        """In this transaction. So do all behind PgBouncer: its connections may all be busy with transactions that wait
        for one more."""
        if table == "actors":
            return await self.query("intern_actors", **values)
        return await TxQueries.intern(self, table, values)

    async def intern(self, table: str, values: dict[str, str]) -> int:
        """In a transaction of its own: the row stays even if this transaction rolls back."""
        row_id: int = await self._intern_apart(table, values)
        return row_id
