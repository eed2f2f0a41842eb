"""The part of a transaction that reads all events in commit order, from a position on; see ADR 0007."""

from detent.ports.tail import Position, TailEvent

from .named_queries import NamedQueries
from .rows import EVENT_COLUMNS, JOB_COLUMNS, event_from, job_from

_REPLACED = {"payload": "'{}'", "result": "NULL"}
"""Payload and result may be large, and readers of the tail do not need them."""
TAIL_COLUMNS = ", ".join(
    [f"e.{name}" for name in EVENT_COLUMNS] + [_REPLACED.get(name, f"j.{name}") for name in JOB_COLUMNS]
)
_EVENT_WIDTH = len(EVENT_COLUMNS)


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
