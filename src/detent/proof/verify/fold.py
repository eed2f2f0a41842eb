"""A contract as lookup tables, and the walk of a log along them: where it leads, what it counts, where it is wrong."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from detent.core.contract.model import Contract, Move, Phase

Shape = tuple[tuple[Any, ...], ...]
"""A log without its times: per event (event, source, target, execution_no, retries) and the flags of its data."""

NOT_CHARGED, CHARGED, UNCHARGED, DUE, STOPPED = 0, 1, 2, 4, 8
"""Flags: nothing said of a charge, charged, expressly not charged; a due time was logged; the worker stopped."""
_CHARGE = CHARGED | UNCHARGED

_REMEMBERED_LENGTH = 32
_REMEMBERED_AT_MOST = 4_096
_TAKING = (Move.CLAIM, Move.RECLAIM, Move.EXPIRE, Move.RETRY, Move.RELEASE)
_CHARGEABLE = frozenset({Move.RETRY, Move.FAIL, Move.EXPIRE, Move.RELEASE})


def flags_of(data: str) -> int:
    """What the counters depend on in an event's data, read without parsing: inside JSON text a quote is escaped."""
    found = DUE if '"due_at":' in data else 0
    if '"charged":true' in data:
        found |= CHARGED
    elif '"charged":false' in data:
        found |= UNCHARGED
    elif '"charged"' in data:
        found |= _parsed_charge(data)
    return found | STOPPED if '"reason":"worker_stopped"' in data else found


def _parsed_charge(data: str) -> int:
    try:
        told = json.loads(data)
    except ValueError:
        return NOT_CHARGED
    charged = told.get("charged") if isinstance(told, dict) else None
    return NOT_CHARGED if charged is None else CHARGED if charged else UNCHARGED


class Fault(NamedTuple):
    """What breaks a rule; step is the index of the event in its log, None where it is the row or the whole log."""

    step: int | None
    rule: str
    detail: str


class Fold(NamedTuple):
    """What a log says, whoever's it is: many jobs share one walk."""

    faults: tuple[Fault, ...]
    state: tuple[str | None, str | None, int, int, int, int, int]
    """(status, phase, version, execution_no, failures, retries, interruptions), as the row must have them."""
    started: int
    """The index of the first claim, -1 if there was none."""
    finished: int
    """The index of the final event if the log ends with one, else -1."""
    finals: int
    """Final events since the job was created or reopened."""
    burials: tuple[int, ...]
    """The contract's retry count at each FAIL."""
    follows: tuple[int, ...]
    """Where follow-up edges were taken: the times there are those of the event before."""


class ContractTable:
    """One contract, prepared for walking."""

    def __init__(self, contract: Contract) -> None:
        self.contract = contract
        self.phases: dict[str, str] = {status: phase.value for status, phase in contract.statuses.items()}
        moves: dict[tuple[str | None, str, str], list[Move | None]] = {}
        for edge in contract.edges:
            moves.setdefault((edge.source, edge.event, edge.target), []).append(edge.move)
        self.moves = moves
        self.passing = {edge.source for edge in contract.edges if edge.move is Move.FOLLOW}
        self.takeovers = {edge.event for edge in contract.edges if contract.wired and edge.move is Move.RECLAIM}
        self.taking = {edge.event for edge in contract.edges if edge.move in _TAKING}
        self.reopens = any(edge.move is Move.REOPEN for edge in contract.edges)
        self.timed = contract.retry_at_statuses
        self.frozen = contract.retry.max_retries if contract.retry.frozen else None
        self._walks: dict[Shape, Fold] = {}

    def walk(self, shape: Shape) -> Fold:
        """The walk of a log of this shape; remembered, because most jobs live one of a few lives."""
        known = self._walks.get(shape)
        if known is None:
            known = _walk(self, shape)
            if len(shape) <= _REMEMBERED_LENGTH:
                if len(self._walks) >= _REMEMBERED_AT_MOST:
                    self._walks.clear()
                self._walks[shape] = known
        return known

    def move_of(self, key: tuple[str | None, str, str], flags: int) -> Move | None:
        """Which move an event was. Moves that share an edge are told apart by what they log."""
        moves = self.moves[key]
        if len(moves) == 1:
            return moves[0]
        stop = flags & STOPPED and self.contract.stop.move is Move.RELEASE
        if Move.RELEASE in moves and (not flags & _CHARGE or stop):
            return Move.RELEASE
        if Move.RETRY in moves and flags & _CHARGE and flags & DUE:
            return Move.RETRY
        if Move.EXPIRE in moves and flags & _CHARGE:
            return Move.EXPIRE
        return next((move for move in moves if move is not None), None)


class _Counts:
    """The counters of a job as its log makes them."""

    __slots__ = ("executions", "failures", "interruptions", "retries", "told")

    def __init__(self) -> None:
        self.executions = self.failures = self.retries = self.interruptions = 0
        self.told = 0
        """What an event says of retries: the count before the move, also on the move's follow-ups."""

    def take(self, move: Move | None, enters_lease: bool, flags: int) -> None:
        if move is not Move.FOLLOW:
            self.told = self.retries
        if enters_lease:
            self.executions += 1
        if move is Move.REOPEN:
            self.failures = self.retries = self.interruptions = 0
        elif move is Move.RETRY:
            self.retries += 1
        elif (move is Move.EXPIRE and flags & UNCHARGED) or (move is Move.RECLAIM and not flags & CHARGED):
            self.interruptions += 1
        if flags & CHARGED and move in _CHARGEABLE:
            self.failures += 1


def _walk(table: ContractTable, shape: Shape) -> Fold:
    faults: list[Fault] = []
    counts = _Counts()
    status: str | None = None
    started = finished = -1
    finals = 0
    burials: list[int] = []
    follows: list[int] = []
    for index, (event, source, target, executions, retries, *rest) in enumerate(shape):
        flags = rest[0] if rest else 0
        key = (source, event, target)
        faults += _wrong_step(table, index, status, key)
        move = table.move_of(key, flags) if key in table.moves else None
        phase = table.phases.get(target)
        counts.take(move, phase == Phase.LEASED.value, flags)
        if (executions, retries) != (counts.executions, counts.told):
            said = f"{event} says execution {executions}, retries {retries}"
            faults.append(Fault(index, "event-counters", f"{said}; the log makes {counts.executions}, {counts.told}"))
        if phase == Phase.LEASED.value and started < 0:
            started = index
        finished = index if phase == Phase.FINAL.value else -1
        finals = 0 if move is Move.REOPEN else finals + (phase == Phase.FINAL.value)
        if move is Move.FAIL and table.contract.dead_letters:
            burials.append(counts.failures if table.contract.retry_counter == "failures" else counts.retries)
        if move is Move.FOLLOW:
            follows.append(index)
        status = target if phase else status
    if status in table.passing:
        faults.append(Fault(len(shape) - 1, "follow-at-once", f"the log ends in {status}, where no job may rest"))
    told = (counts.executions, counts.failures, counts.retries, counts.interruptions)
    state = (status, table.phases.get(status or ""), len(shape), *told)
    return Fold(tuple(faults), state, started, finished, finals, tuple(burials), tuple(follows))


def _wrong_step(
    table: ContractTable, index: int, status: str | None, key: tuple[str | None, str, str]
) -> Iterator[Fault]:
    """What is wrong with one step, judged by where the log was and by what the event says of itself."""
    source, event, target = key
    if (source is None) != (index == 0):
        yield Fault(index, "creation-first", f"{event} is event {index + 1} and leaves {source or 'nothing'}")
    elif source != status:
        yield Fault(index, "source-differs", f"{event} leaves {source}, the event before led to {status}")
    phase = table.phases.get(status or "")
    legal = key in table.moves
    if phase == Phase.FINAL.value:
        if legal and source == status and Move.REOPEN in table.moves[key]:
            yield Fault(index, "final-reopened", f"{event} led from {source} back to {target}")
        else:
            yield Fault(index, "final-absorbing", f"{event} -> {target} after the job had ended as {status}")
    elif not legal and phase == Phase.BLOCKED.value and event in table.taking:
        yield Fault(index, "blocked-taken", f"{event} -> {target} while the job was blocked in {status}")
    elif not legal:
        could = ", ".join(table.contract.legal_events(status)) or "nothing"
        yield Fault(index, "step-illegal", f"{source} -{event}-> {target} is no edge; from {status} legal: {could}")
