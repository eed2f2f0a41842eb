"""A batch of new jobs that differ in few columns: one change as template, and the columns that differ."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, overload

from .job import Change, Event, Job

_JOB_FIELDS = [field.name for field in fields(Job)]
_values = attrgetter(*_JOB_FIELDS)
_event_values = attrgetter(*(field.name for field in fields(Event)))


class UniformBatch(Sequence[Change]):
    """A sequence of changes, each built on access. A store may read the template and the columns instead."""

    def __init__(self, first: Change, columns: Mapping[str, list[Any]]) -> None:
        """columns: one list per differing column. Columns that hold the id in `first` hold each job's own id."""
        self.first = first
        id_columns = (
            name for name, value in zip(_JOB_FIELDS, _values(first.after), strict=True) if value == first.after.id
        )
        self.columns = {**dict.fromkeys(id_columns, columns["id"]), **columns}

    @property
    def ids(self) -> list[str]:
        return self.columns["id"]

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, at: int) -> Change: ...

    @overload
    def __getitem__(self, at: slice) -> list[Change]: ...

    def __getitem__(self, at: int | slice) -> Change | list[Change]:
        if isinstance(at, slice):
            return [self[n] for n in range(*at.indices(len(self)))]
        values = dict(zip(_JOB_FIELDS, _values(self.first.after), strict=True))
        job = Job(**values | {name: column[at] for name, column in self.columns.items()})
        events = [Event(job.id, *_event_values(event)[1:]) for event in self.first.events]
        first = self.first
        return Change(None, job, events, outbox_item=first.outbox_item, outbox_hold=first.outbox_hold)
