"""Filters and rows of listings (jobs, workers, backlog), and the workers with their commands and losses."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from detent.core.job import Loss, Micros

from .claims import HeldJob


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs a listing shows; None matches any. Pages are ordered by id, newest first."""

    contract: str | None = None
    status: str | None = None
    phase: str | None = None
    queue: str | None = None
    tenant_id: str | None = None
    job_type: str | None = None
    text: str | None = None
    before: str | None = None
    limit: int = 50
    error_code: str | None = None
    task_id: str | None = None
    since: Micros | None = None
    """Created at or after this time; `until`: at or before that time."""
    until: Micros | None = None
    wait_parked: bool | None = None
    """True: only jobs in a long wait that the contract's view shows as a status of its own."""
    text_outside: str | None = None
    """Like `text`, but searched in ids, keys and codes only: for callers that may not see payloads."""
    queues: tuple[str, ...] | None = None
    """Only these queues and job types: those that the caller's token reaches."""
    job_types: tuple[str, ...] | None = None
    ids: tuple[str, ...] | None = None
    """Of an act on many dead letters: exactly these."""
    statuses: tuple[str, ...] | None = None
    """Any of these statuses; `*` and the name of a contract stands for its long waits, see `wait_parked`."""
    parent_id: str | None = None
    trace_id: str | None = None
    worker: str | None = None
    """Only jobs that this worker has claimed."""
    roots: bool | None = None
    """True: only jobs without a parent."""
    min_duration: Micros | None = None
    """At least, and `max_duration` at most, so long from the first start to the end, or to now if it has not ended."""
    max_duration: Micros | None = None
    min_attempts: int | None = None
    max_attempts: int | None = None
    error_class: str | None = None
    """Of dead letters, as `error_group` (see `core.error_groups`) and `proposed_by`: who proposed to discard them."""
    error_group: str | None = None
    proposed_by: str | None = None


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A registered worker. It counts as gone after three leases without a heartbeat."""

    id: str
    host: str
    pid: int
    version: str
    queues: str | None
    job_types: str
    slots: int
    busy: int
    state: str
    started_at: Micros
    seen_at: Micros
    lease: Micros
    blocked: str | None = None
    """JSON while a handler blocks its event loop: since, location, job_id, job_type."""


class Backlog(NamedTuple):
    """Unfinished jobs of one contract, queue and type: due now, due later, held by workers.

    Jobs that wait, also those with a time-out, are not counted.
    """

    contract: str
    queue: str
    job_type: str
    due: int
    later: int
    held: int
    oldest_due: Micros | None
    due_paused: int = 0
    """Due jobs of paused tenants."""


class ErrorGroupSlot(NamedTuple):
    """The number of dead letters of one error in one slot of time; slot -1: before the first slot."""

    job_type: str
    error_class: str | None
    error_code: str
    error_group: str
    slot: int
    number: int
    proposed: int
    """How many of them somebody proposed to discard; the first and the last of these people by name."""
    first_proposer: str | None
    last_proposer: str | None
    first_at: Micros
    last_at: Micros
    last_id: str


class SavedView(NamedTuple):
    """A filter of a list that a person saved under a name. tenant_id: of the person's token, "" if it has none."""

    tenant_id: str
    person: str
    page: str
    name: str
    query: str
    saved_at: Micros


class ViewTable(Protocol):
    """The views that people save."""

    async def put_view(self, view: SavedView) -> None: ...
    async def views(self, tenant: str, person: str) -> list[SavedView]: ...
    async def drop_view(self, tenant: str, person: str, page: str, name: str) -> bool: ...


class WorkerCommand(NamedTuple):
    """A command for one worker. drain: finish the running jobs, then exit; stop: as on SIGTERM."""

    worker: str
    act: str
    actor: str
    reason: str | None
    at: Micros


class Declaration(NamedTuple):
    """A job type as a worker declares it."""

    job_type: str
    options: str
    """The declared options as JSON, with the names of REST."""
    schema: str | None
    """The JSON schema of the payload; None: it has none, so payloads are not checked."""


class DeclarationTable(Protocol):
    """The job types that workers declare."""

    async def put_declaration(self, declaration: Declaration) -> None: ...
    async def list_declarations(self) -> list[Declaration]: ...


class WorkerTable(Protocol):
    """Registered workers, the jobs they hold, the commands sent to them, and the jobs taken back from lost workers."""

    async def put_worker(self, worker: WorkerRow) -> None: ...
    async def worker(self, worker_id: str) -> WorkerRow | None: ...

    async def held_by(self, worker_id: str, limit: int) -> list[HeldJob]:
        """The jobs that this worker holds, those first whose leases end first."""
        ...

    async def list_workers(self) -> list[WorkerRow]: ...
    async def drop_worker(self, worker_id: str) -> None: ...
    async def put_command(self, command: WorkerCommand) -> None: ...
    async def command_of(self, worker: str) -> WorkerCommand | None: ...
    async def commands(self) -> list[WorkerCommand]: ...
    async def add_loss(self, loss: Loss) -> None: ...
    async def losses(self, since: Micros, limit: int) -> list[Loss]: ...
    async def drop_losses(self, before: Micros) -> None: ...

    async def drop_old_workers(self, before: Micros) -> None:
        """Delete workers whose last heartbeat is older, and commands that no worker has read since."""
        ...
