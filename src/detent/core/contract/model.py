"""The contract model: statuses with phases, edges with moves, and rules. A contract is validated when it is built."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from detent.core.retry import RetryRule

from .moves import CODES, Edge, Move, Phase
from .validation import validate

if TYPE_CHECKING:
    from detent.core.job import Event, Job

__all__ = ["Contract", "DeadLetterRule", "Edge", "KeyRule", "LossRule", "Move", "Phase", "StopRule", "replay"]
_GENERATED = "auto-"
"""The prefix of generated idempotency keys."""


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
    view: Callable[["Job"], dict[str, Any]] = lambda job: {}
    envelope: Callable[["Job", "Event"], dict[str, Any] | None] = lambda job, event: None

    def __post_init__(self) -> None:
        object.__setattr__(self, "codes", MappingProxyType({**CODES, **self.codes}))
        object.__setattr__(self, "statuses", MappingProxyType(dict(self.statuses)))
        validate(self)

    @cached_property
    def _by_move(self) -> dict[tuple[Move | None, str | None], Edge]:
        return {(edge.move, edge.source): edge for edge in self.edges if edge.move}

    @cached_property
    def _by_event(self) -> dict[tuple[str | None, str], dict[str, Edge]]:
        by_event: dict[tuple[str | None, str], dict[str, Edge]] = {}
        for edge in self.edges:
            by_event.setdefault((edge.source, edge.event), {}).setdefault(edge.target, edge)
        return by_event

    @cached_property
    def _routes(self) -> dict[tuple[str | None, Move], tuple[Edge, ...]]:
        return {}

    @cached_property
    def state_events(self) -> Mapping[str, str]:
        """Event name -> the status it leads to, whatever the source."""
        return {edge.event: edge.target for edge in reversed(self.edges)}

    def phase(self, status: str) -> Phase:
        """The phase of a status; KeyError if the contract has no such status."""
        return self.statuses[status]

    def edge(self, source: str | None, move: Move) -> Edge | None:
        """The edge of a move from this status; None if the move is illegal there. source None: creation."""
        return self._by_move.get((move, source))

    def step(self, source: str | None, event: str, target: str | None = None) -> str | None:
        """The target status of this event, None if it is illegal. A given target must be one the table allows."""
        targets = self._by_event.get((source, event), {})
        if target is None:
            return next(iter(targets), None)
        return target if target in targets else None

    def steps(self, sources: Iterable[str | None], event: str) -> list[str]:
        """Every target status of this event from any of these sources."""
        return list(dict.fromkeys(t for s in sources for t in self._by_event.get((s, event), ())))

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

    def code(self, name: str) -> str:
        """What this contract calls an error code, for example `code("timeout")`; empty if it has none."""
        return self.codes[name] or ""

    def with_options(self, **options: Any) -> "Contract":
        """A copy of this contract with other settings (backoff, lease_seconds, loss, ...), validated again."""
        return replace(self, **options)


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


def replay(contract: Contract, events: Iterable["str | Event"]) -> ReplayResult:
    """Replay strictly: stop at the first illegal event. Events that are not in the contract are ignored.

    Event names alone may leave the first status ambiguous; all possible statuses are followed until one remains.
    """
    possible: list[str | None] = [None]
    state_events = contract.state_events
    for index, event in enumerate(events):
        name = event if isinstance(event, str) else event.event
        if name not in state_events:
            continue
        targets = contract.steps(possible, name)
        if not isinstance(event, str):
            targets = [status for status in targets if status == event.target]
        if not targets:
            legal = sorted({e.event for e in contract.edges if e.source in possible})
            return ReplayResult(possible[0], index, name, tuple(legal))
        possible = list(targets)
    return ReplayResult(possible[0])


def derive_status(contract: Contract, events: Iterable["str | Event"]) -> str | None:
    """Derive tolerantly: the last state event decides, whatever came before it."""
    status: str | None = None
    for event in events:
        if isinstance(event, str):
            status = contract.state_events.get(event, status)
        elif event.event in contract.state_events:
            status = event.target
    return status
