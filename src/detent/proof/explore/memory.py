"""A worker's memory as a value: the real WorkerState is thawed from it for every step and frozen again after."""

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from detent.core.contract.model import Contract
from detent.core.errors import DetentError
from detent.core.job import Failure, Job, Wait
from detent.core.outcome import Cancelled, Failed, Outcome, Stopped, Succeeded, Waits
from detent.engine import Settlement
from detent.ports.claims import Claimed
from detent.worker.state import Batch, Held, WorkerState

from .frame import JOBS, SPAN_SECONDS

SIGNAL = "go"
JOB_TYPE = "task"
GRACE_OVER = Cancelled("forced at the end of the grace")
OUTCOMES: dict[str, Outcome] = {
    "success": Succeeded("1"),
    "failure": Failed(Failure("BROKEN", "the handler failed", "Broken", True)),
    "permanent failure": Failed(Failure("HOPELESS", "the handler gave up", "Hopeless", False)),
    "wait": Waits(Wait(SIGNAL, timeout=int(SPAN_SECONDS * 1_000_000))),
    "cancel": GRACE_OVER,
    "stop": Stopped(),
}
_LETTER = {outcome: name for name, outcome in OUTCOMES.items()}


class Hold(NamedTuple):
    job: int
    token: str
    asked: bool


class Ghost(NamedTuple):
    """A job and a token; of a handler that runs on after its job was taken from it, or of a lease."""

    job: int
    token: str


class Said(NamedTuple):
    job: int
    token: str
    outcome: str


class Reply:
    """What one store call answered, with tokens named by their place in the call; lost: the caller got an error.

    Two are equal if nothing that matters tells them apart.
    """

    __slots__ = ("form", "hash", "lost", "value")

    def __init__(self, value: Any = None, *, lost: bool = False) -> None:
        self.value = value
        self.lost = lost
        self.form = (lost, form(value))
        self.hash = hash(self.form)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reply) and self.form == other.form

    def __hash__(self) -> int:
        return self.hash


class Call(NamedTuple):
    """A cycle under way: what was ordered, and the replies its store calls have had so far."""

    settled: tuple[Said, ...]
    want: int
    reclaim: bool
    token: str
    replies: tuple[Reply, ...] = ()

    def answered(self, answer: Any) -> "Call":
        """The call after one more of its store calls, the answer kept with tokens that need no renaming."""
        places = {s.token: f"settled {n}" for n, s in enumerate(self.settled)} | {self.token: "claimed"}
        return self._replace(replies=(*self.replies, Reply(copied(answer, places))))

    def answers(self) -> list[Any]:
        """Each reply as it was given: copies, because the engine may write into what it is handed. None: an error."""
        names = {f"settled {n}": s.token for n, s in enumerate(self.settled)} | {"claimed": self.token}
        return [None if reply.lost else copied(reply.value, names) for reply in self.replies]


class Beat(NamedTuple):
    """A heartbeat's answer on its way to the machine: which of the leases it was about are lost, or asked to stop."""

    about: tuple[Ghost, ...]
    lost: tuple[int, ...]
    asked: tuple[int, ...]


class Memory(NamedTuple):
    """Everything a worker process forgets when it dies."""

    held: tuple[Hold, ...] = ()
    finished: tuple[Said, ...] = ()
    abandoned: tuple[Ghost, ...] = ()
    stopping: bool = False
    call: Call | None = None
    beat: Beat | None = None


NEWBORN = Memory()


def thaw(kind: type[WorkerState], memory: Memory, contract: Contract, slots: int) -> WorkerState:
    state = kind(slots, cancel_grace=0.0)
    for hold in memory.held:
        claimed = claimed_from(hold.job, hold.token, contract)
        state.held[claimed.id] = Held(claimed, None, True, hold.asked)
        if hold.asked:
            state._deadlines.append((0.0, claimed.id, hold.token))
    state.finished = settlements(memory.finished, contract)
    state.abandoned = len(memory.abandoned)
    state.stopping = memory.stopping
    if memory.call:
        state.in_flight = [Batch(settlements(memory.call.settled, contract), memory.call.want)]
    return state


def freeze(state: WorkerState, memory: Memory, call: Call | None, ended: tuple[Said | Ghost, ...] = ()) -> Memory:
    """A worker always looks again sooner or later, so appetite is not part of its memory."""
    assert not state.deferred, "SQLite passes over no row"
    if state.done and not state.abandoned:
        return NEWBORN
    held = sorted(Hold(JOBS.index(k), h.claimed.token, h.asked_to_stop) for k, h in state.held.items())
    left = {(hold.job, hold.token) for hold in held} | {(s.job, s.token) for s in ended}
    abandoned = (*memory.abandoned, *(Ghost(h.job, h.token) for h in memory.held if (h.job, h.token) not in left))
    assert len(abandoned) == state.abandoned, "every handler that was taken its job away still has its slot"
    return Memory(tuple(held), said(state.finished), abandoned, state.stopping, call, memory.beat)


def settlements(told: Iterable[Said], contract: Contract) -> list[Settlement]:
    return [Settlement(JOBS[s.job], s.token, contract.name, OUTCOMES[s.outcome]) for s in told]


def said(settled: Iterable[Settlement]) -> tuple[Said, ...]:
    return tuple(Said(JOBS.index(s.id), s.token, _name(s.outcome)) for s in settled)


def _name(outcome: Outcome) -> str:
    """Outcomes the machine makes up itself get a name when they are first met."""
    if outcome not in _LETTER:
        name = f"outcome {len(OUTCOMES)}"
        _LETTER[outcome], OUTCOMES[name] = name, outcome
    return _LETTER[outcome]


def claimed_from(job: int, token: str, contract: Contract) -> Claimed:
    names = (JOBS[job], token, contract.name, JOB_TYPE, "default", "default", "{}")
    return Claimed(*names, 1, 0, 2, None, None, JOBS[job], None, None)


def tokens_of(memory: Memory) -> list[str]:
    """Every token this worker may still speak with, in a fixed order."""
    found = [one.token for part in (memory.held, memory.finished, memory.abandoned) for one in part]
    if memory.beat:
        found += [lease.token for lease in memory.beat.about]
    if memory.call:
        call = memory.call
        found += [s.token for s in call.settled] + [call.token]
    return found


def renamed(memory: Memory, names: Mapping[str, str]) -> Memory:
    if all(names[token] == token for token in tokens_of(memory)):
        return memory
    call, beat = memory.call, memory.beat
    if call:
        settled = tuple(s._replace(token=names[s.token]) for s in call.settled)
        call = call._replace(settled=settled, token=names[call.token])
    return memory._replace(
        held=tuple(h._replace(token=names[h.token]) for h in memory.held),
        finished=tuple(s._replace(token=names[s.token]) for s in memory.finished),
        abandoned=tuple(g._replace(token=names[g.token]) for g in memory.abandoned),
        call=call,
        beat=beat and beat._replace(about=tuple(g._replace(token=names[g.token]) for g in beat.about)),
    )


@lru_cache(maxsize=65_536)
def shape(memory: Memory) -> str:
    """The memory without its tokens: what workers are ordered by, so that twins are one state."""
    call = memory.call
    told: tuple[object, ...] = ()
    if call:
        told = [(s.job, s.outcome) for s in call.settled], call.want, [reply.form for reply in call.replies]
    mine = [(h.job, h.asked) for h in memory.held], [(s.job, s.outcome) for s in memory.finished]
    others = [g.job for g in memory.abandoned], memory.beat and (len(memory.beat.about), memory.beat[1:])
    return repr((mine, others, memory.stopping, told))


def form(value: Any) -> Any:
    """A store call's answer reduced to what an engine call can go on from, as plain tuples."""
    if isinstance(value, Claimed):
        return "claimed", value.id, value.token, value.cancel_requested is not None
    if isinstance(value, Job):
        return "job", value.id, value.status, value.token
    if isinstance(value, DetentError):
        return "refused", value.code
    if isinstance(value, dict):
        return tuple(sorted((key, form(one)) for key, one in value.items()))
    if isinstance(value, tuple | list):
        return tuple(form(one) for one in value)
    if is_dataclass(value):
        return type(value).__name__, *(form(getattr(value, field.name)) for field in fields(value))
    return value


def copied(value: Any, names: Mapping[str, str]) -> Any:
    """The same answer anew, its tokens renamed."""
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, dict):
        return {key: copied(one, names) for key, one in value.items()}
    if isinstance(value, list):
        return [copied(one, names) for one in value]
    if isinstance(value, tuple):
        parts = [copied(one, names) for one in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if is_dataclass(value) and not isinstance(value, type):
        return type(value)(**{field.name: copied(getattr(value, field.name), names) for field in fields(value)})
    return value


LOST = Reply(lost=True)
