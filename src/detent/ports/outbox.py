"""The outbox: stream messages that wait in the database until the orchestrator has published them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from detent.core.job import DeadLetter, Micros


class OutboxItem(NamedTuple):
    """One row of the outbox: the kind of message to publish about a job, as of that version."""

    job_id: str
    kind: str
    version: int
    due_at: Micros


class OutboxTx(Protocol):
    """The outbox and stream tasks within a transaction; used by the orchestrator."""

    async def put_outbox_items(self, outbox_items: Sequence[OutboxItem]) -> None: ...

    async def take_outbox_items(self, limit: int, hold: Micros) -> list[OutboxItem]:
        """Due items, hidden from other orchestrators for `hold`."""
        ...

    async def drop_outbox_items(self, outbox_items: Sequence[OutboxItem], stream: str, run_id: str) -> int:
        """Delete items that were published to the server process `run_id`; returns how many.

        An item that was put again since it was taken stays. None is deleted if the stored epoch of the stream names
        another process: the messages may be on a former primary that nobody reads.
        """
        ...

    async def count_outbox_items(self) -> int: ...

    async def claimable(self, contracts: Sequence[str]) -> list[tuple[str, int, int]]:
        """(id, version, failures) of every claimable job of these contracts."""
        ...

    async def open_dead_letters(self, contracts: Sequence[str]) -> list[tuple[str, int]]:
        """(job id, version) of the open dead letters."""
        ...

    async def dead_letters_of(self, ids: Sequence[str]) -> list[DeadLetter]: ...

    async def expire_leases(self, held: Mapping[str, str]) -> None:
        """End these leases {id: token} now, because their holder is lost: another worker may reclaim the jobs."""
        ...

    async def note_heartbeats(self, held: Mapping[str, str], names: Mapping[str, str], older_than: Micros) -> None:
        """Write a note {contract: name} for each of these leases {id: token} that is older than `older_than`."""
        ...

    async def epoch(self, name: str) -> str | None: ...

    async def put_epoch(self, name: str, epoch: str, expected: str | None) -> bool:
        """Compare and set; False if the stored epoch is not the expected one."""
        ...
