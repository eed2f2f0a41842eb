"""Why a job is not running, in words: looks at the job, the pauses and the workers, changes nothing."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.core.approval import Approval
from detent.core.contract.model import Contract, Phase
from detent.core.job import APPROVAL, CHILDREN, Job, Micros, Note
from detent.core.limits import Meter
from detent.core.times import SECOND, iso
from detent.engine.execution.approvals import approval_view
from detent.engine.execution.steps import STEP_ORPHANED
from detent.engine.refusal import find
from detent.ports.listing import WorkerRow
from detent.ports.tx import Tx

from .views import blind_job, blind_note

if TYPE_CHECKING:
    from detent.engine.engine import Engine

LIVE_LEASES = 3
"""A worker that was not seen for this many of its leases is gone."""
AHEAD_AT_MOST = 10_000
TIMER = "timer"
"""The kind of a wait that only its moment ends."""
LEAVING = ("stopping", "draining")
"""States in which a worker claims nothing more."""
PROGRESS = "progress"


@dataclass(frozen=True, slots=True)
class Why:
    """A stable code, a sentence that says what to do, what it rests on, and what else holds the job back."""

    reason: str
    sentence: str
    details: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return {"reason": self.reason, "sentence": self.sentence, "details": self.details}


class Pause(NamedTuple):
    kind: str
    name: str
    actor: str
    reason: str | None
    at: Micros


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything the answer rests on, read in one snapshot."""

    now: Micros
    job: Job
    contract: Contract
    pauses: list[Pause]
    live: list[WorkerRow]
    ahead: int
    notes: list[Note] = field(default_factory=list)
    gauges: list[tuple[Meter, int]] = field(default_factory=list)
    """The limits that concern the job, and how many each counts as held."""
    approval: Approval | None = None
    children: list[tuple[str, str, str, str, int]] = field(default_factory=list)


async def why(engine: "Engine", job_id: str, tenant: str | None = None, *, payloads: bool = True) -> Why:
    """The most decisive reason first; the others that hold are in details["also"]."""

    async def act(tx: Tx) -> Scene:
        job = await find(tx, job_id, tenant)
        pauses = [Pause(*row) for row in await tx.pauses()]
        live = [worker for worker in await tx.workers() if is_live(worker, tx.now)]
        ahead = await tx.ahead(job.id, AHEAD_AT_MOST) if job.phase is Phase.CLAIMABLE else 0
        notes = await tx.notes(job.id)
        if not payloads:
            job, notes = blind_job(job), [blind_note(note) for note in notes]
        gauges = await tx.gauges([job]) if job.phase is Phase.CLAIMABLE else []
        scene = Scene(tx.now, job, engine.contract(job.contract), pauses, live, ahead, notes, gauges)
        if job.wait_kind == APPROVAL:
            approval = await tx.approval(job.id, job.wait_name or "")
            return replace(scene, approval=approval if payloads or approval is None else _blind(approval))
        return replace(scene, children=await tx.count_children(job.id)) if job.wait_kind == CHILDREN else scene

    return explain(await engine.store.read(act))


def explain(scene: Scene) -> Why:
    first, *others = (*_REASONS[scene.job.phase](scene), *_orphans(scene))
    about = {"job_id": scene.job.id, "status": scene.job.status, "phase": str(scene.job.phase)}
    also = [other.as_dict() for other in others]
    return Why(first.reason, first.sentence, {**about, **first.details, "also": also})


def is_live(worker: WorkerRow, now: Micros) -> bool:
    return now - worker.seen_at <= LIVE_LEASES * worker.lease


def types_of(worker: WorkerRow) -> list[str]:
    return [str(name) for name in json.loads(worker.job_types)]


def queues_of(worker: WorkerRow) -> list[str] | None:
    """None: every queue."""
    return None if worker.queues is None else [str(name) for name in json.loads(worker.queues)]


def handles(worker: WorkerRow, job_type: str) -> bool:
    return job_type in types_of(worker)


def serves(worker: WorkerRow, queue: str) -> bool:
    names = queues_of(worker)
    return names is None or queue in names


def _ended(scene: Scene) -> Iterator[Why]:
    job = scene.job
    cause = f" ({job.error_code}: {job.error_message})" if job.error_code else ""
    told = {"finished_at": iso(job.finished_at), "error_code": job.error_code, "dlq_id": job.dlq_id}
    after = f"; its dead letter is {job.dlq_id}" if job.dlq_id else ""
    yield Why("FINISHED", f"it has ended as {job.status} {ago(scene.now, job.finished_at)}{cause}{after}", told)


def _held(scene: Scene) -> Iterator[Why]:
    job, now = scene.job, scene.now
    seen = any(worker.id == job.worker for worker in scene.live)
    told: dict[str, Any] = {"worker": job.worker, "lease_until": iso(job.lease_until), "holder_seen": seen}
    told["sweeping"] = bool(scene.live)
    steps = [note.data for note in scene.notes if note.name == PROGRESS and note.execution_no == job.execution_no]
    if steps:
        told["progress"] = steps[-1]
    if job.lease_until is not None and job.lease_until <= now:
        ran_out = f"worker {job.worker} held it, but the lease ran out {ago(now, job.lease_until)}"
        then = "the next sweep of any worker takes it back" if scene.live else "nobody sweeps: start a worker"
        yield Why("LEASE_EXPIRED", f"{ran_out}; {then}", told)
    else:
        silent = "" if seen else "; that worker has not been seen lately, if it is dead the job is taken back then"
        until = moment(now, job.lease_until)
        yield Why("HELD", f"it is already under way, held by worker {job.worker} until {until}{silent}", told)
    yield from _cancel(scene)


def _orphans(scene: Scene) -> Iterator[Why]:
    names = [str((note.data or {}).get("name")) for note in scene.notes if note.name == STEP_ORPHANED]
    if names:
        one = len(names) == 1
        said = f"recorded {'step' if one else 'steps'} {_listed(map(repr, names))} {'was' if one else 'were'} not asked"
        yield Why("STEP_ORPHANED", f"{said} for again: the code has changed since", {"steps": names})


def _blocked(scene: Scene) -> Iterator[Why]:
    job, now = scene.job, scene.now
    until = f" until {moment(now, job.due_at)}" if job.due_at is not None else ""
    told: dict[str, Any] = {"waits_for": job.wait_name, "kind": job.wait_kind}
    told |= {"until": iso(job.due_at), "since": iso(job.updated_at)}
    if job.due_at is not None and job.due_at <= now:
        then = "the next sweep wakes it" if scene.live else "nobody sweeps: start a worker"
        told["sweeping"] = bool(scene.live)
        yield Why("DUE_TO_WAKE", f"its moment came {ago(now, job.due_at)}; {then}", told)
    elif job.status in scene.contract.approval_statuses:
        yield _asks(scene, until, told)
    elif job.wait_kind == CHILDREN:
        counts = {status: 0 for _, _, status, _, _ in scene.children}
        for _, _, status, _, number in scene.children:
            counts[status] += number
        stand = ", ".join(f"{number} {status}" for status, number in counts.items())
        how = f"`detent jobs draw {job.id} --tree` shows them"
        yield Why(
            "WAITS_FOR_CHILDREN", f"it waits for its children ({stand}){until}; {how}", {**told, "children": counts}
        )
    elif job.wait_name is not None and job.wait_kind != TIMER:
        how = f"send it with `detent jobs signal {job.id} {job.wait_name}`"
        yield Why("WAITS_FOR_SIGNAL", f"it waits for the signal {job.wait_name!r}{until}; {how}", told)
    elif job.due_at is not None:
        yield Why("WAITS_FOR_MOMENT", f"it is not due{until}, and waits for that moment", told)
    else:
        moves = ", ".join(dict.fromkeys(str(move) for move in scene.contract.legal_moves(job.status)))
        yield Why("BLOCKED", f"it rests in {job.status} until someone moves it; moves from there: {moves}", told)
    yield from _cancel(scene)
    yield from _paused(scene)


def _blind(approval: Approval) -> Approval:
    """For those who may not see what jobs carry: a question tells of it."""
    votes = tuple(replace(vote, reason=None) for vote in approval.votes)
    return replace(approval, asked=replace(approval.asked, summary="a hidden question", about="null"), votes=votes)


def _asks(scene: Scene, until: str, told: dict[str, Any]) -> Why:
    job, approval = scene.job, scene.approval
    how = f"decide with `detent jobs approve {job.id}` or `reject`"
    asked = ""
    if approval is not None:
        votes = [f"{vote.person} {'approved' if vote.approved else 'rejected'}" for vote in approval.votes]
        needed = f", {approval.missing} of {approval.asked.quorum} to go" if approval.asked.quorum > 1 else ""
        roles = f", by {' or '.join(approval.asked.roles)}" if approval.asked.roles else ""
        said = f" ({', '.join(votes)})" if votes else ""
        asked = f" of {approval.asked.summary!r}{roles}{needed}{said}"
        told = {**told, "approval": approval_view(approval)}
    since = moment(scene.now, job.updated_at)
    return Why("WAITS_FOR_APPROVAL", f"it waits for approval{asked} since {since}{until}; {how}", told)


def _claimable(scene: Scene) -> Iterator[Why]:
    """In the order in which they must be cleared; without any, the job is next or has others before it."""
    held_back = [
        *_late(scene),
        *_not_due(scene),
        *_cancel(scene),
        *_paused(scene),
        *_no_worker(scene),
        *_limited(scene),
    ]
    yield from held_back
    if held_back:
        return
    able = _able(scene)
    busy, slots = sum(worker.busy for worker in able), sum(worker.slots for worker in able)
    told = {"workers": [worker.id for worker in able], "busy": busy, "slots": slots, "ahead": scene.ahead}
    jobs = f"{scene.ahead}{'+' if scene.ahead == AHEAD_AT_MOST else ''} {'job' if scene.ahead == 1 else 'jobs'}"
    if all(worker.busy >= worker.slots for worker in able):
        who = "the one worker" if len(able) == 1 else f"all {len(able)} workers"
        more = f", and {jobs} of its kind are before it" if scene.ahead else ""
        yield Why("SLOTS_FULL", f"{who} able to run it have their slots full ({busy} of {slots}){more}", told)
    elif scene.ahead:
        yield Why("JOBS_AHEAD", f"nothing holds it but {jobs} of its kind before it", told)
    else:
        yield Why("ANY_MOMENT", "nothing holds it: it should start any moment", told)


def _not_due(scene: Scene) -> Iterator[Why]:
    job = scene.job
    if job.due_at is None or job.due_at <= scene.now:
        return
    told = {"due_at": iso(job.due_at), "error_code": job.error_code}
    cause = f", to try again after {job.error_code}" if job.error_code else ""
    yield Why("NOT_DUE", f"it is not due until {moment(scene.now, job.due_at)}{cause}", told)


def _cancel(scene: Scene) -> Iterator[Why]:
    if scene.job.cancel_requested is None:
        return
    asked = json.loads(scene.job.cancel_requested)
    why_not = f" ({asked['reason']})" if asked.get("reason") else ""
    said = f"{asked['actor']} asked to cancel it {ago(scene.now, asked['at'])}{why_not}; whoever holds it next obeys"
    yield Why("CANCEL_REQUESTED", said, {**asked, "at": iso(asked["at"])})


def _paused(scene: Scene) -> Iterator[Why]:
    job = scene.job
    own = {"queue": job.queue, "job_type": job.job_type, "tenant": job.tenant_id}
    flags = {"queue": "", "job_type": "--type ", "tenant": "--tenant "}
    for pause in scene.pauses:
        if own[pause.kind] != pause.name:
            continue
        cause = f" ({pause.reason})" if pause.reason else ""
        since = moment(scene.now, pause.at)
        how = f"`detent queues resume {flags[pause.kind]}{pause.name}` lets it go"
        kind = pause.kind.replace("_", " ")
        said = f"the {kind} {pause.name!r} was paused by {pause.actor} at {since}{cause}; {how}"
        yield Why("PAUSED", said, {**pause._asdict(), "at": iso(pause.at)})


def _limited(scene: Scene) -> Iterator[Why]:
    """Limits that let nothing more begin now."""
    for meter, held in scene.gauges:
        limit, now = meter.limit, scene.now
        told = {**limit.as_dict(), "held": held}
        if limit.concurrency is not None and held >= limit.concurrency:
            yield Why("LIMITED", f"it waits: {limit.describe()} runs {held} of {limit.concurrency}", told)
        opens = meter.opens_at(now)
        if opens is not None and limit.period is not None:
            said = f"it waits: {limit.describe()} began {limit.rate} of {limit.rate} in {span(limit.period)}"
            yield Why("LIMITED", f"{said}; the next may begin at {moment(now, opens)}", told | {"opens_at": iso(opens)})


def _late(scene: Scene) -> Iterator[Why]:
    deadline = scene.job.deadline_at
    if deadline is not None and deadline <= scene.now:
        then = "the next sweep ends it" if scene.live else "nobody sweeps: start a worker"
        said = f"its deadline passed {ago(scene.now, deadline)}; {then}"
        yield Why("TOO_LATE", said, {"deadline_at": iso(deadline), "sweeping": bool(scene.live)})


def _no_worker(scene: Scene) -> Iterator[Why]:
    """Nobody at all, nobody for the type, nobody for the queue, or nobody for both together."""
    job, live = scene.job, scene.live
    types = sorted({name for worker in live for name in types_of(worker)})
    queues = sorted({name for worker in live for name in queues_of(worker) or ()})
    told = {"live_workers": len(live), "live_types": types, "live_queues": queues}
    if not live:
        yield Why("NO_WORKER", "no live worker at all: start one with `detent worker APP`", told)
    elif not any(handles(worker, job.job_type) for worker in live):
        known = f"live workers handle {_listed(types)}"
        yield Why("NO_WORKER_FOR_TYPE", f"no live worker handles the type {job.job_type!r}; {known}", told)
    elif not any(serves(worker, job.queue) for worker in live):
        known = f"live workers serve {_listed(queues)}"
        yield Why("NO_WORKER_FOR_QUEUE", f"no live worker serves the queue {job.queue!r}; {known}", told)
    elif not _able(scene):
        said = f"no live worker both handles the type {job.job_type!r} and serves the queue {job.queue!r}"
        yield Why("NO_WORKER_FOR_BOTH", f"{said}, or those that do are about to stop", told)


def _able(scene: Scene) -> list[WorkerRow]:
    job = scene.job
    fit = (worker for worker in scene.live if handles(worker, job.job_type) and serves(worker, job.queue))
    return [worker for worker in fit if worker.state not in LEAVING]


_REASONS = {Phase.FINAL: _ended, Phase.LEASED: _held, Phase.BLOCKED: _blocked, Phase.CLAIMABLE: _claimable}


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"


def moment(now: Micros, at: Micros | None) -> str:
    """A moment both ways: exact to the second, and seen from now."""
    if at is None:
        return "an unknown moment"
    exact = (iso(at - at % SECOND) or "").removesuffix("Z")
    return f"{exact}Z (in {span(at - now)})" if at > now else f"{exact}Z ({span(now - at)} ago)"


def ago(now: Micros, at: Micros | None) -> str:
    return "at an unknown moment" if at is None else f"{span(now - at)} ago"


def span(micros: Micros) -> str:
    """A length of time as people say it: 350 ms, 12 s, 4 min, 3 h, 2 d."""
    milliseconds = max(micros, 0) // 1_000
    if milliseconds < 1_000:
        return f"{milliseconds} ms"
    for unit, size, until in (("s", 1, 120), ("min", 60, 120), ("h", 3_600, 48), ("d", 86_400, None)):
        number = milliseconds // 1_000 // size
        if until is None or number < until:
            return f"{number} {unit}"
    raise AssertionError("days have no bound")
