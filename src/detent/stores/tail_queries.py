"""The part of a transaction that reads all events in commit order, from a position on; see ADR 0007."""

from detent.ports.tail import Position, TailEvent

from .named_queries import NamedQueries
from .rows import EVENT_COLUMNS, JOB_COLUMNS, event_from, job_from

_LEFT_OUT = {"payload": "'{}'", "result": "NULL"}
"""What a job carries is not part of its events, and may be large."""
TAIL_COLUMNS = ", ".join(
    [f"e.{name}" for name in EVENT_COLUMNS] + [_LEFT_OUT.get(name, f"j.{name}") for name in JOB_COLUMNS]
)
_EVENT = len(EVENT_COLUMNS)


class TailQueries(NamedQueries):
    """One writer at a time numbers its events in the order of commits: what is above the last number is news."""

    async def tail(self, after: Position, limit: int) -> tuple[list[TailEvent], Position]:
        """The next events, and where to go on."""
        rows = await self.query("tail", after=after.commit, limit=limit)
        told = [_told(Position(row[0]), row[1:]) for row in rows]
        return told, told[-1].position if told else after

    async def tail_end(self) -> Position:
        """Behind everything that has been committed."""
        return Position((await self.query("tail_end"))[0][0])


def _told(position: Position, row: tuple[object, ...]) -> TailEvent:
    return TailEvent(position, event_from(row[:_EVENT]), job_from(row[_EVENT:]))
