"""Histories under a contract: strict replay, tolerant derivation, and the rules that every step must keep. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from .model import Contract, Move, Phase

if TYPE_CHECKING:
    from detent.core.job import Event


class Fault(NamedTuple):
    """A broken rule; step: the index of the event in its log, None for the row or the whole log."""

    step: int | None
    rule: str
    detail: str


INVARIANTS = {
    "final-absorbing": 1,
    "final-reopened": 1,
    "final-once": 1,
    "waiting-unlogged": 2,
    "running-unlogged": 3,
    "blocked-taken": 4,
}
"""Rule -> the number of the invariant of the formal contract that it checks, for every contract."""


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The status a replay reached, or the first illegal event and the events that would have been legal."""

    status: str | None
    index: int | None = None
    event: str | None = None
    legal: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.index is None


class Step(NamedTuple):
    """A state event of a history. The first status may be ambiguous, so there may be several sources and targets."""

    position: int
    sources: list[str | None]
    event: str
    targets: list[str]
    legal: bool


def walk(contract: Contract, events: Iterable["str | Event"]) -> Iterator[Step]:
    """The state events of a history. After an illegal event the walk continues from the status that it leads to.

    Events that are not in the contract are ignored. All possible statuses are followed until one remains.
    """
    possible: list[str | None] = [None]
    for index, event in enumerate(events):
        name, logged = (event, None) if isinstance(event, str) else (event.event, event.target)
        if name not in contract.state_events:
            continue
        steps = [(status, target) for status in possible for target in contract.targets(status, name)]
        steps = [(status, target) for status, target in steps if logged in (None, target)]
        reached = [target for _, target in steps] or [logged or contract.state_events[name]]
        yield Step(index, [status for status, _ in steps] or possible, name, reached, bool(steps))
        possible = list(dict.fromkeys(reached))


def replay(contract: Contract, events: Iterable["str | Event"]) -> ReplayResult:
    """Replay event names or events strictly: stop at the first illegal one.

        replay(FORMAL, ["job_created", "job_running", "job_completed"]).status  # 'Completed'

    The result has the status reached, or the index of the illegal event and the events that are legal there.
    """
    status: str | None = None
    for step in walk(contract, events):
        if not step.legal:
            legal = sorted({edge.event for edge in contract.edges if edge.source in step.sources})
            return ReplayResult(step.sources[0], step.position, step.event, tuple(legal))
        status = step.targets[0]
    return ReplayResult(status)


def derive_status(contract: Contract, events: Iterable["str | Event"]) -> str | None:
    """Derive a status tolerantly: the last state event decides, whatever came before it.

        derive_status(FORMAL, ["job_created", "job_completed"])  # 'Completed', although the job never ran

    Events that are not in the contract are ignored; None if there is no other.
    """
    status: str | None = None
    for event in events:
        if isinstance(event, str):
            status = contract.state_events.get(event, status)
        elif event.event in contract.state_events:
            status = event.target
    return status


def broken_invariants(contract: Contract, events: Iterable["str | Event"]) -> Iterator[Fault]:
    """The steps of a history that break an invariant of the formal contract, also those that the contract allows."""
    for number, step in enumerate(walk(contract, events)):
        source = step.sources[0]
        for fault in step_faults(contract, number, source, (source, step.event, step.targets[0])):
            if fault.rule in INVARIANTS:
                yield fault._replace(step=step.position)


def step_faults(
    contract: Contract, number: int, status: str | None, key: tuple[str | None, str, str]
) -> Iterator[Fault]:
    """What is wrong with a logged (source, event, target), given the status that the events before it led to.

    number: how many state events precede it.
    """
    source, event, target = key
    if (source is None) != (number == 0):
        yield Fault(number, "creation-first", f"{event} is event {number + 1} and its source is {source or 'empty'}")
    elif source != status:
        yield Fault(number, "source-differs", f"the source of {event} is {source}, the event before led to {status}")
    phase = contract.statuses.get(status or "")
    moves = contract.targets(source, event).get(target)
    if phase is Phase.FINAL:
        if moves and source == status and Move.REOPEN in moves:
            yield Fault(number, "final-reopened", f"{event} led from {source} back to {target}")
        else:
            yield Fault(number, "final-absorbing", f"{event} -> {target} after the job had finished as {status}")
    elif not moves and phase is Phase.BLOCKED and event in contract.taking_events:
        yield Fault(number, "blocked-taken", f"{event} -> {target} while the job was blocked in {status}")
    elif not moves:
        events = ", ".join(contract.legal_events(status)) or "none"
        yield Fault(number, "step-illegal", f"{source} -{event}-> {target} is no edge; legal from {status}: {events}")
        if phase is Phase.BLOCKED and target != status:
            yield Fault(number, "waiting-unlogged", f"{event} -> {target} ended the wait in {status}, no event woke it")
        elif phase in (None, Phase.CLAIMABLE) and event in contract.leased_events:
            yield Fault(number, "running-unlogged", f"{event} -> {target}, and no event before it leased the job")
