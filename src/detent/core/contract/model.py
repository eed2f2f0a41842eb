"""A contract: statuses with phases, edges with moves, and the rules that go with them, checked when declared."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from detent.core.retry import RetryRule

if TYPE_CHECKING:
    from detent.core.job import Event, Job


class Phase(StrEnum):
    """What the engine must know of a status; the contract names the status itself."""

    CLAIMABLE = "claimable"
    LEASED = "leased"
    BLOCKED = "blocked"
    FINAL = "final"


class Move(StrEnum):
    """The engine's verbs."""

    SUBMIT = "SUBMIT"
    DEFER = "DEFER"
    HOLD = "HOLD"
    CLAIM = "CLAIM"
    SUCCEED = "SUCCEED"
    RETRY = "RETRY"
    FAIL = "FAIL"
    RELEASE = "RELEASE"
    EXPIRE = "EXPIRE"
    RECLAIM = "RECLAIM"
    WAIT = "WAIT"
    PARK = "PARK"
    WAKE = "WAKE"
    REJECT = "REJECT"
    CANCEL = "CANCEL"
    REOPEN = "REOPEN"
    FOLLOW = "FOLLOW"


_C, _L, _B, _F = Phase.CLAIMABLE, Phase.LEASED, Phase.BLOCKED, Phase.FINAL

JOINS: Mapping[Move, tuple[frozenset[Phase | None], frozenset[Phase]]] = MappingProxyType(
    {
        Move.SUBMIT: (frozenset({None}), frozenset({_C, _B})),
        Move.DEFER: (frozenset({None}), frozenset({_B})),
        Move.HOLD: (frozenset({None, _L}), frozenset({_B})),
        Move.CLAIM: (frozenset({_C}), frozenset({_L})),
        Move.SUCCEED: (frozenset({_L}), frozenset({_F})),
        Move.RETRY: (frozenset({_L}), frozenset({_C, _B})),
        Move.FAIL: (frozenset({_L, _C}), frozenset({_F, _B})),
        Move.RELEASE: (frozenset({_L}), frozenset({_C})),
        Move.EXPIRE: (frozenset({_L}), frozenset({_C})),
        Move.RECLAIM: (frozenset({_L}), frozenset({_L})),
        Move.WAIT: (frozenset({_L}), frozenset({_B})),
        Move.PARK: (frozenset({_L}), frozenset({_B})),
        Move.WAKE: (frozenset({_B}), frozenset({_C})),
        Move.REJECT: (frozenset({_B}), frozenset({_F})),
        Move.CANCEL: (frozenset({_C, _L, _B}), frozenset({_F})),
        Move.REOPEN: (frozenset({_F}), frozenset({_C})),
        Move.FOLLOW: (frozenset({_B}), frozenset({_B, _F})),
    }
)
"""The phase machine every contract refines: move -> (phases it may leave, phases it may enter)."""


@dataclass(frozen=True, slots=True)
class Edge:
    """One legal step. No source: creation. No move: legal in a history, never issued by us."""

    move: Move | None
    source: str | None
    event: str
    target: str

    def __str__(self) -> str:
        return f"({self.move or '-'}, {self.source or '(nothing)'}, {self.event}, {self.target})"


@dataclass(frozen=True, slots=True)
class LossRule:
    """What a lost worker means for the job it held."""

    move: Move = Move.EXPIRE
    charged: bool = True
    max_interruptions: int | None = None
    """Uncharged losses allowed before the job is given up; None: any number."""


@dataclass(frozen=True, slots=True)
class StopRule:
    """What a worker that stops in good order does with an unfinished job; no move: it leaves it to its lease."""

    move: Move | None = Move.RELEASE
    charged: bool = False


@dataclass(frozen=True, slots=True)
class DeadLetterRule:
    """FAIL writes an item; a discard needs this many different people."""

    discard_people: int = 2
    note: str | None = None
    """Name of the note that tells of the item, if the contract has one."""


@dataclass(frozen=True, slots=True)
class KeyRule:
    """Where an idempotency key is unique and what a hit with other content means."""

    scope: tuple[str, ...] = ("tenant_id", "idempotency_scope")
    generated: bool = False
    max_length: int = 255
    same_content: str = "payload"
    """What must agree on a hit: 'payload' (type and payload), 'critical' (critical_fields), 'nothing'."""
    critical_fields: tuple[str, ...] = ()
    blank_is_absent: bool = False
    task_id_is_key: bool = False


CODES: Mapping[str, str | None] = MappingProxyType(
    {
        "illegal_transition": "JOB_TRANSITION_INVALID",
        "not_found": "JOB_NOT_FOUND",
        "idempotency_conflict": "IDEMPOTENCY_CONFLICT",
        "tenant_scope_violation": "TENANT_SCOPE_VIOLATION",
        "dlq_item_not_found": "DLQ_ITEM_NOT_FOUND",
        "dlq_requeue_conflict": "DLQ_REQUEUE_CONFLICT",
        "dlq_discard_conflict": "DLQ_DISCARD_CONFLICT",
        "approval_required": "APPROVAL_REQUIRED",
        "invalid_schedule": "SCHEDULE_INVALID",
        "execution_failed": "JOB_EXECUTION_FAILED",
        "timeout": "JOB_TIMEOUT",
        "lost": "WORKER_LOST",
        "stopped": "WORKER_STOPPED",
        "payload_invalid": "PAYLOAD_INVALID",
        "retry_exhausted": None,
    }
)
"""Every code a contract may rename. retry_exhausted None: the cause keeps its own code."""


def _no_view(job: "Job") -> dict[str, Any]:
    return {}


def _no_envelope(job: "Job", event: "Event") -> dict[str, Any] | None:
    return None


@dataclass(frozen=True)
class Contract:
    """A lifecycle as data. Build it, and it has been checked; the engine obeys it and spells none of its statuses."""

    name: str
    statuses: Mapping[str, Phase]
    edges: tuple[Edge, ...]
    unreachable: frozenset[str] = frozenset()
    codes: Mapping[str, str | None] = field(default_factory=dict)
    retry: RetryRule = field(default_factory=RetryRule)
    loss: LossRule = field(default_factory=LossRule)
    stop: StopRule = field(default_factory=StopRule)
    snooze: Move | None = None
    cancel_requests: frozenset[str] = frozenset()
    """Statuses in which a cancel is a request to the holder (or the next one), not the edge itself."""
    dead_letters: DeadLetterRule | None = None
    keys: KeyRule = field(default_factory=KeyRule)
    retry_at_statuses: frozenset[str] = frozenset()
    """Statuses in which, and only in which, next_retry_at is set."""
    approval_statuses: frozenset[str] = frozenset()
    """Blocked statuses that people end by approving or rejecting."""
    approval_notes: Mapping[str, str] = field(default_factory=dict)
    strict_signals: bool = False
    """True: while blocked, a signal with another name than the awaited one is refused."""
    repeat_is_noop: bool = False
    """True: asking for the status a job already has, without a token, changes nothing and is no error."""
    utc_only: bool = False
    retry_counter: str = "retries"
    """The job's counter that this contract calls retry_count: 'retries' or 'failures'."""
    names_tasks: bool = False
    """True: a job without a task_id is its own task."""
    task_attempts: bool = False
    """True: jobs with one task_id are numbered runs of that task."""
    parks_as: str | None = None
    """The status a long wait is shown as in the view, where the row keeps its waiting status."""
    due_on_submit: bool = False
    """True: a job due now is created blocked and woken in the same commit."""
    wired: bool = False
    """True: the work travels on a stream where one is set up; what becomes claimable goes through the outbox."""
    heartbeat_note: str | None = None
    """Name of the note a worker leaves now and then beside a job it has held for long."""
    lease_seconds: float = 30.0
    trace_form: str = "trace-{job_id}"
    """The trace id of a job that brings none; {job_id} and {unique} are filled in."""
    view: Callable[["Job"], dict[str, Any]] = _no_view
    envelope: Callable[["Job", "Event"], dict[str, Any] | None] = _no_envelope

    def __post_init__(self) -> None:
        from .validation import check

        object.__setattr__(self, "codes", MappingProxyType({**CODES, **self.codes}))
        object.__setattr__(self, "statuses", MappingProxyType(dict(self.statuses)))
        check(self)
        object.__setattr__(self, "_by_move", {(e.move, e.source): e for e in self.edges if e.move})
        by_event: dict[tuple[str | None, str], dict[str, Edge]] = {}
        for edge in self.edges:
            by_event.setdefault((edge.source, edge.event), {}).setdefault(edge.target, edge)
        object.__setattr__(self, "_by_event", by_event)
        object.__setattr__(self, "_last_word", {e.event: e.target for e in reversed(self.edges)})
        object.__setattr__(self, "_routes", {})

    def phase(self, status: str) -> Phase:
        return self.statuses[status]

    def edge(self, source: str | None, move: Move) -> Edge | None:
        found: Edge | None = self._by_move.get((move, source))  # type: ignore[attr-defined]
        return found

    def step(self, source: str | None, event: str, target: str | None = None) -> str | None:
        """Where a history goes with this event, if that is legal; a logged target must be the table's."""
        targets: dict[str, Edge] = self._by_event.get((source, event), {})  # type: ignore[attr-defined]
        if target is None:
            return next(iter(targets), None)
        return target if target in targets else None

    def steps(self, sources: Iterable[str | None], event: str) -> list[str]:
        """Every status this event can lead to from any of these."""
        table: dict[tuple[str | None, str], dict[str, Edge]] = self._by_event  # type: ignore[attr-defined]
        return list(dict.fromkeys(t for s in sources for t in table.get((s, event), ())))

    def route(self, source: str | None, move: Move) -> tuple[Edge, ...]:
        """An edge and the follow-ups that are committed with it; empty when the move is illegal."""
        routes: dict[tuple[str | None, Move], tuple[Edge, ...]] = self._routes  # type: ignore[attr-defined]
        known = routes.get((source, move))
        if known is None:
            path = []
            edge = self.edge(source, move)
            while edge:
                path.append(edge)
                edge = self.edge(edge.target, Move.FOLLOW)
            known = routes[(source, move)] = tuple(path)
        return known

    def legal_events(self, source: str | None) -> list[str]:
        return sorted({e.event for e in self.edges if e.source == source})

    def legal_moves(self, source: str | None) -> list[Move]:
        return [e.move for e in self.edges if e.source == source and e.move]

    def in_phase(self, phase: Phase) -> list[str]:
        return [status for status, its in self.statuses.items() if its is phase]

    @property
    def ends_late(self) -> bool:
        """Can a job that has missed its deadline be ended from wherever it may wait to begin?"""
        waiting = [status for status in self.in_phase(Phase.CLAIMABLE) if status not in self.unreachable]
        return all(self.edge(status, Move.CANCEL) for status in waiting)

    def code(self, name: str) -> str:
        return self.codes[name] or ""

    @property
    def state_events(self) -> Mapping[str, str]:
        """Event name -> the status it leads to when sources are not looked at."""
        words: Mapping[str, str] = self._last_word  # type: ignore[attr-defined]
        return words

    def with_options(self, **options: Any) -> "Contract":
        """The same machine with other settings (backoff, lease_seconds, loss, ...)."""
        return replace(self, **options)


@dataclass(frozen=True, slots=True)
class Replayed:
    """The answer of a replay: the status reached, or the first illegal step and what would have been legal."""

    status: str | None
    index: int | None = None
    event: str | None = None
    legal: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.index is None


def replay(contract: Contract, events: Iterable["str | Event"]) -> Replayed:
    """Strict: stops at the first illegal step. Events the contract does not know are passed over.

    Bare names may leave open how a job began; every possibility is followed until one remains.
    """
    possible: list[str | None] = [None]
    known = contract.state_events
    for index, event in enumerate(events):
        name = event if isinstance(event, str) else event.event
        if name not in known:
            continue
        found = contract.steps(possible, name)
        if not isinstance(event, str):
            found = [status for status in found if status == event.target]
        if not found:
            legal = sorted({e.event for e in contract.edges if e.source in possible})
            return Replayed(possible[0], index, name, tuple(legal))
        possible = list(found)
    return Replayed(possible[0])


def derive_status(contract: Contract, events: Iterable["str | Event"]) -> str | None:
    """Tolerant: the last state event decides, whatever came before it."""
    status: str | None = None
    for event in events:
        if isinstance(event, str):
            status = contract.state_events.get(event, status)
        elif event.event in contract.state_events:
            status = event.target
    return status
