"""Group commit: what is waiting shares the next batch, and nobody waits for ever; no test waits for time to pass."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from detent.core.errors import StoreRefused, StoreUnavailable
from detent.system.batcher import Batcher, TaskBatcher, batch_then_each

pytestmark = pytest.mark.anyio
Done = Callable[[list[Any]], None]


class Writer:
    """Collects the started batches; the test finishes them."""

    def __init__(self) -> None:
        self.started: list[tuple[list[Any], Done]] = []

    def start(self, items: list[Any], done: Done) -> None:
        self.started.append((items, done))

    @property
    def batches(self) -> list[list[Any]]:
        return [items for items, _ in self.started]

    def finish(self, number: int, outcomes: list[Any] | None = None) -> None:
        items, done = self.started[number]
        done([f"wrote {item}" for item in items] if outcomes is None else outcomes)


async def turns(number: int = 3) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_what_arrives_while_a_batch_is_written_shares_the_next() -> None:
    writer = Writer()
    batcher: Batcher[int, str] = Batcher(writer.start, max_size=10)
    calls = [batcher.add(n) for n in range(4)]
    assert writer.batches == [[0]] and not batcher.idle
    writer.finish(0)
    await turns()
    assert writer.batches == [[0], [1, 2, 3]]
    writer.finish(1)
    assert await asyncio.gather(*calls) == ["wrote 0", "wrote 1", "wrote 2", "wrote 3"]
    assert batcher.idle


async def test_calls_of_one_loop_iteration_share_a_batch() -> None:
    writer = Writer()
    batcher: Batcher[str, str] = Batcher(writer.start, max_size=10)
    for item in ("a", "b"):
        batcher.add(item, at_once=False)
    assert writer.batches == []
    await turns(1)
    assert writer.batches == [["a", "b"]]


async def test_a_batch_is_no_larger_than_allowed_and_the_order_is_kept() -> None:
    writer = Writer()
    batcher: Batcher[str, str] = Batcher(writer.start, max_size=5, size=len)
    for item in ("first", "aa", "bb", "cc", "longer than allowed", "dd"):
        batcher.add(item)
    for number in range(4):
        writer.finish(number)
        await turns()
    assert writer.batches == [["first"], ["aa", "bb"], ["cc"], ["longer than allowed"], ["dd"]]


async def test_the_callers_of_a_batch_can_join_the_next() -> None:
    """The next batch begins some loop iterations after the last one: enough for a caller to come back."""
    writer = Writer()
    batcher: Batcher[str, str] = Batcher(writer.start, max_size=10, iterations=4)

    async def caller(name: str) -> None:
        await batcher.add(f"{name}1")
        await turns(2)
        await batcher.add(f"{name}2")

    callers = [asyncio.create_task(caller(name)) for name in "ab"]
    await turns()
    assert writer.batches == [["a1"]]
    writer.finish(0)
    await turns(6)
    assert writer.batches == [["a1"], ["b1", "a2"]]
    writer.finish(1)
    await turns(6)
    writer.finish(2)
    await asyncio.gather(*callers)
    assert writer.batches[2:] == [["b2"]]


async def test_two_batches_in_flight() -> None:
    writer = Writer()
    batcher: Batcher[int, str] = Batcher(writer.start, max_size=10, max_in_flight=2)
    calls = [batcher.add(n) for n in range(4)]
    assert writer.batches == [[0], [1]]
    writer.finish(1)
    await turns()
    assert writer.batches == [[0], [1], [2, 3]]
    writer.finish(2)
    writer.finish(0)
    assert len(await asyncio.gather(*calls)) == 4 and batcher.idle


async def test_each_caller_gets_its_own_error() -> None:
    writer = Writer()
    batcher: Batcher[int, str] = Batcher(writer.start, max_size=10)
    calls = [batcher.add(n, at_once=False) for n in range(3)]
    await turns(1)
    writer.finish(0, ["wrote 0", ValueError("bad"), "wrote 2"])
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [str(answer) for answer in answers] == ["wrote 0", "bad", "wrote 2"]


async def test_a_cancelled_caller_loses_no_item() -> None:
    writer = Writer()
    batcher: Batcher[int, str] = Batcher(writer.start, max_size=10)

    async def call(number: int) -> str:
        return await batcher.add(number)

    calls = [asyncio.create_task(call(n)) for n in range(4)]
    await turns(1)
    calls[0].cancel()
    calls[2].cancel()
    await turns()
    writer.finish(0)
    await turns()
    assert writer.batches == [[0], [1, 2, 3]]
    writer.finish(1)
    assert [await calls[n] for n in (1, 3)] == ["wrote 1", "wrote 3"]
    assert batcher.idle


async def test_an_error_of_the_write_reaches_every_caller_of_the_batch_and_the_next_batch_is_written() -> None:
    async def write(items: list[int]) -> list[int]:
        if 1 in items:
            raise StoreUnavailable("down")
        return items

    batcher: TaskBatcher[int, int] = TaskBatcher(write, max_size=2)
    calls = [batcher.add(n) for n in range(4)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(answer) for answer in answers] == [int, StoreUnavailable, StoreUnavailable, int]
    assert batcher.idle


async def test_a_call_writes_in_its_own_task_while_nothing_else_is_written() -> None:
    gate, batches = asyncio.Event(), list[list[int]]()
    writers: list[asyncio.Task[None] | None] = []

    async def write(items: list[int]) -> list[int | Exception]:
        batches.append(items)
        writers.append(asyncio.current_task())
        await gate.wait()
        return [ValueError("odd") if item == 3 else item for item in items]

    batcher: TaskBatcher[int, int] = TaskBatcher(write, max_size=10)
    calls = [asyncio.create_task(batcher.write(n)) for n in range(4)]
    await turns()
    assert writers == [calls[0]] and not batcher.idle
    gate.set()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert batches == [[0], [1, 2, 3]] and answers[:3] == [0, 1, 2] and isinstance(answers[3], ValueError)
    gate.clear()
    cancelled = asyncio.create_task(batcher.write(4))
    await turns()
    waiting = asyncio.create_task(batcher.write(5))
    await turns()
    cancelled.cancel()
    gate.set()
    assert await waiting == 5 and cancelled.cancelled() and batcher.idle


async def test_a_closed_batcher_leaves_nobody_waiting() -> None:
    gate = asyncio.Event()

    async def write(items: list[int]) -> list[int]:
        await gate.wait()
        return items

    batcher: TaskBatcher[int, int] = TaskBatcher(write, max_size=10)
    calls = [batcher.add(n) for n in range(3)]
    await batcher.close()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 3
    assert batcher.idle


async def outcomes_of(items: Sequence[int], bad: set[int], error: type[Exception]) -> tuple[list[Any], list[int]]:
    sizes = []

    async def run(batch: Sequence[int]) -> list[int]:
        sizes.append(len(batch))
        if bad & set(batch):
            raise error("bad")
        return [item * 10 for item in batch]

    outcomes = await batch_then_each(items, run, lambda error: isinstance(error, StoreRefused))
    return [outcome if isinstance(outcome, int) else type(outcome) for outcome in outcomes], sizes


async def test_a_refused_batch_runs_item_by_item() -> None:
    assert await outcomes_of([1, 2, 3], set(), StoreRefused) == ([10, 20, 30], [3])
    assert await outcomes_of([1, 2, 3], {2}, StoreRefused) == ([10, StoreRefused, 30], [3, 1, 1, 1])
    assert await outcomes_of([2], {2}, StoreRefused) == ([StoreRefused], [1])


async def test_other_errors_end_the_batch() -> None:
    with pytest.raises(StoreUnavailable):
        await outcomes_of([1, 2, 3], {2}, StoreUnavailable)
