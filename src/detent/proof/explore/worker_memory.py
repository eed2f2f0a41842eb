"""A worker process as an immutable, hashable value.

The explorer stores the memory of every worker in each visited state. For one step it restores a real WorkerState from
that value, lets it decide, and captures the value again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from detent.core.approval import make_approval_request
from detent.core.contract.model import Contract
from detent.core.errors import DetentError
from detent.core.job import APPROVAL, CHILDREN, Change, Failure, Job, Wait
from detent.core.outcome import Cancelled, Failed, Outcome, Stopped, Succeeded, Waits
from detent.engine import Settlement
from detent.ports.claims import Claimed
from detent.worker.state import Batch, Held, WorkerState

from .snapshot import JOBS, SPAN_SECONDS

SIGNAL = "go"
JOB_TYPE = "task"
QUESTION = "approval"
WAITS_FOR_CHILD = "children"
GRACE_OVER = Cancelled("forced at the end of the grace")
OUTCOMES: dict[str, Outcome] = {
    "success": Succeeded("1"),
    "failure": Failed(Failure("BROKEN", "the handler failed", "Broken", True)),
    "permanent failure": Failed(Failure("HOPELESS", "the handler gave up", "Hopeless", False)),
    "wait": Waits(Wait(SIGNAL, timeout=int(SPAN_SECONDS * 1_000_000))),
    "wait for its child": Waits(Wait(WAITS_FOR_CHILD, kind=CHILDREN, children=(JOBS[1],))),
    "wait for its approval": Waits(
        Wait(QUESTION, APPROVAL, int(SPAN_SECONDS * 1_000_000), approval=make_approval_request("?", 1, (), 2, "reject"))
    ),
    "cancel": GRACE_OVER,
    "stop": Stopped(),
}
_OUTCOME_NAMES = {outcome: name for name, outcome in OUTCOMES.items()}


class HeldJob(NamedTuple):
    """A job the worker holds. `job` is an index into JOBS, here and below."""

    job: int
    token: str
    cancel_requested: bool
    stage: int = 0
    """How far its handler has got, see `Stage`."""


class LeaseRef(NamedTuple):
    """A job and a token: a lease, or a handler that still runs although the worker lost its job."""

    job: int
    token: str
    stage: int = 0


class JobOutcome(NamedTuple):
    """A result to settle. `outcome` is a key of OUTCOMES."""

    job: int
    token: str
    outcome: str


class StoreReply:
    """The result of one store call, its tokens replaced by their position in the call; lost: the caller got an error.

    Two replies are equal if the engine cannot tell them apart.
    """

    __slots__ = ("hash", "key", "lost", "value")

    def __init__(self, value: Any = None, *, lost: bool = False) -> None:
        self.value = value
        self.lost = lost
        self.key = (lost, comparison_key(value))
        self.hash = hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoreReply) and self.key == other.key

    def __hash__(self) -> int:
        return self.hash


class BatchCall(NamedTuple):
    """A settle_and_claim call in progress: its arguments, and the replies its store calls have had so far."""

    settled: tuple[JobOutcome, ...]
    want: int
    reclaim: bool
    token: str
    replies: tuple[StoreReply, ...] = ()

    def with_reply(self, value: Any) -> "BatchCall":
        """The call after one more store call. Tokens in the reply are stored by position, so they need no renaming."""
        positions = {s.token: f"settled {n}" for n, s in enumerate(self.settled)} | {self.token: "claimed"}
        return self._replace(replies=(*self.replies, StoreReply(copy_renamed(value, positions))))

    def reply_values(self) -> list[Any]:
        """The replies with their tokens, None for a lost one. Copies, because the engine may modify what it gets."""
        names = {f"settled {n}": s.token for n, s in enumerate(self.settled)} | {"claimed": self.token}
        return [None if reply.lost else copy_renamed(reply.value, names) for reply in self.replies]


class HeartbeatReply(NamedTuple):
    """A heartbeat's reply that has not reached the WorkerState yet."""

    leases: tuple[LeaseRef, ...]
    """The leases the heartbeat extended or tried to."""
    lost: tuple[int, ...]
    cancelled: tuple[int, ...]
    """Jobs whose cancellation was requested."""


class WorkerMemory(NamedTuple):
    """Everything a worker process loses when it dies."""

    held: tuple[HeldJob, ...] = ()
    finished: tuple[JobOutcome, ...] = ()
    abandoned: tuple[LeaseRef, ...] = ()
    stopping: bool = False
    call: BatchCall | None = None
    heartbeat: HeartbeatReply | None = None

    def at_stage(self, handler: HeldJob | LeaseRef, stage: int) -> "WorkerMemory":
        """The memory after a step of one of its handlers."""
        moved: Any = handler._replace(stage=stage)
        if isinstance(handler, HeldJob):
            return self._replace(held=tuple(moved if held == handler else held for held in self.held))
        return self._replace(abandoned=tuple(moved if lease == handler else lease for lease in self.abandoned))


NEW_WORKER = WorkerMemory()


def restore_state(kind: type[WorkerState], memory: WorkerMemory, contract: Contract, slots: int) -> WorkerState:
    state = kind(slots, cancel_grace=0.0)
    for held in memory.held:
        claimed = claimed_job(held.job, held.token, contract)
        state.held[claimed.id] = Held(claimed, None, True, held.cancel_requested)
        if held.cancel_requested:
            state._deadlines.append((0.0, claimed.id, held.token))
    state.finished = settlements(memory.finished, contract)
    state.abandoned = len(memory.abandoned)
    state.stopping = memory.stopping
    if memory.call:
        state.in_flight = [Batch(settlements(memory.call.settled, contract), memory.call.want)]
    return state


def capture_memory(
    state: WorkerState, memory: WorkerMemory, call: BatchCall | None, ended: tuple[JobOutcome | LeaseRef, ...] = ()
) -> WorkerMemory:
    """The inverse of restore_state; memory: as it was before the step, ended: handlers that ended in this step.

    `wants_jobs` is left out: a worker polls sooner or later, so it does not tell states apart.
    """
    assert not state.deferred, "SQLite has no row locks, so no settlement is deferred"
    if state.done and not state.abandoned:
        return NEW_WORKER
    stages = {(held.job, held.token): held.stage for held in memory.held}
    numbered = [(JOBS.index(job_id), held.claimed.token, held.cancel_requested) for job_id, held in state.held.items()]
    held = sorted(HeldJob(*values, stages.get(values[:2], 0)) for values in numbered)
    left = {(job.job, job.token) for job in held} | {(s.job, s.token) for s in ended}
    abandoned = (
        *memory.abandoned,
        *(LeaseRef(h.job, h.token, h.stage) for h in memory.held if (h.job, h.token) not in left),
    )
    assert len(abandoned) == state.abandoned, "a handler whose job was lost keeps its slot"
    return WorkerMemory(tuple(held), job_outcomes(state.finished), abandoned, state.stopping, call, memory.heartbeat)


def settlements(outcomes: Iterable[JobOutcome], contract: Contract) -> list[Settlement]:
    return [Settlement(JOBS[o.job], o.token, contract.name, OUTCOMES[o.outcome]) for o in outcomes]


def job_outcomes(settled: Iterable[Settlement]) -> tuple[JobOutcome, ...]:
    return tuple(JobOutcome(JOBS.index(s.id), s.token, _outcome_name(s.outcome)) for s in settled)


def _outcome_name(outcome: Outcome) -> str:
    """Outcomes that WorkerState creates itself get a generated name on first use."""
    if outcome not in _OUTCOME_NAMES:
        name = f"outcome {len(OUTCOMES)}"
        _OUTCOME_NAMES[outcome], OUTCOMES[name] = name, outcome
    return _OUTCOME_NAMES[outcome]


def claimed_job(job: int, token: str, contract: Contract) -> Claimed:
    names = (JOBS[job], token, contract.name, JOB_TYPE, "default", "default", "{}")
    return Claimed(*names, 1, 0, 2, None, None, JOBS[job], None, None)


def tokens_of(memory: WorkerMemory) -> list[str]:
    """Every token this worker may still send, in a fixed order."""
    tokens = [item.token for part in (memory.held, memory.finished, memory.abandoned) for item in part]
    if memory.heartbeat:
        tokens += [lease.token for lease in memory.heartbeat.leases]
    if memory.call:
        call = memory.call
        tokens += [s.token for s in call.settled] + [call.token]
    return tokens


def rename_tokens(memory: WorkerMemory, names: Mapping[str, str]) -> WorkerMemory:
    """The other strings of a memory, names of outcomes, are never equal to a token."""
    if all(names[token] == token for token in tokens_of(memory)):
        return memory
    renamed: WorkerMemory = copy_renamed(memory, names)
    return renamed


@lru_cache(maxsize=65_536)
def sort_key(memory: WorkerMemory) -> str:
    """The memory without its tokens. Workers are sorted by it, so states that differ in worker numbers only are one."""
    call = memory.call
    call_key: tuple[object, ...] = ()
    if call:
        call_key = [(s.job, s.outcome) for s in call.settled], call.want, [reply.key for reply in call.replies]
    jobs = [(h.job, h.cancel_requested, h.stage) for h in memory.held], [(s.job, s.outcome) for s in memory.finished]
    heartbeat = memory.heartbeat and (len(memory.heartbeat.leases), memory.heartbeat[1:])
    others = [(lease.job, lease.stage) for lease in memory.abandoned], heartbeat
    return repr((jobs, others, memory.stopping, call_key))


def comparison_key(value: Any) -> Any:
    """A store call's reply reduced to what the engine's next steps depend on, as plain tuples."""
    if isinstance(value, Claimed):
        return "claimed", value.id, value.token, value.cancel_requested is not None
    if isinstance(value, Job):
        return "job", value.id, value.status, value.token
    if isinstance(value, Change):
        return comparison_key(value.after), *sorted(value.affected_parents)
    if isinstance(value, DetentError):
        return "refused", value.code
    if isinstance(value, dict):
        return tuple(sorted((key, comparison_key(item)) for key, item in value.items()))
    if isinstance(value, set | frozenset):
        return tuple(sorted(map(comparison_key, value)))
    if isinstance(value, tuple | list):
        return tuple(comparison_key(item) for item in value)
    if is_dataclass(value):
        return type(value).__name__, *(comparison_key(getattr(value, field.name)) for field in fields(value))
    return value


def copy_renamed(value: Any, names: Mapping[str, str]) -> Any:
    """A deep copy of a reply in which every string found in `names` is replaced."""
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, dict):
        return {key: copy_renamed(item, names) for key, item in value.items()}
    if isinstance(value, list | set | frozenset):
        return type(value)(copy_renamed(item, names) for item in value)
    if isinstance(value, tuple):
        parts = [copy_renamed(item, names) for item in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if is_dataclass(value) and not isinstance(value, type):
        return type(value)(**{field.name: copy_renamed(getattr(value, field.name), names) for field in fields(value)})
    return value


LOST = StoreReply(lost=True)
