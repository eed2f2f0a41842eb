"""The one place that repeats store calls.

What is repeated, how often, and how long it takes at most:

CONFLICT  A transaction that lost against a concurrent one: VersionConflict, or StoreContended (a deadlock or a
          serialization failure). It was rolled back, so that it can run again at once. 10 attempts, with pauses of 0 to
          8 ms, 36 ms in all. Used by the Postgres store for each of its transactions. SQLite has one writer, which
          waits for its turn instead.
OUTAGE    An idempotent call of a running handler (a step, a check of its lease) while the store is unavailable, so that
          finished work is not lost. 5 attempts, with pauses of 0.05, 0.2, 0.8 and 2 s, 3.05 s in all.

The two do not multiply: OUTAGE does not repeat a call that CONFLICT has given up. Every other call is tried once, but:

- A new contract waits for its table lock on Postgres in 20 attempts of 0.5 s, because a longer wait would stop others.
- Connecting tries the hosts of the URL one after the other, and a BEGIN without an answer is repeated on a new
  connection; both change nothing.
- In a transaction of the caller (`enqueue_in`) a lost race is repeated in a savepoint, 3 times, because only the caller
  can repeat the transaction.
- Processes that run until stopped wait for a server that does not answer when they start, without end
  (`client.connect.when_available`).
- Loops that live as long as their process (worker, heartbeat, sweeper, orchestrator, LISTEN) go on after an error, with
  pauses of `system.backoff`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from detent.core.errors import StoreContended, StoreUnavailable, VersionConflict

from .backoff import Sleep

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Repeats a call after one of `errors`, once after each of `pauses` (seconds); `final` errors are not repeated."""

    errors: tuple[type[Exception], ...]
    pauses: tuple[float, ...]
    final: tuple[type[Exception], ...] = ()

    async def run(self, call: Callable[[], Awaitable[T]], sleep: Sleep = asyncio.sleep) -> T:
        for pause in self.pauses:
            try:
                return await call()
            except self.errors as error:
                if isinstance(error, self.final):
                    raise
                await sleep(pause)
        return await call()


CONFLICT = RetryPolicy((VersionConflict, StoreContended), tuple(number / 1_000 for number in range(9)))
OUTAGE = RetryPolicy((StoreUnavailable,), (0.05, 0.2, 0.8, 2.0), final=(StoreContended,))
