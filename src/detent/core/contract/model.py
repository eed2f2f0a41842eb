"""The contract model: statuses with phases, edges with moves, and rules. A contract is validated when it is built."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from detent.core.retry import RetryRule

from .moves import CODES, Edge, Move, Phase
from .validation import validate

if TYPE_CHECKING:
    from detent.core.job import Event, Job

__all__ = ["Contract", "DeadLetterRule", "Edge", "KeyRule", "LossRule", "Move", "Phase", "StopRule"]
_GENERATED = "auto-"
"""The prefix of generated idempotency keys."""
_TAKING = (Move.CLAIM, Move.RECLAIM, Move.EXPIRE, Move.RETRY, Move.RELEASE)


@dataclass(frozen=True, slots=True)
class LossRule:
    """What happens to a job whose lease expired. charged: the loss counts as a failure."""

    move: Move = Move.EXPIRE
    charged: bool = True
    max_interruptions: int | None = 8
    """Uncharged losses before the job fails, because it may be what kills its workers; 0 or None: any number."""


@dataclass(frozen=True, slots=True)
class StopRule:
    """What a worker does with an unfinished job when it shuts down. move None: it lets the lease expire."""

    move: Move | None = Move.RELEASE
    charged: bool = False


@dataclass(frozen=True, slots=True)
class DeadLetterRule:
    """FAIL writes a dead letter. A discard needs this many different people."""

    discard_people: int = 2
    note: str | None = None
    """Name of the note that records the dead letter; None: no note."""


@dataclass(frozen=True, slots=True)
class KeyRule:
    """In which scope an idempotency key is unique, and what must agree when a submission hits an existing key."""

    scope: tuple[str, ...] = ("tenant_id", "idempotency_scope")
    generated: bool = False
    """True: a job submitted without a key gets one that is made from its id; see `generated_key`."""
    max_length: int = 255
    same_content: str = "payload"
    """What must agree on a hit: 'payload' (job type and payload), 'critical' (critical_fields), 'nothing'."""
    critical_fields: tuple[str, ...] = ()
    blank_is_absent: bool = False
    task_id_is_key: bool = False
    kept_by_requeue: bool = False
    """True: a requeued job has the key of the first job, for the effects of its workers. The first one owns it."""

    def generated_key(self, job_id: str) -> str | None:
        """The key of a job that was submitted without one. It needs no row in keys: the job's id is unique."""
        return _GENERATED + job_id if self.generated else None

    def job_of_key(self, key: str | None) -> str | None:
        """The id of the job that this key is generated for; None for any other key."""
        return key.removeprefix(_GENERATED) if self.generated and key and key.startswith(_GENERATED) else None


@lru_cache(maxsize=10_000)
def key_space(contract: str, kind: str, *values: str | None) -> str:
    """The space of a key as it is stored: its contract, `key` or `task_id`, and the values in which it is unique."""
    return json.dumps([contract, kind, *values], ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True)
class Contract:
    """A job lifecycle as data: statuses, edges and rules. Raises ContractError on construction if it is not sound.

        ticket = Contract(
            name="ticket",
            statuses={"open": Phase.CLAIMABLE, "running": Phase.LEASED, "done": Phase.FINAL, "failed": Phase.FINAL},
            edges=(
                Edge(Move.SUBMIT, None, "created", "open"),
                Edge(Move.CLAIM, "open", "claimed", "running"),
                Edge(Move.SUCCEED, "running", "done", "done"),
                Edge(Move.RETRY, "running", "retried", "open"),
                Edge(Move.FAIL, "running", "failed", "failed"),
                Edge(Move.EXPIRE, "running", "lost", "open"),
                Edge(Move.RELEASE, "running", "released", "open"),
            ),
        )
        app = Detent("sqlite:///jobs.db", contracts=[ticket])

    Besides: error codes (`codes`), the rules for retries (`retry`), lost workers (`loss`), shutdowns (`stop`), dead
    letters (`dead_letters`) and idempotency keys (`keys`), and how jobs and events are shown (`view`, `envelope`).
    """

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
    """Statuses in which a cancel only sets a request, which the current or next holder carries out."""
    dead_letters: DeadLetterRule | None = None
    keys: KeyRule = field(default_factory=KeyRule)
    retry_at_statuses: frozenset[str] = frozenset()
    """next_retry_at is set in these statuses and in no other."""
    approval_statuses: frozenset[str] = frozenset()
    """Blocked statuses that an approval or a rejection ends."""
    approval_notes: Mapping[str, str] = field(default_factory=dict)
    strict_signals: bool = False
    """True: while blocked, a signal with another name than the awaited one is refused."""
    repeat_is_noop: bool = False
    """True: a transition to the status the job already has, made without a token, is a no-op and not an error."""
    utc_only: bool = False
    retry_counter: str = "retries"
    """The counter of the job that this contract calls retry_count: 'retries' or 'failures'."""
    names_tasks: bool = False
    """True: a job submitted without a task_id uses its own id as task_id."""
    task_attempts: bool = False
    """True: jobs with the same task_id are numbered as attempts of that task."""
    parks_as: str | None = None
    """The status that the view shows for a long wait; the row keeps its waiting status."""
    due_on_submit: bool = False
    """True: a job that is due now is created blocked and woken in the same commit."""
    uses_stream: bool = False
    """True: claimable jobs are written to the outbox and published to a stream, if one is configured."""
    heartbeat_note: str | None = None
    """Name of the note a worker writes from time to time about a job it has held for long."""
    lease_seconds: float = 30.0
    trace_form: str = "trace-{job_id}"
    """The trace id of a job submitted without one; {job_id} and {unique} are replaced."""
    description: str = ""
    """One line for people: what the contract is for."""
    view: Callable[["Job"], dict[str, Any]] = lambda job: {}
    envelope: Callable[["Job", "Event"], dict[str, Any] | None] | None = None
    """The form in which an event is published; it may return None for one that is not. None: the contract has none."""
    published_names: tuple[str, ...] = ()
    """The names that `envelope` gives to events (its `type` or `event_type`), if they differ from those of the log."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "codes", MappingProxyType({**CODES, **self.codes}))
        object.__setattr__(self, "statuses", MappingProxyType(dict(self.statuses)))
        validate(self)

    @cached_property
    def _by_move(self) -> dict[tuple[Move | None, str | None], Edge]:
        return {(edge.move, edge.source): edge for edge in self.edges if edge.move}

    @cached_property
    def _by_event(self) -> dict[tuple[str | None, str], dict[str, list[Move | None]]]:
        by_event: dict[tuple[str | None, str], dict[str, list[Move | None]]] = {}
        for edge in self.edges:
            by_event.setdefault((edge.source, edge.event), {}).setdefault(edge.target, []).append(edge.move)
        return by_event

    @cached_property
    def _routes(self) -> dict[tuple[str | None, Move], tuple[Edge, ...]]:
        return {}

    @cached_property
    def taking_events(self) -> frozenset[str]:
        """Events that lease a job or put it back to be leased; a blocked job gets none of them."""
        leased = self.in_phase(Phase.LEASED)
        return frozenset(edge.event for edge in self.edges if edge.move in _TAKING or edge.target in leased)

    @cached_property
    def leased_events(self) -> frozenset[str]:
        """Events that only a leased job can have."""
        leased = self.in_phase(Phase.LEASED)
        others = {edge.event for edge in self.edges if edge.source not in leased}
        return frozenset(edge.event for edge in self.edges) - others

    @cached_property
    def state_events(self) -> Mapping[str, str]:
        """Event name -> the status it leads to, whatever the source."""
        return {edge.event: edge.target for edge in reversed(self.edges)}

    @property
    def event_names(self) -> frozenset[str]:
        """The names of all events, in the log and as they are published."""
        return frozenset(edge.event for edge in self.edges).union(self.published_names)

    def phase(self, status: str) -> Phase:
        """The phase of a status; KeyError if the contract has no such status."""
        return self.statuses[status]

    def edge(self, source: str | None, move: Move) -> Edge | None:
        """The edge of a move from this status; None if the move is illegal there. source None: creation."""
        return self._by_move.get((move, source))

    def targets(self, source: str | None, event: str) -> Mapping[str, list[Move | None]]:
        """The statuses that this event leads to -> the moves that log it; None: legal in a history, but never made."""
        return self._by_event.get((source, event), {})

    def route(self, source: str | None, move: Move) -> tuple[Edge, ...]:
        """The edge of a move and the FOLLOW edges committed with it; empty if the move is illegal."""
        route = self._routes.get((source, move))
        if route is None:
            path = []
            edge = self.edge(source, move)
            while edge:
                path.append(edge)
                edge = self.edge(edge.target, Move.FOLLOW)
            route = self._routes[(source, move)] = tuple(path)
        return route

    def has(self, move: Move) -> bool:
        """True if a job in some status can make this move."""
        return any(edge.move is move and edge.source is not None for edge in self.edges)

    @property
    def success_statuses(self) -> frozenset[str]:
        """The statuses of jobs that succeeded."""
        return frozenset(edge.target for edge in self.edges if edge.move is Move.SUCCEED)

    def succeeded(self, status: str) -> bool:
        """True if a job in this status has succeeded."""
        return status in self.success_statuses

    def legal_events(self, source: str | None) -> list[str]:
        """The names of all events that are legal in this status, sorted."""
        return sorted({e.event for e in self.edges if e.source == source})

    def legal_moves(self, source: str | None) -> list[Move]:
        """All moves that are legal in this status."""
        return [e.move for e in self.edges if e.source == source and e.move]

    def in_phase(self, phase: Phase) -> list[str]:
        """The names of all statuses of this phase."""
        return [status for status, status_phase in self.statuses.items() if status_phase is phase]

    @property
    def can_cancel_before_start(self) -> bool:
        """True if every reachable claimable status has a CANCEL edge; start deadlines need it."""
        claimable = [status for status in self.in_phase(Phase.CLAIMABLE) if status not in self.unreachable]
        return all(self.edge(status, Move.CANCEL) for status in claimable)

    @property
    def discard_people(self) -> int:
        """How many people must agree to discard a dead letter."""
        return self.dead_letters.discard_people if self.dead_letters else 1

    def code(self, name: str) -> str:
        """What this contract calls an error code, for example `code("timeout")`; empty if it has none."""
        return self.codes[name] or ""

    def with_options(self, **options: Any) -> "Contract":
        """A copy of this contract with other settings, validated again.

            GATE_B2.with_options(retry={"base_ms": 500, "cap_ms": 10_000})
            P3C.with_options(loss={"max_interruptions": 3}, lease_seconds=60)

        `retry`, `loss`, `stop`, `dead_letters` and `keys` take a dict of the fields that change. Raises ContractError.
        """
        from .io import RULES, with_tables  # reads contracts from plain data, so it imports this module

        tables = {name: row for name, row in options.items() if name in RULES and isinstance(row, Mapping)}
        changed = replace(self, **{name: value for name, value in options.items() if name not in tables})
        return with_tables(changed, tables) if tables else changed
