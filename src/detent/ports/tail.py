"""Positions in the tail of all events: opaque text outside, ordered inside; nothing appears below one that was read."""

import re
from dataclasses import dataclass
from typing import NamedTuple

from detent.core.errors import InvalidInput
from detent.core.job import Event, Job

_TEXT = re.compile(r"([0-9]{1,19})(?:\.([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.([0-9]{1,10}))?")
_LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
_LAST_SEQ = 2**31 - 1


class Position(NamedTuple):
    """The commit's number; within one commit the job and the event's number, where a commit has many."""

    commit: int
    job_id: str = ""
    seq: int = 0

    def __str__(self) -> str:
        return f"{self.commit}.{self.job_id}.{self.seq}" if self.job_id else str(self.commit)


START = Position(0)


def through(commit: int) -> Position:
    """Behind everything a commit wrote."""
    return Position(commit, _LAST_ID, _LAST_SEQ)


def position_from(text: str) -> Position:
    found = _TEXT.fullmatch(text)
    if found is None or int(found[1]) >= 2**63:
        raise InvalidInput("this is no position; pass on the last id the stream gave you", code="POSITION_INVALID")
    return Position(int(found[1]), found[2] or "", min(int(found[3] or 0), _LAST_SEQ))


@dataclass(frozen=True, slots=True)
class TailEvent:
    """One event of the tail with the job it belongs to."""

    position: Position
    event: Event
    job: Job
