"""Group commit on Postgres: inserts and step records that arrive while another is in flight share one statement."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import asyncpg

from detent.core.errors import StoreRefused
from detent.core.job import Change, Micros, Step

from .connections import drop
from .dialect import Query
from .errors import TIES, translate
from .insert import insert

_MAX_ROWS = 1_000
_TURNS = 4
"""Turns of the loop before a shared commit: on a busy one callers on their way come along, an idle one has none."""
Batch = tuple[Sequence[Change], Sequence[int]]


class InsertBatcher:
    """A connection for inserting. Callers that come while one is under way go into the next: one commit for all."""

    def __init__(self, connect: Callable[[], Awaitable[Any]]) -> None:
        self._connect = connect
        self._connection: Any = None
        self._waiting: list[tuple[Batch, asyncio.Future[set[str]]]] = []
        self._busy = False
        self._task: asyncio.Task[None] | None = None

    async def insert(self, changes: Sequence[Change], lanes: Sequence[int]) -> set[str]:
        if self._busy:
            answer: asyncio.Future[set[str]] = asyncio.get_running_loop().create_future()
            self._waiting.append(((changes, lanes), answer))
            return await answer
        self._busy = True
        try:
            return await self._write(changes, lanes)
        finally:
            self._next()

    def _next(self) -> None:
        if self._waiting:
            self._task = asyncio.create_task(self._serve())
        else:
            self._busy = False

    async def _serve(self) -> None:
        """Everybody who waits, up to a bound. One whose rows the database refuses must not take the others along."""
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        taken: list[tuple[Batch, asyncio.Future[set[str]]]] = []
        rows = 0
        while self._waiting and (not taken or rows + len(self._waiting[0][0][0]) <= _MAX_ROWS):
            taken.append(self._waiting.pop(0))
            rows += len(taken[-1][0][0])
        try:
            try:
                present = await self._write(
                    [change for (changes, _), _ in taken for change in changes],
                    [lane for (_, lanes), _ in taken for lane in lanes],
                )
                for (changes, _), answer in taken:
                    _tell(answer, {change.after.id for change in changes} & present)
            except StoreRefused:
                for batch, answer in taken:
                    await self._alone(batch, answer)
        except BaseException as error:
            for _, answer in taken:
                _tell(answer, error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._next()

    async def _alone(self, batch: Batch, answer: "asyncio.Future[set[str]]") -> None:
        try:
            _tell(answer, await self._write(*batch))
        except Exception as error:
            _tell(answer, error)

    async def _write(self, changes: Sequence[Change], lanes: Sequence[int]) -> set[str]:
        try:
            if self._connection is None or self._connection.is_closed():
                self._connection = await self._connect()
            return await insert(self._connection, changes, lanes)
        except asyncpg.PostgresError as error:
            raise translate(error) from error
        except BaseException as error:
            drop(self._connection)
            raise translate(error) from error

    async def close(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        drop(self._connection)


def _tell(answer: "asyncio.Future[set[str]]", said: "set[str] | BaseException") -> None:
    if answer.done():  # its caller has gone
        return
    if isinstance(said, BaseException):
        answer.set_exception(said)
    else:
        answer.set_result(said)


_FLIGHTS = 2
_MAX_STEPS = 200
_REPEATS = 10
Waiting = tuple[Step, str, "asyncio.Future[bool]"]


class StepBatcher:
    """One statement and one commit for as many steps as there are; nobody waits for company."""

    def __init__(self, acquired: Callable[[], Any], query: Query, now: Callable[[], Micros]) -> None:
        self._acquired = acquired
        self._query = query
        self._now = now
        self._waiting: list[Waiting] = []
        self._flights: set[asyncio.Task[None]] = set()

    async def record(self, step: Step, token: str) -> bool:
        """False: the token does not hold the row, the step is finished already, or somebody else held the row."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((step, token, answer))
        if len(self._flights) < _FLIGHTS:
            flight = asyncio.create_task(self._fly())
            self._flights.add(flight)
            flight.add_done_callback(self._flights.discard)
        return await answer

    async def _fly(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:_MAX_STEPS], self._waiting[_MAX_STEPS:]
            try:
                await self._deliver(batch)
            except BaseException as error:
                for _, _, answer in batch:
                    if not answer.done():
                        answer.set_exception(translate(error))
                if not isinstance(error, Exception):
                    raise

    async def _deliver(self, batch: Sequence[Waiting]) -> None:
        try:
            recorded = await self._send(batch)
        except Exception as error:
            if len(batch) == 1 or not isinstance(translate(error), StoreRefused):
                raise
            for one in batch:  # one value the server cannot hold must not cost the others theirs
                try:
                    await self._deliver([one])
                except Exception as its:
                    one[2].set_exception(translate(its))
            return
        for step, _, answer in batch:
            if not answer.done():
                answer.set_result((step.job_id, step.name) in recorded)

    async def _send(self, batch: Sequence[Waiting]) -> set[tuple[str, str]]:
        steps = [step for step, _, _ in batch]
        values = {
            "now": self._now(),
            "ids": [step.job_id for step in steps],
            "tokens": [token for _, token, _ in batch],
            "names": [step.name for step in steps],
            "digests": [step.digest for step in steps],
            "results": [step.result for step in steps],
            "finished": [str(step.finished) for step in steps],
        }
        for attempt in range(_REPEATS):
            try:
                async with self._acquired() as connection:
                    rows = await connection.fetch(self._query.text, *(values[name] for name in self._query.names))
                return {(row[0], row[1]) for row in rows}
            except TIES as tie:
                lost = tie
                await asyncio.sleep(0.001 * attempt)
        raise lost
