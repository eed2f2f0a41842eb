"""The transaction port: jobs, their log, keys, signals and steps, and `Tx`, which has one attribute per topic."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from detent.core.contract.model import Contract
from detent.core.job import Change, DeadLetter, Event, Job, LogLine, Micros, Note, Progress, Signal, SignalKey, Step

from .access import AnswerTable, AuditTable, SessionTable, TokenTable
from .children import ApprovalTable, AwaitedTable, ChildTable
from .claims import ClaimTable, DueTable
from .limits import LimitTable, PauseTable, QuotaTable
from .listing import Backlog, DeclarationTable, ErrorGroupSlot, Filter, ViewTable, WorkerTable
from .metrics import (
    AlertTable,
    EventCountTable,
    Group,
    IntervalTable,
    LogPositionTable,
    SeriesTable,
    SilenceTable,
    WebhookTable,
)
from .pruning import PruneTable
from .schedules import FireTable, ScheduleTable
from .stream import OutboxTable
from .tail import JobProgress, Position, TailEvent

if TYPE_CHECKING:  # only `detent verify` uses its many row types
    from .verification import VerificationTable


class StatusCount(NamedTuple):
    contract: str
    status: str
    phase: str
    number: int


class OpenDeadLetter(NamedTuple):
    """The job of an open dead letter, and its version."""

    job_id: str
    version: int


class JobTable(Protocol):
    async def lock(self, ids: Sequence[str], *, wait: bool = True) -> dict[str, Job]:
        """Jobs by id, their rows locked until the end of the transaction. wait False: skip rows that are locked."""
        ...

    async def insert(self, changes: Sequence[Change]) -> set[str]:
        """Insert new jobs; returns the ids that existed before (a repeated submit) and were not changed."""
        ...

    async def apply(self, changes: Sequence[Change]) -> None: ...
    async def next_attempt(self, task_id: str) -> int: ...

    async def last_jobs_of_task(self, task_id: str, spaces: Sequence[str]) -> list[str]:
        """The ids of the jobs that own this key in these spaces, and of the last numbered run of the task."""
        ...

    async def list_jobs(self, filter: Filter) -> list[Job]: ...

    async def job_window(self, filter: Filter, scan: int, lowest: str | None) -> tuple[list[Job], str | None]:
        """The matches among the next `scan` jobs by id, and the last id read; None: no more jobs follow.

        lowest: jobs with lower ids are not read. A filter by parent, trace or error code of finished jobs reads the
        jobs that have it instead of all.
        """
        ...

    async def has_children_of_jobs_below(self, parent_id: str) -> bool:
        """Whether a job has a parent whose id is lower."""
        ...

    async def ids_with_prefix(self, prefix: str, limit: int) -> list[str]:
        """The lowest ids that begin with these hexadecimal digits."""
        ...


MAX_SEQ = 10**9 - 1
MAX_NOTE_NUMBER = 10**18 - 1


class JobStats(Protocol):
    async def counts(self, tenant: str | None = None) -> list[StatusCount]: ...

    async def backlog(self) -> list[Backlog]:
        """One row per contract, queue and type that was ever submitted; finished jobs are not counted."""
        ...

    async def jobs_ahead(self, job_id: str, at_most: int) -> int:
        """How many jobs of its lane are claimed before this one, counted up to `at_most`."""
        ...

    async def lane_names(self, like: str, limit: int) -> list[Group]:
        """Queues and job types that were ever used and contain this text, in either of their names."""
        ...

    async def tenant_names(self, limit: int) -> list[str]:
        """Tenants that ever had a job."""
        ...

    async def contracts(self) -> dict[str, Contract]:
        """The contracts registered in the database."""
        ...

    async def ping(self) -> None:
        """Read one row."""
        ...


class LogTable(Protocol):
    """Events and notes of jobs, and the tail of all events in commit order."""

    async def events(self, job_id: str) -> list[Event]: ...
    async def notes(self, job_id: str) -> list[Note]: ...
    async def add_notes(self, notes: Sequence[Note]) -> None: ...

    async def last_events(self, job_id: str, limit: int, below: int = MAX_SEQ) -> list[Event]:
        """The events before sequence number `below`, newest first."""
        ...

    async def last_notes(self, job_id: str, limit: int, below: int = MAX_NOTE_NUMBER) -> list[tuple[int, Note]]:
        """(number, note) of the notes before number `below`, newest first."""
        ...

    async def tail(self, after: Position, limit: int) -> tuple[list[TailEvent], Position]:
        """The next events, and the position to continue from."""
        ...

    async def tail_end(self) -> Position:
        """The position after the last committed event."""
        ...


class KeyTable(Protocol):
    """Idempotency keys."""

    async def key_owners(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """(space, key) -> the job that owns it; free keys are absent."""
        ...

    async def take_all_keys(self, owned: Sequence[tuple[str, str, str]]) -> int: ...

    async def take_keys(self, keys: Sequence[tuple[str, str]], job_id: str) -> bool:
        """Take all of these keys for a job; False if another job owns one."""
        ...


class SignalTable(Protocol):
    async def signal(self, job_id: str, name: str) -> Signal | None: ...
    async def list_signals(self, job_id: str) -> list[Signal]: ...
    async def add_signal(self, signal: Signal) -> None: ...

    async def missed_signals(self, after: SignalKey | None, limit: int) -> tuple[list[str], SignalKey | None]:
        """Reads the next signals in the order of (job id, name): the jobs among them that are blocked and wait for
        their signal, and the position to continue after; None: no more signals follow."""
        ...

    async def count_signals(self, job_id: str) -> int: ...


class StepTable(Protocol):
    async def step(self, job_id: str, name: str) -> Step | None: ...
    async def list_steps(self, job_id: str) -> list[Step]: ...
    async def count_steps(self, job_id: str) -> int: ...

    async def steps_page(
        self, job_id: str, limit: int, offset: int = 0, *, name: str | None = None, results: bool = True
    ) -> list[Step]:
        """Recorded steps by the time of their start, or the one with this name; without results if not wanted."""
        ...

    async def put_step(self, step: Step) -> None: ...

    async def record_step(self, step: Step, token: str) -> bool:
        """Record a step if the token is valid and no finished step has its name; False if not."""
        ...


class OutputTable(Protocol):
    """What a running execution reports beside its result: progress and log lines."""

    async def put_progress(self, progress: Progress, token: str) -> bool:
        """Overwrite the job's progress; False if the token does not hold the job."""
        ...

    async def progress_of(self, ids: Sequence[str]) -> dict[str, Progress]:
        """The last progress by job id; jobs that reported none are absent."""
        ...

    async def progress_after(self, at: Micros, job_id: str, limit: int) -> list[JobProgress]:
        """The reports after (time, job id), oldest first; a job that reported again since is at its newer time only."""
        ...

    async def add_log_lines(self, job_id: str, lines: Sequence[LogLine], token: str) -> bool:
        """Add lines of the execution that the token holds, without those that exist; False if it holds none."""
        ...

    async def trim_log_lines(self, job_id: str, execution_no: int, first: int) -> None:
        """Delete the lines of an execution before line number `first`."""
        ...

    async def log_lines(self, job_id: str, after: tuple[int, int], limit: int) -> list[LogLine]:
        """The lines after (execution_no, n), oldest first."""
        ...

    async def last_log_lines(self, job_id: str, limit: int) -> list[LogLine]:
        """The newest lines, oldest first."""
        ...


class DeadLetterTable(Protocol):
    async def dead_letter(self, dlq_id: str) -> DeadLetter | None: ...
    async def put_dead_letter(self, item: DeadLetter) -> None: ...
    async def list_dead_letters(self, filter: Filter) -> list[DeadLetter]: ...

    async def dead_letter_window(
        self, filter: Filter, scan: int, lowest: str | None
    ) -> tuple[list[DeadLetter], str | None]:
        """Like `job_window`, for dead letters; those that are open have an index of their own."""
        ...

    async def dead_letters_by_id(self, ids: Sequence[str]) -> list[DeadLetter]: ...

    async def count_dead_letters(self, filter: Filter) -> dict[str, tuple[int, int]]:
        """By contract: how many dead letters match, and how many of them are proposed to be discarded.

        Paging is ignored.
        """
        ...

    async def error_groups(
        self, filter: Filter, scan: int, since: Micros, width: Micros
    ) -> tuple[list[ErrorGroupSlot], str | None]:
        """The errors of the matches among the next `scan` dead letters, in slots of `width` from `since` on; and the
        last id read."""
        ...

    async def error_first_seen(self, groups: Sequence[str], tenant: str | None) -> dict[str, Micros]:
        """When each of these error groups was first seen, in one tenant or in all; also of deleted dead letters."""
        ...

    async def dead_letter_counts(self, tenant: str | None = None) -> dict[str, int]:
        """Number of dead letters by status, of one tenant or of all."""
        ...

    async def open_dead_letters(self, contracts: Sequence[str]) -> list[OpenDeadLetter]: ...
    async def dead_letters_of(self, ids: Sequence[str]) -> list[DeadLetter]: ...


class Tx(Protocol):
    """One transaction. Everything done through it commits together or not at all."""

    now: Micros

    jobs: JobTable
    stats: JobStats
    log: LogTable
    keys: KeyTable
    claims: ClaimTable
    due: DueTable
    signals: SignalTable
    steps: StepTable
    output: OutputTable
    dead_letters: DeadLetterTable
    children: ChildTable
    awaited: AwaitedTable
    approvals: ApprovalTable
    schedules: ScheduleTable
    fires: FireTable
    outbox: OutboxTable
    pruning: PruneTable
    limits: LimitTable
    quotas: QuotaTable
    pauses: PauseTable
    workers: WorkerTable
    declarations: DeclarationTable
    views: ViewTable
    audit: AuditTable
    tokens: TokenTable
    sessions: SessionTable
    answers: AnswerTable
    log_positions: LogPositionTable
    event_counts: EventCountTable
    series: SeriesTable
    alerts: AlertTable
    silences: SilenceTable
    webhooks: WebhookTable
    intervals: IntervalTable
    verification: "VerificationTable"
