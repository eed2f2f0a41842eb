"""The base of every part of a transaction: its start time, the lane cache, and named queries that a store runs."""

from abc import ABC, abstractmethod
from typing import Any

from detent.core.job import Micros

from .lanes import LaneCache

Row = tuple[Any, ...]


class NamedQueries(ABC):
    """A subclass per store runs the named queries; the parts only pass names and values."""

    def __init__(self, now: Micros, lane_cache: LaneCache) -> None:
        self.now = now
        self.lane_cache = lane_cache
        self.parents_to_process: set[str] = set()
        """Jobs whose child events must be processed after the commit (wake the parent, cancel its children)."""

    @abstractmethod
    async def query(self, name: str, where: str | None = None, /, **values: Any) -> list[Row]:
        """The rows of a named query; `where` replaces its {where} placeholder."""

    @abstractmethod
    async def change(self, name: str, /, **values: Any) -> int:
        """Run a named statement; returns the number of rows it changed."""

    async def number(self, name: str, where: str | None = None, /, **values: Any) -> int:
        """The first column of the only row of a named query."""
        value: int = (await self.query(name, where, **values))[0][0]
        return value
