"""The base of every part of a transaction: its start time, the lane cache, and named queries that a store runs."""

from typing import Any

from detent.core.job import Micros

from .lanes import LaneCache


class NamedQueries:
    """A subclass per store runs the named queries; the parts only pass names and values."""

    def __init__(self, now: Micros, lane_cache: LaneCache) -> None:
        self.now = now
        self.lane_cache = lane_cache

    async def query(self, name: str, where: str | None = None, /, **values: Any) -> list[tuple[Any, ...]]:
        """The rows of a named query; `where` replaces its {where} placeholder."""
        raise NameError(name)

    async def change(self, name: str, /, **values: Any) -> int:
        """Run a named statement; returns the number of rows it changed."""
        raise NameError(name)
