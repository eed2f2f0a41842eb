"""The operations of a transaction that are the same in every store: named queries with named values."""

import json
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from detent.core.alerts import Alert, Delivery, Silence
from detent.core.contract.io import contract_from
from detent.core.contract.model import Contract
from detent.core.errors import VersionConflict
from detent.core.job import (
    Change,
    DeadLetter,
    Event,
    Job,
    LogLine,
    Loss,
    Micros,
    Note,
    Progress,
    Signal,
    SignalKey,
    Step,
)
from detent.core.webhooks.subscription import Webhook
from detent.ports.claims import Claimed, ClaimRequest, Extended, HeldJob, HeldJobs, Success, Suspect
from detent.ports.listing import Backlog, Declaration, WorkerCommand, WorkerRow
from detent.ports.pruning import EventPartitions, Prunable, PruneCursor, PruneRule
from detent.ports.tail import JobProgress
from detent.ports.tx import MAX_NOTE_NUMBER, MAX_SEQ, OpenDeadLetter, StatusCount, Tx

from .access_queries import SESSION_COLUMNS, TOKEN_COLUMNS, AccessQueries
from .children_queries import ApprovalQueries
from .lanes import FIRST_SUSPECT_LANE, LANE_PLACEHOLDERS, lane
from .limit_queries import LimitQueries
from .listing_queries import ListingQueries
from .metrics_queries import MetricsQueries
from .rows import (
    JOB_COLUMNS,
    columns_of,
    event_from,
    job_from,
    note_from,
    note_values,
    signal_from,
    step_from,
)
from .schedule_queries import DECIDED, SCHEDULE_COLUMNS, ScheduleQueries
from .stream_queries import TAIL_COLUMNS, OutboxQueries, TailQueries
from .verify_queries import VerifyQueries

_INTERNED_COLUMNS = {
    "lane_group": ("contract", "queue", "job_type"),
    "lane_party": ("tenant_id", "limit_key"),
    "lane_mark": ("kind", "name"),
    "state": ("contract", "status"),
    "edge": ("event", "source", "target"),
    "actor": ("name",),
}

_COLUMNS = {
    "": JOB_COLUMNS,
    "dead_": columns_of(DeadLetter),
    "worker_": columns_of(WorkerRow),
    "schedule_": SCHEDULE_COLUMNS,
    "token_": TOKEN_COLUMNS,
    "session_": SESSION_COLUMNS,
    "alert_": columns_of(Alert),
    "delivery_": columns_of(Delivery),
    "silence_": columns_of(Silence),
    "webhook_": columns_of(Webhook),
    "loss_": columns_of(Loss),
}
PLACEHOLDERS = {
    **{f"{{{prefix}columns}}": ", ".join(names) for prefix, names in _COLUMNS.items()},
    **{f"{{{prefix}places}}": ", ".join(f":{name}" for name in names) for prefix, names in _COLUMNS.items()},
    "{decided}": ", ".join(f"{name} = :{name}" for name in DECIDED),
    "{tail_columns}": TAIL_COLUMNS,
    **LANE_PLACEHOLDERS,
}
_FORM = re.compile(r"\{([a-z_]+):([^{}]*)\}")


def fill_placeholders(text: str, own: Mapping[str, str], forms: Mapping[str, str]) -> str:
    """A query text with its column lists, the placeholders of a dialect and its forms filled in.

    `{form:argument}` becomes the text of the form, with the argument for its `{0}`. The argument may contain forms.
    queries.sql describes them.
    """
    for placeholder, value in {**own, **PLACEHOLDERS}.items():
        text = text.replace(placeholder, value)
    replaced = 1
    while replaced:
        text, replaced = _FORM.subn(lambda match: forms[match[1]].replace("{0}", match[2]), text)
    return text


class TxQueries(
    ApprovalQueries,
    ListingQueries,
    ScheduleQueries,
    AccessQueries,
    TailQueries,
    OutboxQueries,
    LimitQueries,
    MetricsQueries,
    VerifyQueries,
):
    """Everything but inserts, claims and plain successes. A subclass per store runs the named queries."""

    async def lock(self, ids: Sequence[str], *, wait: bool = True) -> dict[str, Job]:
        return {row[0]: job_from(row) for row in await self.query("lock", ids=json.dumps(list(ids)))}

    @abstractmethod
    async def insert(self, changes: Sequence[Change]) -> set[str]:
        """Insert new jobs; returns the ids that existed already (a repeated submit), which are not changed."""

    @abstractmethod
    async def succeed(self, successes: Sequence[Success]) -> list[Success]:
        """Settle plain successes; returns those whose token does not hold a leased job."""

    @abstractmethod
    async def claim(self, request: ClaimRequest) -> list[Claimed]:
        """Lease due jobs that the request accepts."""

    async def lane_of(self, job: Job) -> int:
        """The lane number of a job; creates its lane group, party and marks if they are new."""
        interned = self.lane_cache.interned
        group = interned.get(group_key := ("lane_group", job.contract, job.queue, job.job_type))
        party = interned.get(party_key := ("lane_party", job.tenant_id, job.limit_key))
        if group is None or party is None or ("lane_mark", "rank", str(job.priority)) not in interned:
            group, party = await self.number_of(*group_key), await self.number_of(*party_key)
            await self.number_of("lane_mark", "rank", str(job.priority))
        if job.deadline_at is not None:
            await self.number_of("lane_mark", "deadline", "")
        return lane(job.priority, group, party, suspect=job.suspect)

    async def number_of(self, table: str, *names: str) -> int:
        """The id of the row that stands for these names, from the cache or by `intern`."""
        row_id = self.lane_cache.interned.get((table, *names))
        if row_id is None:
            row_id = await self.intern(table, dict(zip(_INTERNED_COLUMNS[table], names, strict=True)))
            self.lane_cache.intern((table, *names), row_id)
        return row_id

    async def intern(self, table: str, values: dict[str, str]) -> int:
        """The id of a row that stands for names; inserts it if it is new."""
        if await self.change(f"add_{table}", **values) and table.startswith("lane_"):
            await self.change("raise_lane_version")
        return await self.number(f"find_{table}", **values)

    async def apply(self, changes: Sequence[Change]) -> None:
        for change in changes:
            before, after = change.before, change.after
            assert before is not None, "apply changes jobs that exist; insert creates them"
            if not await self.update_job(change):
                raise VersionConflict(
                    f"job {after.id} was changed by another call; read it and repeat", job_id=after.id
                )
            if before.suspect != after.suspect:
                await self.change("move_to_lane", id=after.id, lane=await self.lane_of(after))
            await self.add_events(change.events)
            await self.note_error(change)
            if change.dead_letter:
                await self.put_dead_letter(change.dead_letter)
            if change.notes:
                await self.add_notes(change.notes)
            await self.record_family_events(change)
        await self.write_outbox(changes)

    @abstractmethod
    async def update_job(self, change: Change) -> bool:
        """Write the row after a change; False if its version is not the one before the change."""

    @abstractmethod
    async def add_events(self, events: Sequence[Event]) -> None: ...

    async def add_notes(self, notes: Sequence[Note]) -> None:
        for note in notes:
            await self.change("insert_note", **note_values(note))

    async def key_owners(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
        if not keys:
            return {}
        rows = await self.query("key_owners", pairs=json.dumps(list(keys)))
        return {(row[0], row[1]): row[2] for row in rows}

    async def take_keys(self, keys: Sequence[tuple[str, str]], job_id: str) -> bool:
        taken = 0
        for space, key in keys:
            taken += await self.change("take_key", space=space, key=key, job_id=job_id, now=self.now)
        return taken == len(keys)

    async def take_all_keys(self, owned: Sequence[tuple[str, str, str]]) -> int:
        return await self.change("take_all_keys", owned=json.dumps(sorted(owned)), now=self.now)

    async def next_attempt(self, task_id: str) -> int:
        return await self.number("next_attempt", task_id=task_id)

    async def last_jobs_of_task(self, task_id: str, spaces: Sequence[str]) -> list[str]:
        rows = await self.query("last_jobs_of_task", task_id=task_id, spaces=json.dumps(list(spaces)))
        return [row[0] for row in rows]

    async def extend(self, held: Mapping[str, str], lease: Micros) -> Extended:
        text = json.dumps(dict(held))
        await self.change("extend", held=text, lease=lease, now=self.now)
        return await self.check_leases(held)

    async def check_leases(self, held: Mapping[str, str]) -> Extended:
        text = json.dumps(dict(held))
        lost = frozenset(row[0] for row in await self.query("not_held", held=text, now=self.now))
        return Extended(lost, {row[0]: row[1] for row in await self.query("cancels", held=text)})

    async def put_declaration(self, declaration: Declaration) -> None:
        await self.change("put_declaration", **declaration._asdict(), now=self.now)

    async def list_declarations(self) -> list[Declaration]:
        return await self.fetch(Declaration, "declarations")

    async def put_worker(self, worker: WorkerRow) -> None:
        await self.change("put_worker", **asdict(worker))

    async def list_workers(self) -> list[WorkerRow]:
        return await self.fetch(WorkerRow, "workers")

    async def worker(self, worker_id: str) -> WorkerRow | None:
        return await self.fetch_one(WorkerRow, "worker", id=worker_id)

    async def held_by(self, worker_id: str, limit: int) -> list[HeldJob]:
        return await self.fetch(HeldJob, "held_by", worker=worker_id, limit=limit)

    async def drop_worker(self, worker_id: str) -> None:
        await self.change("drop_worker", id=worker_id)
        await self.change("drop_order", worker=worker_id)

    async def put_command(self, command: WorkerCommand) -> None:
        await self.change("put_order", **command._asdict())

    async def command_of(self, worker: str) -> WorkerCommand | None:
        return await self.fetch_one(WorkerCommand, "order_of", worker=worker)

    async def commands(self) -> list[WorkerCommand]:
        return await self.fetch(WorkerCommand, "orders")

    async def add_loss(self, loss: Loss) -> None:
        await self.change("add_loss", **asdict(loss))

    async def losses(self, since: Micros, limit: int) -> list[Loss]:
        return await self.fetch(Loss, "losses", since=since, limit=limit)

    async def drop_losses(self, before: Micros) -> None:
        await self.change("drop_losses", before=before)

    async def drop_old_workers(self, before: Micros) -> None:
        await self.change("drop_workers", before=before)
        await self.change("drop_orders", before=before)

    async def next_due(self) -> Micros | None:
        moments = [(await self.query("next_due", phase=phase))[0][0] for phase in ("claimable", "blocked")]
        return min((m for m in moments if m is not None), default=None)

    async def next_wake(self) -> Micros | None:
        moment: Micros | None = (await self.query("next_due", phase="blocked"))[0][0]
        return moment

    async def any_leased_or_due(self, job_types: Sequence[str], horizon: Micros) -> bool:
        rows = await self.query("any_leased_or_due", types=json.dumps(list(job_types)), now=self.now, horizon=horizon)
        return bool(rows[0][0])

    async def oldest_due(self) -> dict[int, Micros]:
        return {row[0]: row[1] for row in await self.query("oldest_due", now=self.now)}

    async def promote(self, limit: int) -> int:
        return await self.change("promote", now=self.now, limit=limit)

    async def expired(self, limit: int, contracts: Sequence[str], timed_out: Sequence[str] = ()) -> list[Job]:
        names = {"contracts": json.dumps(list(contracts)), "timed_out": json.dumps(list(timed_out))}
        return await self.fetch_jobs("expired", now=self.now, limit=limit, **names)

    async def has_ready_suspect(self) -> bool:
        return bool(await self.query("ready_suspect", first=FIRST_SUSPECT_LANE))

    async def suspects(self) -> list[Suspect]:
        return await self.fetch(Suspect, "suspects", first=FIRST_SUSPECT_LANE)

    async def held_jobs(self, limit: int, *, queue: str | None = None, job_type: str | None = None) -> list[HeldJob]:
        tests = {"queue": "queue = :queue", "job_type": "job_type = :job_type"}
        rows = await self.matching("held_jobs", tests, limit=limit, queue=queue, job_type=job_type)
        return [HeldJob(*row) for row in rows]

    async def held_by_type(self) -> list[HeldJobs]:
        return await self.fetch(HeldJobs, "long_held")

    async def reclaimable(self, request: ClaimRequest, contracts: Sequence[str]) -> list[Job]:
        await self.refresh_lane_cache()
        groups = self.lane_cache.allowed_groups(request, contracts)
        values = {"groups": json.dumps(list(groups)), "paused": json.dumps(sorted(self.lane_cache.paused_parties))}
        return await self.fetch_jobs("reclaimable", now=self.now, limit=request.limit, **values)

    async def due_blocked(self, limit: int, contracts: Sequence[str]) -> list[Job]:
        return await self.fetch_jobs("due_blocked", now=self.now, limit=limit, contracts=json.dumps(list(contracts)))

    async def events(self, job_id: str) -> list[Event]:
        return [event_from(row) for row in await self.query("events", job_id=job_id)]

    async def notes(self, job_id: str) -> list[Note]:
        return [note_from(row) for row in await self.query("notes", job_id=job_id)]

    async def last_events(self, job_id: str, limit: int, below: int = MAX_SEQ) -> list[Event]:
        return [event_from(row) for row in await self.query("last_events", job_id=job_id, limit=limit, below=below)]

    async def last_notes(self, job_id: str, limit: int, below: int = MAX_NOTE_NUMBER) -> list[tuple[int, Note]]:
        rows = await self.query("last_notes", job_id=job_id, limit=limit, below=below)
        return [(row[0], note_from(tuple(row)[1:])) for row in rows]

    async def signal(self, job_id: str, name: str) -> Signal | None:
        return await self.fetch_one(signal_from, "signal", job_id=job_id, name=name)

    async def list_signals(self, job_id: str) -> list[Signal]:
        return await self.fetch(signal_from, "signals_of", job_id=job_id)

    async def add_signal(self, signal: Signal) -> None:
        await self.change("add_signal", **asdict(signal))

    async def missed_signals(self, after: SignalKey | None, limit: int) -> tuple[list[str], SignalKey | None]:
        where = "(job_id, name) > (:job_id, :name)" if after else "true"
        job_id, name = after or (None, None)
        rows = await self.query("signals_after", where, job_id=job_id, name=name, limit=limit)
        return [row[0] for row in rows[:-1]], (rows[-1][0], rows[-1][1]) if rows else None

    async def count_signals(self, job_id: str) -> int:
        return await self.number("count_signals", job_id=job_id)

    async def step(self, job_id: str, name: str) -> Step | None:
        return await self.fetch_one(step_from, "step", job_id=job_id, name=name)

    async def list_steps(self, job_id: str) -> list[Step]:
        return await self.fetch(step_from, "steps", job_id=job_id)

    async def count_steps(self, job_id: str) -> int:
        return await self.number("count_steps", job_id=job_id)

    async def steps_page(
        self, job_id: str, limit: int, offset: int = 0, *, name: str | None = None, results: bool = True
    ) -> list[Step]:
        where = "job_id = :job_id" if name is None else "job_id = :job_id AND name = :name"
        values = {"job_id": job_id, "name": name, "limit": limit, "offset": offset, "results": results}
        return [step_from(*row) for row in await self.query("steps_page", where, **values)]

    async def put_step(self, step: Step) -> None:
        await self.change("put_step", **asdict(step))

    async def record_step(self, step: Step, token: str) -> bool:
        return await self.change("record_step", **asdict(step), token=token, now=self.now) == 1

    async def put_progress(self, progress: Progress, token: str) -> bool:
        return await self.change("put_progress", **asdict(progress), token=token, now=self.now) == 1

    async def progress_of(self, ids: Sequence[str]) -> dict[str, Progress]:
        rows = await self.fetch(Progress, "progress", ids=json.dumps(list(ids)))
        return {progress.job_id: progress for progress in rows}

    async def progress_after(self, at: Micros, job_id: str, limit: int) -> list[JobProgress]:
        rows = await self.query("progress_after", at=at, job_id=job_id or self.below_all_ids, limit=limit)
        return [JobProgress(Progress(*row[:5]), *row[5:]) for row in rows]

    async def add_log_lines(self, job_id: str, lines: Sequence[LogLine], token: str) -> bool:
        rows = [(line.n, line.at, line.level, line.logger, line.message) for line in lines]
        return await self.change("add_log_lines", job_id=job_id, lines=json.dumps(rows), token=token) > 0

    async def trim_log_lines(self, job_id: str, execution_no: int, first: int) -> None:
        await self.change("trim_log_lines", job_id=job_id, execution_no=execution_no, first=first)

    async def log_lines(self, job_id: str, after: tuple[int, int], limit: int) -> list[LogLine]:
        execution_no, n = after
        return await self.fetch(LogLine, "log_lines", job_id=job_id, execution_no=execution_no, n=n, limit=limit)

    async def last_log_lines(self, job_id: str, limit: int) -> list[LogLine]:
        return (await self.fetch(LogLine, "last_log_lines", job_id=job_id, limit=limit))[::-1]

    async def dead_letter(self, dlq_id: str) -> DeadLetter | None:
        return await self.fetch_one(DeadLetter, "dead_letter", id=dlq_id)

    async def put_dead_letter(self, item: DeadLetter) -> None:
        await self.change("put_dead_letter", **asdict(item))

    async def counts(self, tenant: str | None = None) -> list[StatusCount]:
        query = "counts" if tenant is None else "counts_of_tenant"
        return await self.fetch(StatusCount, query, tenant=tenant)

    async def dead_letter_counts(self, tenant: str | None = None) -> dict[str, int]:
        query = "dead_letter_counts" if tenant is None else "dead_letters_of_tenant"
        return {row[0]: row[1] for row in await self.query(query, tenant=tenant)}

    async def open_dead_letters(self, contracts: Sequence[str]) -> list[OpenDeadLetter]:
        return await self.fetch(OpenDeadLetter, "open_dead_letters", contracts=json.dumps(list(contracts)))

    async def dead_letters_of(self, ids: Sequence[str]) -> list[DeadLetter]:
        return await self.fetch(DeadLetter, "dead_letters_of", ids=json.dumps(list(ids)))

    async def ping(self) -> None:
        await self.query("lane_version")

    async def backlog(self) -> list[Backlog]:
        return await self.fetch(Backlog, "backlog", now=self.now)

    async def jobs_ahead(self, job_id: str, at_most: int) -> int:
        return await self.number("jobs_ahead", id=job_id, at_most=at_most)

    async def contracts(self) -> dict[str, Contract]:
        return {name: contract_from(json.loads(text)) for name, text, _ in await self.query("contracts")}

    async def prune_cursor(self, scope: str) -> PruneCursor | None:
        return await self.fetch_one(PruneCursor, "pruning", scope=scope)

    async def put_prune_cursor(self, scope: str, cursor: PruneCursor) -> None:
        await self.change("put_pruning", scope=scope, **cursor._asdict())

    async def prunable(self, after: str, until: str | None, limit: int, rules: Sequence[PruneRule]) -> list[Prunable]:
        tests = {"after": "j.id > :after", "until": "j.id < :until"}
        numbered = json.dumps([(*rule, number) for number, rule in enumerate(rules)])
        values = {"after": after or None, "until": until, "rules": numbered, "limit": limit}
        rows = await self.matching("prune_candidates", tests, **values)
        return [Prunable(row[0], row[1], bool(row[2]), row[3]) for row in rows]

    async def event_partitions(self) -> EventPartitions | None:
        return None

    async def drop_jobs(self, ids: Sequence[str], with_events: Sequence[str]) -> dict[str, int]:
        text = json.dumps(list(ids))
        await self.change("prune_outbox", ids=text)
        await self.change("prune_fires", ids=text)
        for kind in _PRUNED_UNCOUNTED:
            await self.change(f"prune_{kind}", ids=text)
        events = await self.change("prune_events", ids=json.dumps(list(with_events))) if with_events else 0
        return {"events": events} | {kind: await self.change(f"prune_{kind}", ids=text) for kind in _PRUNED}

    async def drop_keys(self, owned: Sequence[tuple[str, str, str]], kept_until: Micros | None) -> int:
        text = json.dumps(list(owned))
        if kept_until is None:
            return await self.change("prune_keys", owned=text)
        await self.change("keep_keys", owned=text, until=kept_until)
        return 0

    async def drop_kept_keys(self, limit: int) -> int:
        return await self.change("drop_kept_keys", now=self.now, limit=limit)


class StoreTx(Tx):
    """What a store passes to an act. Every topic is the object that runs the queries."""

    __slots__ = ("queries", *Tx.__annotations__)

    def __init__(self, queries: TxQueries) -> None:
        self.queries = queries
        self.now = queries.now
        self.jobs = self.stats = self.log = self.keys = self.claims = self.due = queries
        self.signals = self.steps = self.output = self.dead_letters = self.children = queries
        self.awaited = self.approvals = queries
        self.schedules = self.fires = self.outbox = self.pruning = self.limits = self.quotas = queries
        self.pauses = self.workers = self.views = self.audit = self.tokens = self.sessions = self.answers = queries
        self.log_positions = self.event_counts = self.series = self.alerts = self.intervals = queries
        self.verification = self.declarations = self.webhooks = self.silences = queries


_PRUNED_UNCOUNTED = ("approvals", "votes", "family_news", "job_traces", "job_errors", "progress", "log_lines")
_PRUNED = ("notes", "steps", "signals", "dead_letters", "jobs")
