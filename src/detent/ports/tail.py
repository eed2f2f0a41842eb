"""Positions in the tail of all events in commit order. No event appears later below a position that was read."""

import re
from dataclasses import dataclass
from typing import NamedTuple

from detent.core.errors import InvalidInput
from detent.core.job import Event, Job, Progress

_TEXT = re.compile(r"([0-9]{1,19})(?:\.([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.([0-9]{1,10}))?")
_LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
_LAST_SEQ = 2**31 - 1


class Position(NamedTuple):
    """The number of the commit; within a commit of several events, also job id and event number."""

    commit: int
    job_id: str = ""
    seq: int = 0

    def __str__(self) -> str:
        return f"{self.commit}.{self.job_id}.{self.seq}" if self.job_id else str(self.commit)


START = Position(0)


def end_of_commit(commit: int) -> Position:
    """The position after all events of a commit."""
    return Position(commit, _LAST_ID, _LAST_SEQ)


def position_from(text: str) -> Position:
    match = _TEXT.fullmatch(text)
    if match is None or int(match[1]) >= 2**63:
        raise InvalidInput("not a position; send the last event id you received", code="POSITION_INVALID")
    return Position(int(match[1]), match[2] or "", min(int(match[3] or 0), _LAST_SEQ))


def position_within(text: str, end: Position) -> Position:
    """Raises InvalidInput also for a position after the end of the log: its reader would wait and miss events."""
    position = position_from(text)
    if position.commit > end.commit:
        raise InvalidInput(f"the log ends before {text}; send an id that you received", code="POSITION_INVALID")
    return position


@dataclass(frozen=True, slots=True)
class TailEvent:
    """One event of the tail with the job it belongs to."""

    position: Position
    event: Event
    job: Job


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The last progress of a job, with the names that streams are filtered by.

    is_running: whether the execution that reported it still runs.
    """

    progress: Progress
    job_type: str
    contract: str
    queue: str
    tenant_id: str
    is_running: bool
