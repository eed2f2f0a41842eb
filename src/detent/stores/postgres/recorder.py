"""Recorded steps on their way to the server: those that wait while others travel go together in the next statement."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from ...core.errors import StoreRefused
from ...core.job import Micros, Step
from .dialect import Query
from .trouble import TIES, told

_FLIGHTS = 2
_AT_MOST = 200
_REPEATS = 10
Waiting = tuple[Step, str, "asyncio.Future[bool]"]


class Recorder:
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
            batch, self._waiting = self._waiting[:_AT_MOST], self._waiting[_AT_MOST:]
            try:
                await self._deliver(batch)
            except BaseException as error:
                for _, _, answer in batch:
                    if not answer.done():
                        answer.set_exception(told(error))
                if not isinstance(error, Exception):
                    raise

    async def _deliver(self, batch: Sequence[Waiting]) -> None:
        try:
            recorded = await self._send(batch)
        except Exception as error:
            if len(batch) == 1 or not isinstance(told(error), StoreRefused):
                raise
            for one in batch:  # one value the server cannot hold must not cost the others theirs
                try:
                    await self._deliver([one])
                except Exception as its:
                    one[2].set_exception(told(its))
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
