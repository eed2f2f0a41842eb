"""Group commit on Postgres: inserts and step records that arrive while another is in flight share one statement."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from detent.core.errors import StoreRefused
from detent.core.job import Change, Micros, Step
from detent.system.batcher import TaskBatcher, batch_then_each
from detent.system.retry import CONFLICT

from .connections import LOST, terminate
from .dialect import Query
from .errors import translate
from .insert import insert
from .names import Names

_MAX_JOBS = 1_000
_LOOP_ITERATIONS = 4
"""Event loop iterations to wait before a further batch is written. On a busy loop more callers join it; an idle loop
passes through them at once."""
_MAX_STEPS = 200
_MAX_STEP_BATCHES = 2
InsertCall = tuple[Sequence[Change], Sequence[int]]
"""Changes, and the lane of each."""
StepCall = tuple[Step, str]
"""A step, and the token of its lease."""


def _is_refused(error: Exception) -> bool:
    """True if the server refuses a value: it must fail its own call only."""
    return isinstance(error, StoreRefused)


class InsertBatcher:
    """One connection for inserts. Calls that arrive while an insert is in flight share the next statement."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Any]],
        namespace: str,
        names: Names,
        single_statement: Callable[[Any], Any],
        on_lost: Callable[[], None],
    ) -> None:
        self._connect = connect
        self._namespace = namespace
        self._names = names
        self._on_lost = on_lost
        self._single_statement = single_statement
        self._connection: Any = None
        self._batcher: TaskBatcher[InsertCall, set[str]] = TaskBatcher(
            self._write_batch, max_size=_MAX_JOBS, size=lambda call: len(call[0]), iterations=_LOOP_ITERATIONS
        )

    async def insert(self, changes: Sequence[Change], lanes: Sequence[int]) -> set[str]:
        return await self._batcher.write((changes, lanes))

    async def _write_batch(self, batch: Sequence[InsertCall]) -> Sequence[set[str] | Exception]:
        if len(batch) == 1:
            return await self._write(batch)
        return await batch_then_each(batch, self._write, _is_refused)

    async def _write(self, batch: Sequence[InsertCall]) -> list[set[str]]:
        if len(batch) == 1:
            return [await CONFLICT.run(lambda: self._insert(*batch[0]))]
        changes = [change for changes, _ in batch for change in changes]
        lanes = [lane for _, lanes in batch for lane in lanes]
        present = await CONFLICT.run(lambda: self._insert(changes, lanes))
        return [{change.after.id for change in changes} & present if present else set() for changes, _ in batch]

    async def _insert(self, changes: Sequence[Change], lanes: Sequence[int]) -> set[str]:
        try:
            if self._connection is None or self._connection.is_closed():
                self._connection = await self._connect()
            async with self._single_statement(self._connection):
                return await insert(
                    self._connection,
                    self._namespace,
                    self._names,
                    changes,
                    lanes,
                    in_transaction=self._connection.is_in_transaction(),
                )
        except LOST as error:
            terminate(self._connection)
            if not isinstance(error, asyncio.CancelledError):
                self._on_lost()
            raise translate(error) from error
        except Exception as error:
            raise translate(error) from error

    def terminate_idle(self) -> None:
        if self._batcher.idle:
            terminate(self._connection)

    async def close(self) -> None:
        await self._batcher.close()
        terminate(self._connection)


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
        self._batcher: TaskBatcher[StepCall, bool] = TaskBatcher(
            self._write_batch, max_size=_MAX_STEPS, max_in_flight=_MAX_STEP_BATCHES
        )

    async def record(self, step: Step, token: str) -> bool:
        """False: the token does not hold the job, the step is already finished, or the row is locked."""
        return await self._batcher.add((step, token))

    async def _write_batch(self, batch: Sequence[StepCall]) -> Sequence[bool | Exception]:
        return await batch_then_each(batch, self._write, _is_refused)

    async def _write(self, batch: Sequence[StepCall]) -> list[bool]:
        recorded = await CONFLICT.run(lambda: self._execute(batch))
        return [(step.job_id, step.name) in recorded for step, _ in batch]

    async def _execute(self, batch: Sequence[StepCall]) -> set[tuple[str, str]]:
        steps = [step for step, _ in batch]
        values = {
            "now": self._now(),
            "ids": [step.job_id for step in steps],
            "tokens": [token for _, token in batch],
            "names": [step.name for step in steps],
            "digests": [step.digest for step in steps],
            "results": [step.result for step in steps],
            "finished": [str(step.finished) for step in steps],
            "started": [None if step.started_at is None else str(step.started_at) for step in steps],
        }
        try:
            async with self._acquired() as connection, self._single_statement(connection):
                rows = await connection.fetch(self._query.text, *(values[name] for name in self._query.names))
        except Exception as error:
            raise translate(error) from error
        return {(row[0], row[1]) for row in rows}

    async def close(self) -> None:
        await self._batcher.close()
