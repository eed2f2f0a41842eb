"""The parts of a transaction that publish: the outbox and leases of the stream orchestrator, and the tail of all events
in commit order (ADR 0007); alike in every store."""

import json
from collections.abc import Iterable, Mapping, Sequence

from detent.core.job import DEAD_LETTER, Change, Micros
from detent.ports.stream import ClaimableJob, OutboxItem
from detent.ports.tail import Position, TailEvent

from .named_queries import NamedQueries
from .rows import EVENT_COLUMNS, JOB_COLUMNS, event_from, job_from

_REPLACED = {"payload": "'{}'", "result": "NULL"}
"""Payload and result may be large, and readers of the tail do not need them."""
TAIL_COLUMNS = ", ".join(
    [f"e.{name}" for name in EVENT_COLUMNS] + [_REPLACED.get(name, f"j.{name}") for name in JOB_COLUMNS]
)
_EVENT_WIDTH = len(EVENT_COLUMNS)


class OutboxQueries(NamedQueries):
    """Outbox items and what else the orchestrator needs."""

    async def write_outbox(self, changes: Iterable[Change]) -> None:
        """Insert the outbox items of these changes, in the transaction that applies them."""
        outbox_items = [_outbox_item_of(change) for change in changes if change.outbox_item]
        if outbox_items:
            await self.put_outbox_items(outbox_items)

    async def put_outbox_items(self, outbox_items: Sequence[OutboxItem]) -> None:
        await self.change("put_outbox_items", outbox_items=json.dumps(sorted(outbox_items)))

    async def take_outbox_items(self, limit: int, hold: Micros) -> list[OutboxItem]:
        return sorted(await self.fetch(OutboxItem, "take_outbox_items", limit=limit, hold=hold, now=self.now))

    async def drop_outbox_items(self, outbox_items: Sequence[OutboxItem], stream: str, run_id: str) -> int:
        values = {"outbox_items": json.dumps(sorted(outbox_items)), "stream": stream, "run_id": run_id}
        return await self.change("drop_outbox_items", **values)

    async def count_outbox_items(self) -> int:
        return await self.number("count_outbox_items")

    async def claimable(self, contracts: Sequence[str]) -> list[ClaimableJob]:
        return await self.fetch(ClaimableJob, "claimable", contracts=json.dumps(list(contracts)), now=self.now)

    async def expire_leases(self, held: Mapping[str, str]) -> None:
        await self.change("expire_leases", held=json.dumps(dict(sorted(held.items()))), now=self.now)

    async def note_heartbeats(self, held: Mapping[str, str], names: Mapping[str, str], older_than: Micros) -> None:
        values = {"held": json.dumps(dict(held)), "names": json.dumps(dict(names))}
        await self.change("note_heartbeats", **values, older_than=older_than, now=self.now)

    async def epoch(self, name: str) -> str | None:
        rows = await self.query("epoch", name=name)
        return rows[0][0] if rows else None

    async def put_epoch(self, name: str, epoch: str, expected: str | None) -> bool:
        return await self.change("put_epoch", name=name, epoch=epoch, known=expected, now=self.now) > 0


def _outbox_item_of(change: Change) -> OutboxItem:
    after = change.after
    assert change.outbox_item is not None
    due = after.updated_at if change.outbox_item == DEAD_LETTER or after.due_at is None else after.due_at
    return OutboxItem(after.id, change.outbox_item, after.version, due + change.outbox_hold)


class TailQueries(NamedQueries):
    """For stores with one writer: event numbers are in commit order, so all events above the last number are new."""

    async def tail(self, after: Position, limit: int) -> tuple[list[TailEvent], Position]:
        rows = await self.query("tail", after=after.commit, limit=limit)
        events = [_tail_event(Position(row[0]), row[1:]) for row in rows]
        return events, events[-1].position if events else after

    async def tail_end(self) -> Position:
        return Position(await self.number("tail_end"))


def _tail_event(position: Position, row: tuple[object, ...]) -> TailEvent:
    return TailEvent(position, event_from(row[:_EVENT_WIDTH]), job_from(row[_EVENT_WIDTH:]))
