"""Explains why a job is not running (`detent jobs why`): reads the job, pauses, limits and workers; writes nothing."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from detent.core.approval import Approval
from detent.core.contract.model import Contract, Phase
from detent.core.job import APPROVAL, CHILDREN, Event, Job, Micros, Note, Progress
from detent.core.outcome import HANDED_BACK
from detent.core.times import SECOND, iso
from detent.engine.execution.approvals import approval_view
from detent.engine.execution.steps import STEP_ORPHANED
from detent.engine.payload_access import redact_approval, redact_entry, redact_job, redact_progress
from detent.engine.runtime import Runtime
from detent.ports.children import ChildCount
from detent.ports.limits import MeterUse, Pause
from detent.ports.listing import WorkerRow
from detent.ports.tx import Tx

LIVE_LEASES = 3
"""A worker counts as dead if its last heartbeat is older than this many of its leases."""
MAX_AHEAD = 10_000
_MAX_READ = 500
"""Events and notes that are read, the newest ones."""
TIMER = "timer"
"""The kind of a wait that only its time ends."""
NOT_CLAIMING = ("stopping", "draining")
"""States in which a worker claims no more jobs."""


@dataclass(frozen=True, slots=True)
class Why:
    """A stable reason code, a sentence that explains it and what to do, and the details behind it."""

    reason: Annotated[str, "Stable code, like FINISHED or WAITS_FOR_SIGNAL."]
    sentence: Annotated[str, "The same in English."]
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All inputs of the explanation, read in one transaction."""

    now: Micros
    job: Job
    contract: Contract
    pauses: list[Pause]
    live: "list[LiveWorker]"
    ahead: int
    notes: list[Note]
    meters: list[MeterUse]
    """The meters of the limits that apply to the job, and how many jobs each counts."""
    approval: Approval | None
    children: list[ChildCount]
    all_tenants: bool
    """False: the caller is limited to a tenant, queues or types and is not told about workers and limits, which are
    shared with others."""
    traceback: str | None = None
    """Of the last failed execution, if the caller may see payloads."""
    progress: Progress | None = None


async def read_snapshot(tx: Tx, runtime: Runtime, job: Job) -> Snapshot:
    contract, payloads = runtime.contract(job.contract), runtime.payloads
    pauses = await tx.pauses.list_pauses()
    live = live_workers(await tx.workers.list_workers(), tx.now)
    ahead = await tx.stats.jobs_ahead(job.id, MAX_AHEAD) if job.phase is Phase.CLAIMABLE else 0
    notes = [note for _, note in reversed(await tx.log.last_notes(job.id, _MAX_READ))]
    progress = (await tx.output.progress_of([job.id])).get(job.id) if job.phase is Phase.LEASED else None
    if not payloads:
        progress = progress and redact_progress(progress)
        job, notes = redact_job(job), [redact_entry(note) for note in notes]
    meters = await tx.limits.meters_of([job]) if job.phase is Phase.CLAIMABLE else []
    approval = await tx.approvals.approval(job.id, job.wait_name or "") if job.wait_kind == APPROVAL else None
    if approval is not None and not payloads:
        approval = redact_approval(approval)
    children = await tx.children.count_children(job.id) if job.wait_kind == CHILDREN else []
    children = [count for count in children if runtime.sees(count)]
    everyone = runtime.tenant is None and not runtime.reach.is_limited
    has_failed = job.error_code and payloads
    traceback = last_traceback(job, (await tx.log.last_events(job.id, _MAX_READ))[::-1]) if has_failed else None
    return Snapshot(
        tx.now, job, contract, pauses, live, ahead, notes, meters, approval, children, everyone, traceback, progress
    )


def last_traceback(job: Job, events: Sequence[Event]) -> str | None:
    """The traceback of the failure that the job's error code is of; None if its last execution did not fail."""
    failures = [event.data or {} for event in events if "error_code" in (event.data or {})]
    return failures[-1].get("traceback") if failures and job.error_code else None


def explain(snapshot: Snapshot) -> Why:
    """The most important reason why the job is not running; the other reasons are in details["also"]."""
    first, *others = (*_REASONS[snapshot.job.phase](snapshot), *_orphaned_steps(snapshot))
    job = {"job_id": snapshot.job.id, "status": snapshot.job.status, "phase": str(snapshot.job.phase)}
    also = [asdict(other) for other in others]
    return Why(first.reason, first.sentence, {**first.details, **job, "also": also})


def is_live(worker: WorkerRow, now: Micros) -> bool:
    return now - worker.seen_at <= LIVE_LEASES * worker.lease


def types_of(worker: WorkerRow) -> list[str]:
    return [str(name) for name in json.loads(worker.job_types)]


def queues_of(worker: WorkerRow) -> list[str] | None:
    """None: every queue."""
    return None if worker.queues is None else [str(name) for name in json.loads(worker.queues)]


@dataclass(frozen=True, slots=True)
class LiveWorker:
    """A live worker with its queues and types as sets: `WorkerRow` has them as JSON."""

    row: WorkerRow
    job_types: frozenset[str]
    queues: frozenset[str] | None

    def named(self, by: str) -> frozenset[str]:
        """The queues or job types that it was started with."""
        return self.job_types if by == "job_type" else self.queues or frozenset()

    def serves(self, by: str, name: str) -> bool:
        return (by == "queue" and self.queues is None) or name in self.named(by)

    @property
    def abilities(self) -> tuple[object, ...]:
        """Equal for workers that differ in nothing that decides the state of a queue."""
        return self.job_types, self.queues, self.claims

    def can_run(self, queue: str, job_type: str) -> bool:
        return self.serves("job_type", job_type) and self.serves("queue", queue)

    @property
    def claims(self) -> bool:
        return self.row.state not in NOT_CLAIMING


def live_workers(rows: Iterable[WorkerRow], now: Micros) -> list[LiveWorker]:
    live = [(row, queues_of(row)) for row in rows if is_live(row, now)]
    return [
        LiveWorker(row, frozenset(types_of(row)), None if queues is None else frozenset(queues)) for row, queues in live
    ]


def _finished(snapshot: Snapshot) -> Iterator[Why]:
    job = snapshot.job
    cause = f" ({job.error_code}: {job.error_message})" if job.error_code else ""
    details = {"finished_at": iso(job.finished_at), "error_code": job.error_code, "dlq_id": job.dlq_id}
    details |= _traceback(snapshot)
    dead_letter = f"; its dead letter is {job.dlq_id}" if job.dlq_id else ""
    finished = f"it finished as {job.status} {ago(snapshot.now, job.finished_at)}"
    yield Why("FINISHED", f"{finished}{cause}{dead_letter}", details)


def _traceback(snapshot: Snapshot) -> dict[str, str]:
    return {"traceback": snapshot.traceback} if snapshot.traceback else {}


def _leased(snapshot: Snapshot) -> Iterator[Why]:
    job, now = snapshot.job, snapshot.now
    holder = [worker.row for worker in snapshot.live if worker.row.id == job.worker]
    details: dict[str, Any] = {"worker": job.worker, "lease_until": iso(job.lease_until), "holder_seen": bool(holder)}
    details["sweeping"] = bool(snapshot.live)
    if snapshot.progress is not None and snapshot.progress.execution_no == job.execution_no:
        details["progress"] = {"share": snapshot.progress.share, "message": snapshot.progress.message}
    if job.lease_until is not None and job.lease_until <= now:
        expired = f"the lease of worker {job.worker} expired {ago(now, job.lease_until)}"
        yield Why("LEASE_EXPIRED", f"{expired}; {_sweep(snapshot, 'takes the job back')}", details)
    else:
        dead = (
            "" if holder else "; this worker sends no heartbeats, so the job will be taken back when its lease expires"
        )
        until = moment(now, job.lease_until)
        yield Why("HELD", f"worker {job.worker} runs it, its lease lasts until {until}{dead}", details)
        yield from _blocked_loop(snapshot, holder)
    yield from _cancel_requested(snapshot)


def _blocked_loop(snapshot: Snapshot, workers: list[WorkerRow]) -> Iterator[Why]:
    """If a handler blocks the event loop of each of these workers: which one, and where."""
    blocks = [json.loads(worker.blocked) for worker in workers if worker.blocked]
    if not blocks or len(blocks) < len(workers):
        return
    block = min(blocks, key=lambda block: block["since"])
    own = block.get("job_id") == snapshot.job.id
    if not own and not snapshot.all_tenants:
        yield Why("LOOP_BLOCKED", "another job blocks the event loop of its worker")
        return
    culprit = f"job {block['job_id']} ({block['job_type']})" if "job_id" in block else "code of no known job"
    since = span(snapshot.now - block["since"])
    sentence = f"{'its handler' if own else culprit} has blocked the event loop of its worker for {since} at"
    advice = "no other job of that worker runs meanwhile; make the handler a plain `def`, or await"
    details = {"blocking_job_id": block.pop("job_id", None), **block, "since": iso(block["since"])}
    yield Why("LOOP_BLOCKED", f"{sentence} {block['location']}; {advice}", details)


def _orphaned_steps(snapshot: Snapshot) -> Iterator[Why]:
    names = [str((note.data or {}).get("name")) for note in snapshot.notes if note.name == STEP_ORPHANED]
    if names:
        steps = f"{'step' if len(names) == 1 else 'steps'} {_joined(map(repr, names))}"
        yield Why("STEP_ORPHANED", f"the handler's code has changed and no longer runs the {steps}", {"steps": names})


def _blocked(snapshot: Snapshot) -> Iterator[Why]:
    job, now = snapshot.job, snapshot.now
    until = f" until {moment(now, job.due_at)}" if job.due_at is not None else ""
    details: dict[str, Any] = {"waits_for": job.wait_name, "kind": job.wait_kind}
    details |= {"until": iso(job.due_at), "since": iso(job.updated_at)}
    if job.due_at is not None and job.due_at <= now:
        details["sweeping"] = bool(snapshot.live)
        yield Why("DUE_TO_WAKE", f"its wait ended {ago(now, job.due_at)}; {_sweep(snapshot, 'wakes it')}", details)
    elif job.status in snapshot.contract.approval_statuses:
        yield _waits_for_approval(snapshot, until, details)
    elif job.wait_kind == CHILDREN:
        counts = Counter[str]()
        for count in snapshot.children:
            counts[count.status] += count.number
        numbers = ", ".join(f"{number} {status}" for status, number in counts.items()) or "none that you may see"
        how = f"`detent jobs draw {job.id} --tree` shows them"
        sentence = f"it waits for its children ({numbers}){until}; {how}"
        yield Why("WAITS_FOR_CHILDREN", sentence, {**details, "children": dict(counts)})
    elif job.wait_name is not None and job.wait_kind != TIMER:
        how = f"send it with `detent jobs signal {job.id} {job.wait_name}`"
        yield Why("WAITS_FOR_SIGNAL", f"it waits for the signal {job.wait_name!r}{until}; {how}", details)
    elif job.due_at is not None:
        yield Why("WAITS_FOR_MOMENT", f"it is not due{until}", details)
    else:
        moves = ", ".join(dict.fromkeys(str(move) for move in snapshot.contract.legal_moves(job.status)))
        yield Why("BLOCKED", f"it stays {job.status} until an operator moves it; legal moves: {moves}", details)
    yield from _cancel_requested(snapshot)
    yield from _paused(snapshot)


def _waits_for_approval(snapshot: Snapshot, until: str, details: dict[str, Any]) -> Why:
    job, approval = snapshot.job, snapshot.approval
    how = f"decide with `detent jobs approve {job.id}` or `detent jobs reject {job.id}`"
    question = ""
    if approval is not None:
        votes = [f"{vote.person} {'approved' if vote.approved else 'rejected'}" for vote in approval.votes]
        quorum = approval.request.quorum
        count = f", {quorum - approval.missing} of {quorum} approvals" if quorum > 1 else ""
        roles = f" by {' or '.join(approval.request.roles)}" if approval.request.roles else ""
        voters = f" ({', '.join(votes)})" if votes else ""
        summary = repr(approval.request.summary) if approval.request.summary else "a hidden question"
        question = f" of {summary}{roles}{count}{voters}"
        details = {**details, "approval": approval_view(approval)}
    since = moment(snapshot.now, job.updated_at)
    return Why("WAITS_FOR_APPROVAL", f"it waits for approval{question} since {since}{until}; {how}", details)


def _claimable(snapshot: Snapshot) -> Iterator[Why]:
    """Reasons in the order in which they must be resolved; if there are none, other jobs are ahead or it is next."""
    blockers = [
        *_deadline_passed(snapshot),
        *_not_due(snapshot),
        *_cancel_requested(snapshot),
        *_paused(snapshot),
        *_no_worker(snapshot),
        *_blocked_loop(snapshot, _capable_workers(snapshot)),
        *_limited(snapshot),
    ]
    yield from blockers
    if blockers:
        return
    workers = _capable_workers(snapshot)
    busy, slots = sum(worker.busy for worker in workers), sum(worker.slots for worker in workers)
    details: dict[str, Any] = {"ahead": snapshot.ahead}
    if snapshot.all_tenants:
        details |= {"workers": [worker.id for worker in workers], "busy": busy, "slots": slots}
    jobs = f"{snapshot.ahead}{'+' if snapshot.ahead == MAX_AHEAD else ''} {'job' if snapshot.ahead == 1 else 'jobs'}"
    ahead = f"{jobs} of its kind {'is' if snapshot.ahead == 1 else 'are'} ahead of it"
    if all(worker.busy >= worker.slots for worker in workers):
        owners, used = "the one worker" if len(workers) == 1 else f"all {len(workers)} workers", f" ({busy} of {slots})"
        if not snapshot.all_tenants:
            owners, used = "the workers", ""
        more = f", and {ahead}" if snapshot.ahead else ""
        yield Why("SLOTS_FULL", f"the slots of {owners} that can run it are busy{used}{more}", details)
    elif snapshot.ahead:
        yield Why("JOBS_AHEAD", f"{ahead}; nothing else blocks it", details)
    else:
        yield Why("ANY_MOMENT", "nothing blocks it, a worker should claim it at any moment", details)


def _not_due(snapshot: Snapshot) -> Iterator[Why]:
    job = snapshot.job
    if job.due_at is None or job.due_at <= snapshot.now:
        return
    details = {"due_at": iso(job.due_at), "error_code": job.error_code, **_traceback(snapshot)}
    cause = f", the retry after {job.error_code}" if job.error_code else ""
    until = f"it is not due until {moment(snapshot.now, job.due_at)}{cause}"
    handed_back = [n for n in snapshot.notes if n.name == f"job.{HANDED_BACK}" and n.seq == job.version]
    if not handed_back:
        yield Why("NOT_DUE", until, details)
        return
    note, data = handed_back[0], handed_back[0].data or {}
    give_up_at = data.get("give_up_at")
    details |= {"worker": note.actor, "problem": data.get("error_message"), "give_up_at": iso(give_up_at)}
    problem = f"the code of worker {note.actor} cannot run it ({data.get('error_message') or 'invalid payload'})"
    how = f"start workers with code that can, it fails after {moment(snapshot.now, give_up_at)}"
    yield Why("HANDED_BACK", f"{problem}, so it was handed back; {how}; {until}", details)


def _cancel_requested(snapshot: Snapshot) -> Iterator[Why]:
    if snapshot.job.cancel_requested is None:
        return
    request = json.loads(snapshot.job.cancel_requested)
    reason = f" ({request['reason']})" if request.get("reason") else ""
    requested = f"{request['actor']} requested its cancel {ago(snapshot.now, request['at'])}{reason}"
    sentence = f"{requested}; the worker that holds it or claims it next cancels it"
    yield Why("CANCEL_REQUESTED", sentence, {**request, "at": iso(request["at"])})


def _paused(snapshot: Snapshot) -> Iterator[Why]:
    job = snapshot.job
    names = {"queue": job.queue, "job_type": job.job_type, "tenant": job.tenant_id}
    flags = {"queue": "", "job_type": "--type ", "tenant": "--tenant "}
    for pause in snapshot.pauses:
        if names[pause.kind] != pause.name:
            continue
        cause = f" ({pause.reason})" if pause.reason else ""
        since = moment(snapshot.now, pause.at)
        how = f"`detent queues resume {flags[pause.kind]}{pause.name}` resumes it"
        kind = pause.kind.replace("_", " ")
        sentence = f"the {kind} {pause.name!r} was paused by {pause.actor} at {since}{cause}; {how}"
        yield Why("PAUSED", sentence, {**pause._asdict(), "at": iso(pause.at)})


def _limited(snapshot: Snapshot) -> Iterator[Why]:
    """Limits that are reached now."""
    for meter, held in snapshot.meters:
        limit, now = meter.limit, snapshot.now
        details: dict[str, Any] = {**limit.as_dict(), "held": held}
        on, running = f" on {limit.describe()}", f": {held} of {limit.concurrency} run"
        started = f": {limit.rate} of {limit.rate} started within {span(limit.period or 0)}"
        if not snapshot.all_tenants:
            details, on, running, started = {}, "", "", ""
        if limit.concurrency is not None and held >= limit.concurrency:
            yield Why("LIMITED", f"the concurrency limit{on} is reached{running}", details)
        opens = meter.opens_at(now)
        if opens is not None and limit.period is not None:
            sentence = f"the rate limit{on} is reached{started}; the next may start at {moment(now, opens)}"
            yield Why("LIMITED", sentence, details | {"opens_at": iso(opens)})


def _deadline_passed(snapshot: Snapshot) -> Iterator[Why]:
    deadline = snapshot.job.deadline_at
    if deadline is not None and deadline <= snapshot.now:
        sentence = f"its deadline passed {ago(snapshot.now, deadline)}; {_sweep(snapshot, 'ends it')}"
        yield Why("TOO_LATE", sentence, {"deadline_at": iso(deadline), "sweeping": bool(snapshot.live)})


def _sweep(snapshot: Snapshot, effect: str) -> str:
    return f"the next sweep of any worker {effect}" if snapshot.live else "no live worker sweeps: start a worker"


def _no_worker(snapshot: Snapshot) -> Iterator[Why]:
    """No live worker at all, none for the job type, none for the queue, none for both, or they claim no more jobs."""
    job, live = snapshot.job, snapshot.live
    types = sorted({name for worker in live for name in worker.job_types})
    queues = sorted({name for worker in live for name in worker.queues or ()})
    details: dict[str, Any] = {"live_workers": len(live), "live_types": types, "live_queues": queues}
    handled, served = f"; live workers handle {_joined(types)}", f"; live workers serve {_joined(queues)}"
    if not snapshot.all_tenants:
        details, handled, served = {}, "", ""
    if not live:
        yield Why("NO_WORKER", "no worker is live; start one with `detent worker APP`", details)
    elif not any(worker.serves("job_type", job.job_type) for worker in live):
        yield Why("NO_WORKER_FOR_TYPE", f"no live worker handles the job type {job.job_type!r}{handled}", details)
    elif not any(worker.serves("queue", job.queue) for worker in live):
        yield Why("NO_WORKER_FOR_QUEUE", f"no live worker serves the queue {job.queue!r}{served}", details)
    elif not (suitable := _suitable_workers(snapshot)):
        sentence = f"no live worker both handles the job type {job.job_type!r} and serves the queue {job.queue!r}"
        yield Why("NO_WORKER_FOR_BOTH", sentence, details)
    elif not _capable_workers(snapshot):
        ids = [worker.row.id for worker in suitable] if snapshot.all_tenants else []
        names = f": {_joined(ids)}" if ids else ""
        sentence = f"all live workers that could run it are draining or stopping{names}; start another one"
        yield Why("WORKERS_DRAINING", sentence, {**details, "workers": ids})


def _suitable_workers(snapshot: Snapshot) -> list[LiveWorker]:
    job = snapshot.job
    return [worker for worker in snapshot.live if worker.can_run(job.queue, job.job_type)]


def _capable_workers(snapshot: Snapshot) -> list[WorkerRow]:
    return [worker.row for worker in _suitable_workers(snapshot) if worker.claims]


_REASONS = {Phase.FINAL: _finished, Phase.LEASED: _leased, Phase.BLOCKED: _blocked, Phase.CLAIMABLE: _claimable}


def _joined(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"


def moment(now: Micros, at: Micros | None) -> str:
    """A time to the second, and its distance from now: 2026-02-25T12:00:00Z (5 min ago)."""
    if at is None:
        return "an unknown time"
    exact = (iso(at - at % SECOND) or "").removesuffix("Z")
    return f"{exact}Z (in {span(at - now)})" if at > now else f"{exact}Z ({span(now - at)} ago)"


def ago(now: Micros, at: Micros | None) -> str:
    return "at an unknown time" if at is None else f"{span(now - at)} ago"


def span(micros: Micros) -> str:
    """A duration in its largest fitting unit: 350 ms, 12 s, 4 min, 3 h, 2 d."""
    milliseconds = max(micros, 0) // 1_000
    if milliseconds < 1_000:
        return f"{milliseconds} ms"
    for unit, size, until in (("s", 1, 120), ("min", 60, 120), ("h", 3_600, 48), ("d", 86_400, None)):
        number = milliseconds // 1_000 // size
        if until is None or number < until:
            return f"{number} {unit}"
    raise AssertionError("the last unit has no upper bound")
