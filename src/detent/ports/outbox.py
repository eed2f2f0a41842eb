"""The outbox: stream messages that wait in the database until the orchestrator has published them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from detent.core.job import DeadLetter, Micros


class OutboxItem(NamedTuple):
    """One row of the outbox: what is to be told of a job, as of that version."""

    job_id: str
    kind: str
    version: int
    due_at: Micros


class OutboxTx(Protocol):
    """The part of a transaction the orchestrator works with."""

    async def put_outbox_items(self, outbox_items: Sequence[OutboxItem]) -> None: ...

    async def take_outbox_items(self, limit: int, hold: Micros) -> list[OutboxItem]:
        """What is due, hidden from other orchestrators for so long."""
        ...

    async def drop_outbox_items(self, outbox_items: Sequence[OutboxItem]) -> None:
        """These were told; a newer version of the same stays."""
        ...

    async def count_outbox_items(self) -> int: ...

    async def claimable(self, contracts: Sequence[str]) -> list[tuple[str, int, int]]:
        """(id, version, failures) of every job of these contracts that waits for a worker."""
        ...

    async def open_dead_letters(self, contracts: Sequence[str]) -> list[tuple[str, int]]:
        """(job id, version) of the dead letters nobody has dealt with."""
        ...

    async def dead_letters_of(self, ids: Sequence[str]) -> list[DeadLetter]: ...

    async def let_go(self, held: Mapping[str, str]) -> None:
        """Leases {id: token} whose holder is dead end now, so that another may take over."""
        ...

    async def note_heartbeats(self, held: Mapping[str, str], names: Mapping[str, str], older_than: Micros) -> None:
        """A note {contract: name} beside each job {id: token} that has been held for so long."""
        ...

    async def epoch(self, name: str) -> str | None: ...

    async def put_epoch(self, name: str, epoch: str, known: str | None) -> bool:
        """False: it was no longer the known one."""
        ...
