"""Group commit on Postgres: inserts and step records that arrive while another is in flight share one statement."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from detent.core.errors import StoreRefused
from detent.core.job import Change, Micros, Step

from .connections import LOST, terminate
from .dialect import Query
from .errors import repeat_on_conflict, translate
from .insert import insert

_MAX_JOBS = 1_000
_LOOP_ITERATIONS = 4
"""Event loop iterations to wait before a batch is written. On a busy loop more callers join it; an idle loop passes
through them at once."""
InsertCall = tuple[Sequence[Change], Sequence[int]]


class InsertBatcher:
    """One connection for inserts. Calls that arrive while an insert is in flight share the next statement."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Any]],
        single_statement: Callable[[Any], Any],
        on_lost: Callable[[], None],
    ) -> None:
        self._connect = connect
        self._on_lost = on_lost
        self._single_statement = single_statement
        self._connection: Any = None
        self._waiting: list[tuple[InsertCall, asyncio.Future[set[str]]]] = []
        self._busy = False
        self._task: asyncio.Task[None] | None = None

    async def insert(self, changes: Sequence[Change], lanes: Sequence[int]) -> set[str]:
        if self._busy:
            future: asyncio.Future[set[str]] = asyncio.get_running_loop().create_future()
            self._waiting.append(((changes, lanes), future))
            return await future
        self._busy = True
        try:
            return await self._write(changes, lanes)
        finally:
            self._start_next()

    def _start_next(self) -> None:
        if self._waiting:
            self._task = asyncio.create_task(self._write_waiting())
        else:
            self._busy = False

    async def _write_waiting(self) -> None:
        """Write the waiting calls as one batch of at most 1000 jobs; if the database refuses a row, each call alone."""
        for _ in range(_LOOP_ITERATIONS):
            await asyncio.sleep(0)
        batch: list[tuple[InsertCall, asyncio.Future[set[str]]]] = []
        rows = 0
        while self._waiting and (not batch or rows + len(self._waiting[0][0][0]) <= _MAX_JOBS):
            batch.append(self._waiting.pop(0))
            rows += len(batch[-1][0][0])
        try:
            try:
                present = await self._write(
                    [change for (changes, _), _ in batch for change in changes],
                    [lane for (_, lanes), _ in batch for lane in lanes],
                )
                for (changes, _), future in batch:
                    _set_outcome(future, {change.after.id for change in changes} & present)
            except StoreRefused:
                for call, future in batch:
                    await self._write_alone(call, future)
        except BaseException as error:
            for _, future in batch:
                _set_outcome(future, error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._start_next()

    async def _write_alone(self, call: InsertCall, future: "asyncio.Future[set[str]]") -> None:
        try:
            _set_outcome(future, await self._write(*call))
        except Exception as error:
            _set_outcome(future, error)

    async def _write(self, changes: Sequence[Change], lanes: Sequence[int]) -> set[str]:
        try:
            if self._connection is None or self._connection.is_closed():
                self._connection = await self._connect()
            return await repeat_on_conflict(lambda: self._insert(changes, lanes))
        except LOST as error:
            terminate(self._connection)
            if not isinstance(error, asyncio.CancelledError):
                self._on_lost()
            raise translate(error) from error
        except Exception as error:
            raise translate(error) from error

    async def _insert(self, changes: Sequence[Change], lanes: Sequence[int]) -> set[str]:
        async with self._single_statement(self._connection):
            return await insert(self._connection, changes, lanes)

    def terminate_idle(self) -> None:
        if not self._busy:
            terminate(self._connection)

    async def close(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        terminate(self._connection)


def _set_outcome(future: "asyncio.Future[set[str]]", outcome: "set[str] | BaseException") -> None:
    if future.done():  # the caller was cancelled
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


_MAX_IN_FLIGHT = 2
_MAX_STEPS = 200
WaitingStep = tuple[Step, str, "asyncio.Future[bool]"]


class StepBatcher:
    """Batches step records that arrive while two other batches are in flight; adds no delay."""

    def __init__(
        self,
        acquired: Callable[[], Any],
        single_statement: Callable[[Any], Any],
        query: Query,
        now: Callable[[], Micros],
    ) -> None:
        self._acquired = acquired
        self._single_statement = single_statement
        self._query = query
        self._now = now
        self._waiting: list[WaitingStep] = []
        self._in_flight: set[asyncio.Task[None]] = set()

    async def record(self, step: Step, token: str) -> bool:
        """False: the token does not hold the job, the step is already finished, or the row is locked."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((step, token, future))
        if len(self._in_flight) < _MAX_IN_FLIGHT:
            task = asyncio.create_task(self._send_waiting())
            self._in_flight.add(task)
            task.add_done_callback(self._in_flight.discard)
        return await future

    async def _send_waiting(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:_MAX_STEPS], self._waiting[_MAX_STEPS:]
            try:
                await self._record(batch)
            except BaseException as error:
                for _, _, future in batch:
                    if not future.done():
                        future.set_exception(translate(error))
                if not isinstance(error, Exception):
                    raise

    async def _record(self, batch: Sequence[WaitingStep]) -> None:
        try:
            recorded = await self._execute(batch)
        except Exception as error:
            if len(batch) == 1 or not isinstance(translate(error), StoreRefused):
                raise
            for waiting in batch:  # a value that the server refuses must fail its own step only
                try:
                    await self._record([waiting])
                except Exception as step_error:
                    if not waiting[2].done():  # the caller was cancelled
                        waiting[2].set_exception(translate(step_error))
            return
        for step, _, future in batch:
            if not future.done():
                future.set_result((step.job_id, step.name) in recorded)

    async def _execute(self, batch: Sequence[WaitingStep]) -> set[tuple[str, str]]:
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

        async def record() -> list[Any]:
            async with self._acquired() as connection, self._single_statement(connection):
                rows: list[Any] = await connection.fetch(
                    self._query.text, *(values[name] for name in self._query.names)
                )
                return rows

        return {(row[0], row[1]) for row in await repeat_on_conflict(record)}
