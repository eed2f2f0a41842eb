"""When the leases of others are left alone: for one lease after the store, the machine or its clock was away."""

import logging

from detent.core.errors import DetentError
from detent.core.times import SECOND
from detent.ports.clock import Clock
from detent.ports.store import Store

log = logging.getLogger("detent.caution")
_APART_SECONDS = 1.0
_LONGEST_LOOK_SECONDS = 2.0
"""Whoever asks looks more often than this; a longer gap is one in which the process did not run."""


class ReclaimGrace:
    """Shared by all of a process that could take a lease away: whoever holds one must have time to come back."""

    def __init__(self, clock: Clock, lease_seconds: float) -> None:
        self._clock = clock
        self._lease = lease_seconds
        self._wall, self._mono = clock.now(), clock.monotonic()
        self.until = float("-inf")
        """By the monotonic clock; without end while the store does not answer."""

    @property
    def over(self) -> bool:
        return self._clock.monotonic() >= self.until

    def begin(self, why: str) -> None:
        self.until = self._clock.monotonic() + self._lease
        log.info("%s: no lease is taken from anyone for the next %g s", why, self._lease)

    def lost(self) -> None:
        """The store does not answer: the wait begins when it does again, for us and for everyone else."""
        self.until = float("inf")

    def back(self) -> None:
        """The store has answered."""
        if self.until == float("inf"):
            self.begin("the store was away")

    async def meet(self, store: Store) -> None:
        """Workers of a database that has just started may not have come back to it yet."""
        try:
            if await store.uptime() < self._lease:
                self.begin("the database has just started")
        except DetentError:
            self.lost()

    def look(self) -> None:
        """Wall and monotonic time part when the machine slept or the clock was set.

        If both ran on without us for a lease (a stopped process, a paused virtual machine), others may have been
        stopped with us: their heartbeats go first.
        """
        wall, mono = self._clock.now(), self._clock.monotonic()
        away = mono - self._mono
        apart = abs((wall - self._wall) / SECOND - away)
        self._wall, self._mono = wall, mono
        if apart > _APART_SECONDS:
            self.begin(f"wall and monotonic clock are {apart:.1f} s apart")
        elif away >= max(self._lease, _LONGEST_LOOK_SECONDS):
            self.begin(f"this process did not run for {away:.1f} s")
