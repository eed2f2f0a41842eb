"""What a planted bug is: a class with one deliberate defect, in place of a class of the product."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from detent.core.job import Change, Micros
from detent.stores.sqlite.claim import SqliteTx
from detent.worker.state import WorkerState

from .controlled_store import DEFAULT_HOOKS, Hooks

T = TypeVar("T", bound=SqliteTx | WorkerState)


@dataclass(frozen=True, slots=True)
class Bug:
    """One planted bug: its name, a description, and the classes it replaces."""

    name: str
    description: str
    hooks: Hooks


class PlantedBugs(dict[str, Bug]):
    """Bugs by name. Called, it returns a decorator that adds a subclass of SqliteTx or WorkerState that has the bug."""

    def __call__(self, name: str, description: str) -> Callable[[type[T]], type[T]]:
        def register(kind: type[T]) -> type[T]:
            part = "state" if issubclass(kind, WorkerState) else "transaction"
            self[name] = Bug(name, description, replace(DEFAULT_HOOKS, **{part: kind}))  # type: ignore[arg-type]
            return kind

        return register


def with_columns(change: Change, **columns: object) -> Change:
    return replace(change, after=replace(change.after, **columns))  # type: ignore[arg-type]


def with_due(change: Change, due_at: Micros) -> Change:
    """The change with another due time, in its row and in its events."""
    events = [
        replace(event, data={**(event.data or {}), "due_at": due_at}) if "due_at" in (event.data or {}) else event
        for event in change.events
    ]
    at = None if change.after.next_retry_at is None else due_at
    return with_columns(replace(change, events=events), due_at=due_at, next_retry_at=at)


class AltersChanges(SqliteTx):
    """Writes each change as `alter` returns it."""

    def alter(self, change: Change) -> Change:
        return change

    async def apply(self, changes: Sequence[Change]) -> None:
        await super().apply([self.alter(change) for change in changes])
