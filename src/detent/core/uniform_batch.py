"""Many new jobs that differ in little: one change, and what is each job's own."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, overload

from .job import Change, Event, Job

_JOB = [field.name for field in fields(Job)]
_values = attrgetter(*_JOB)
_event_values = attrgetter(*(field.name for field in fields(Event)))


class UniformBatch(Sequence[Change]):
    """Reads as the changes themselves; each is made when it is asked for, and a store may ask for none of them."""

    def __init__(self, first: Change, own: Mapping[str, list[Any]]) -> None:
        """own: columns of the job, with the values of all of them; whatever bears the first one's id bears theirs."""
        self.first = first
        named = (name for name, value in zip(_JOB, _values(first.after), strict=True) if value == first.after.id)
        self.own = {**dict.fromkeys(named, own["id"]), **own}

    @property
    def ids(self) -> list[str]:
        return self.own["id"]

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, at: int) -> Change: ...

    @overload
    def __getitem__(self, at: slice) -> list[Change]: ...

    def __getitem__(self, at: int | slice) -> Change | list[Change]:
        if isinstance(at, slice):
            return [self[n] for n in range(*at.indices(len(self)))]
        values = dict(zip(_JOB, _values(self.first.after), strict=True))
        job = Job(**values | {name: column[at] for name, column in self.own.items()})
        events = [Event(job.id, *_event_values(event)[1:]) for event in self.first.events]
        return Change(None, job, events, outbox_item=self.first.outbox_item)
