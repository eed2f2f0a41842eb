"""A contract as lookup tables, and the fold of a log over them: final state, counters, and what is wrong on the way."""

import json
from typing import Any, NamedTuple

from detent.core.contract.model import Contract, Move, Phase
from detent.core.contract.replay import Fault, step_faults

Shape = tuple[tuple[Any, ...], ...]
"""A log without its times: per event (event, source, target, execution_no, retries) and the flags of its data."""

NOT_CHARGED, CHARGED, UNCHARGED, DUE, STOPPED = 0, 1, 2, 4, 8
"""Flags of an event's data: no `charged` field; charged true; charged false; has due_at; reason worker_stopped."""
_CHARGE = CHARGED | UNCHARGED

_MAX_CACHED_LENGTH = 32
_MAX_CACHED_FOLDS = 4_096
_CHARGEABLE = frozenset({Move.RETRY, Move.FAIL, Move.EXPIRE, Move.RELEASE})


def flags_of(data: str) -> int:
    """The flags of an event's data, found by text search: quotes inside JSON strings are escaped, so it is exact."""
    flags = DUE if '"due_at":' in data else 0
    if '"charged":true' in data:
        flags |= CHARGED
    elif '"charged":false' in data:
        flags |= UNCHARGED
    elif '"charged"' in data:
        flags |= _parsed_charge(data)
    return flags | STOPPED if '"reason":"worker_stopped"' in data else flags


def _parsed_charge(data: str) -> int:
    try:
        value = json.loads(data)
    except ValueError:
        return NOT_CHARGED
    charged = value.get("charged") if isinstance(value, dict) else None
    return NOT_CHARGED if charged is None else CHARGED if charged else UNCHARGED


class FoldedLog(NamedTuple):
    """The result of folding a log. It depends on the log's shape only, so many jobs share one."""

    faults: tuple[Fault, ...]
    state: tuple[str | None, str | None, int, int, int, int, int]
    """(status, phase, version, execution_no, failures, retries, interruptions) that the row must have."""
    started: int
    """The index of the first claim, -1 if there was none."""
    finished: int
    """The index of the final event if the log ends with one, else -1."""
    finals: int
    """Final events since the job was created or reopened."""
    dead_letter_counts: tuple[int, ...]
    """The contract's retry count at each FAIL; each needs a dead letter."""
    follows: tuple[int, ...]
    """Indexes of follow-up events: they have the time of the event before them."""


class ContractTable:
    """One contract, prepared for folding."""

    def __init__(self, contract: Contract) -> None:
        self.contract = contract
        self.phases: dict[str, str] = {status: phase.value for status, phase in contract.statuses.items()}
        self.passing = {edge.source for edge in contract.edges if edge.move is Move.FOLLOW}
        """Statuses in which no job may stay, because a follow-up edge leaves them in the same commit."""
        self.takeovers = {edge.event for edge in contract.edges if contract.uses_stream and edge.move is Move.RECLAIM}
        self.reopens = contract.has(Move.REOPEN)
        self.timed = contract.retry_at_statuses
        self.successes = contract.success_statuses
        self.frozen = contract.retry.max_retries if contract.retry.frozen else None
        self._folds: dict[Shape, FoldedLog] = {}

    def fold(self, shape: Shape) -> FoldedLog:
        """Fold a log of this shape; cached, because most jobs have one of a few shapes."""
        folded = self._folds.get(shape)
        if folded is None:
            folded = _fold(self, shape)
            if len(shape) <= _MAX_CACHED_LENGTH:
                if len(self._folds) >= _MAX_CACHED_FOLDS:
                    self._folds.clear()
                self._folds[shape] = folded
        return folded

    def move_of(self, key: tuple[str | None, str, str], flags: int) -> Move | None:
        """The move that logged an event. Moves that share an edge are distinguished by the event's data."""
        source, event, target = key
        moves = self.contract.targets(source, event).get(target, ())
        if len(moves) < 2:
            return next(iter(moves), None)
        stop = flags & STOPPED and self.contract.stop.move is Move.RELEASE
        if Move.RELEASE in moves and (not flags & _CHARGE or stop):
            return Move.RELEASE
        if Move.RETRY in moves and flags & _CHARGE and flags & DUE:
            return Move.RETRY
        if Move.EXPIRE in moves and flags & _CHARGE:
            return Move.EXPIRE
        return next((move for move in moves if move is not None), None)


class _Counts:
    """The counters of a job, computed from its log."""

    __slots__ = ("executions", "failures", "interruptions", "logged_retries", "retries")

    def __init__(self) -> None:
        self.executions = self.failures = self.retries = self.interruptions = 0
        self.logged_retries = 0
        """The retries an event must carry: the count before the move, also on the move's follow-ups."""

    def add(self, move: Move | None, enters_lease: bool, flags: int) -> None:
        if move is not Move.FOLLOW:
            self.logged_retries = self.retries
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


def _fold(table: ContractTable, shape: Shape) -> FoldedLog:
    faults: list[Fault] = []
    counts = _Counts()
    status: str | None = None
    started = finished = -1
    finals = 0
    dead_letter_counts: list[int] = []
    follows: list[int] = []
    for index, (event, source, target, executions, retries, *rest) in enumerate(shape):
        flags = rest[0] if rest else 0
        key = (source, event, target)
        faults += step_faults(table.contract, index, status, key)
        move = table.move_of(key, flags)
        phase = table.phases.get(target)
        counts.add(move, phase == Phase.LEASED.value, flags)
        if (executions, retries) != (counts.executions, counts.logged_retries):
            logged = f"{event} carries execution {executions}, retries {retries}"
            detail = f"{logged}; the log gives {counts.executions}, {counts.logged_retries}"
            faults.append(Fault(index, "event-counters", detail))
        if phase == Phase.LEASED.value and started < 0:
            started = index
        finished = index if phase == Phase.FINAL.value else -1
        finals = 0 if move is Move.REOPEN else finals + (phase == Phase.FINAL.value)
        if move is Move.FAIL and table.contract.dead_letters:
            count = counts.failures if table.contract.retry_counter == "failures" else counts.retries
            dead_letter_counts.append(count)
        if move is Move.FOLLOW:
            follows.append(index)
        status = target if phase else status
    if status in table.passing:
        detail = f"the log ends in {status}, which a follow-up edge must leave at once"
        faults.append(Fault(len(shape) - 1, "follow-at-once", detail))
    totals = (counts.executions, counts.failures, counts.retries, counts.interruptions)
    state = (status, table.phases.get(status or ""), len(shape), *totals)
    return FoldedLog(tuple(faults), state, started, finished, finals, tuple(dead_letter_counts), tuple(follows))
