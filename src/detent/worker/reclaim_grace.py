"""After an outage, a suspend or a clock jump, expired leases are not reclaimed for one lease."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from detent.core.errors import DetentError
from detent.core.times import SECOND
from detent.ports.clock import Clock
from detent.ports.store import Store

log = logging.getLogger("detent.worker.reclaim_grace")
_MAX_CLOCK_DRIFT_SECONDS = 1.0
_MAX_CHECK_INTERVAL_SECONDS = 2.0
"""`check_clocks` is called more often than this; a longer gap means that the process did not run."""


class ReclaimGrace:
    """Shared by everything in a process that reclaims leases: holders get one lease of time to send a heartbeat."""

    def __init__(self, clock: Clock, lease_seconds: float) -> None:
        self._clock = clock
        self._lease = lease_seconds
        self._wall, self._mono = clock.now(), clock.monotonic()
        self.until = float("-inf")
        """The end by the monotonic clock; infinite while the store does not answer."""

    @property
    def over(self) -> bool:
        return self._clock.monotonic() >= self.until

    def start(self, reason: str) -> None:
        self.until = self._clock.monotonic() + self._lease
        log.info("%s: expired leases are not reclaimed for the next %g s", reason, self._lease)

    def store_lost(self) -> None:
        """The store does not answer: the grace starts when it answers again."""
        self.until = float("inf")

    def store_back(self) -> None:
        """The store has answered."""
        if self.until == float("inf"):
            self.start("the store was unreachable")

    @contextmanager
    def watch_stall(self) -> Iterator[None]:
        """Start the grace if what runs inside takes longer than a third of a lease: the heartbeats waited as well."""
        began = self._clock.monotonic()
        yield
        seconds = self._clock.monotonic() - began
        if seconds > self._lease / 3:
            self.start(f"the store took {seconds:.1f} s to answer")

    async def check_uptime(self, store: Store) -> None:
        """Start the grace if the database has just started: its workers may not have reconnected yet."""
        try:
            if await store.uptime() < self._lease:
                self.start("the database has just started")
        except DetentError:
            self.store_lost()

    def check_clocks(self) -> None:
        """Start the grace if wall and monotonic clock drifted apart: the machine slept or its clock was set.

        Also if both clocks ran on for a lease without this process (SIGSTOP, a paused virtual machine): other workers
        may have been stopped too, and their heartbeats must come first.
        """
        wall, mono = self._clock.now(), self._clock.monotonic()
        elapsed = mono - self._mono
        drift = abs((wall - self._wall) / SECOND - elapsed)
        self._wall, self._mono = wall, mono
        if drift > _MAX_CLOCK_DRIFT_SECONDS:
            self.start(f"wall and monotonic clock are {drift:.1f} s apart")
        elif elapsed >= max(self._lease, _MAX_CHECK_INTERVAL_SECONDS):
            self.start(f"this process did not run for {elapsed:.1f} s")
