"""Ranges of the log are read from the stored position on, and added by one process; with a store in memory."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from detent.engine.metrics.log_follower import LogFollower
from detent.ports.metrics import LogPosition

pytestmark = pytest.mark.anyio
FIRST_RANGE = 4_096


class Log:
    """A log of numbered entries and the stored position: store, transaction and engine in one."""

    def __init__(self, end: int) -> None:
        self.store = self.log_positions = self
        self.end = end
        self.position, self.version = 0, 0
        self.ranges: list[tuple[int, int]] = []
        self.added: list[tuple[int, int]] = []

    async def read(self, act: Callable[[Any], Awaitable[Any]]) -> Any:
        return await act(self)

    write = read

    async def log_position(self, name: str) -> LogPosition:
        assert name == "mine"
        return LogPosition(self.position, self.version)

    async def log_end(self, log: str) -> int:
        assert log == "events"
        return self.end

    async def advance_log(self, name: str, since: LogPosition, until: int) -> bool:
        if since != await self.log_position(name):
            return False
        self.position = until
        return True

    def follower(self, *, target: int, entries_per_number: float = 1.0) -> LogFollower[tuple[int, int]]:
        async def read(_tx: Any, *part: int) -> tuple[int, tuple[int, int]]:
            self.ranges.append(part)
            return int((part[1] - part[0]) * entries_per_number), part

        async def add(_tx: Any, part: tuple[int, int]) -> None:
            self.added.append(part)

        engine: Any = self
        return LogFollower(engine, "mine", "events", read, add, target_entries=target)


def sizes(ranges: list[tuple[int, int]]) -> list[int]:
    return [until - position for position, until in ranges]


async def test_ranges_follow_one_another_to_the_end() -> None:
    log = Log(3 * FIRST_RANGE - 1)
    follower = log.follower(target=FIRST_RANGE)
    assert not await follower.catch_up(2), "the end is not reached"
    assert await follower.catch_up(9) and log.position == log.end
    assert log.added == log.ranges == [(0, 4_096), (4_096, 8_192), (8_192, 12_287)]
    assert await follower.catch_up(9) and len(log.ranges) == 3, "nothing new is not read"
    log.end += 5
    assert await follower.catch_up(1) and log.ranges[3:] == [(12_287, 12_292)]


@pytest.mark.parametrize(
    "target, expected", [(4 * FIRST_RANGE, [4_096, 16_384, 16_384, 16_384]), (1_000, [4_096, 2_048, 1_024, 1_024])]
)
async def test_the_size_of_a_range_is_adapted_to_the_number_of_entries(target: int, expected: list[int]) -> None:
    log = Log(1 << 20)
    await log.follower(target=target).catch_up(4)
    assert sizes(log.ranges) == expected


async def test_an_empty_part_of_the_log_is_passed_quickly() -> None:
    log = Log(1 << 30)
    assert await log.follower(target=100, entries_per_number=0.0).catch_up(12)


async def test_of_two_processes_that_read_the_same_range_one_adds_it() -> None:
    log = Log(100)
    first, second = log.follower(target=100), log.follower(target=100)
    since, until, summed, _ = await second._read_range(log)  # type: ignore[arg-type]
    assert summed is not None
    assert await first.catch_up(1)
    await second._add_range(since, until, summed[1], log)  # type: ignore[arg-type]
    assert log.added == [(0, 100)]


async def test_what_was_counted_while_it_was_read_is_read_again() -> None:
    """Pruning raises the version when it has counted entries ahead of the position."""
    log = Log(100)
    follower = log.follower(target=100)
    since, until, summed, _ = await follower._read_range(log)  # type: ignore[arg-type]
    assert summed is not None
    log.version += 1
    await follower._add_range(since, until, summed[1], log)  # type: ignore[arg-type]
    assert log.added == [] and log.position == 0
    assert await follower.catch_up(1) and log.added == [(0, 100)]


async def test_a_position_beyond_the_end_stays() -> None:
    log = Log(100)
    log.position = 200
    assert await log.follower(target=100).catch_up(1)
    assert log.position == 200 and log.ranges == []
