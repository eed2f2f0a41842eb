"""The base of every part of a transaction: its start time, the lane cache, and named queries that a store runs."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from detent.core.job import Job, Micros

from .lanes import LaneCache
from .rows import job_from

T = TypeVar("T")
Row = tuple[Any, ...]


class NamedQueries(ABC):
    """A subclass per store runs the named queries; the parts only pass names and values."""

    contains = "instr"
    """SQL function (text, substring) -> position of the substring, 0 if absent."""
    namespace = "detent_"
    """What stands before the name of a table."""

    def __init__(self, now: Micros, lane_cache: LaneCache) -> None:
        self.now = now
        self.lane_cache = lane_cache

    @abstractmethod
    async def query(self, name: str, where: str | None = None, /, **values: Any) -> list[Row]:
        """The rows of a named query; `where` replaces its {where} placeholder."""

    @abstractmethod
    async def change(self, name: str, /, **values: Any) -> int:
        """Run a named statement; returns the number of rows it changed."""

    async def fetch(self, kind: Callable[..., T], name: str, where: str | None = None, /, **values: Any) -> list[T]:
        """The rows of a named query, each as a `kind`."""
        return [kind(*row) for row in await self.query(name, where, **values)]

    async def fetch_one(self, kind: Callable[..., T], name: str, /, **values: Any) -> T | None:
        return next(iter(await self.fetch(kind, name, **values)), None)

    async def fetch_jobs(self, name: str, where: str | None = None, /, **values: Any) -> list[Job]:
        return [job_from(row) for row in await self.query(name, where, **values)]

    async def matching(self, name: str, tests: Mapping[str, str], /, **values: Any) -> list[Row]:
        """The rows that pass the tests, which are SQL; a test whose value is None is left out.

        A tuple of names is passed as one text of lines.
        """
        absent = [test for test in tests if values[test] is None]
        where = " AND ".join(sql for test, sql in tests.items() if test not in absent) or "true"
        given = {
            name: "\n".join(("", *value, "")) if isinstance(value, tuple) else value
            for name, value in values.items()
            if name not in absent
        }
        return await self.query(name, where.replace("{contains}", self.contains), **given)

    async def number(self, name: str, where: str | None = None, /, **values: Any) -> int:
        """The first column of the only row of a named query."""
        value: int = (await self.query(name, where, **values))[0][0]
        return value


REACH_TESTS = {
    f"{column}s": f"{{contains}}(:{column}s, '\n' || {column} || '\n') > 0" for column in ("queue", "job_type")
}
"""Tests of jobs, dead letters and schedules for `Filter.queues` and `Filter.job_types`; names have no line breaks."""
