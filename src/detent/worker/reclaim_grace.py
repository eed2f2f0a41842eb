"""After an outage, a suspend or a clock jump, expired leases are not reclaimed for one lease."""

import logging
from dataclasses import dataclass

from detent.core.times import SECOND
from detent.handler.lease import Reading

log = logging.getLogger("detent.worker.reclaim_grace")
_MAX_CLOCK_DRIFT_SECONDS = 1.0
_MAX_CHECK_INTERVAL_SECONDS = 2.0
"""`check_clocks` is called more often than this; a longer gap means that the process did not run."""


@dataclass(slots=True)
class ReclaimGrace:
    """Shared by everything in a process that reclaims leases: holders get one lease of time to send a heartbeat.

    It reads no clock. `now` is a time of the monotonic clock; a Reading is one of both clocks.
    """

    lease_seconds: float
    last: Reading | None = None
    """The clocks at the last check."""
    until: float = float("-inf")
    """The end by the monotonic clock; infinite while the store does not answer."""

    def over(self, now: float) -> bool:
        return now >= self.until

    def start(self, now: float, reason: str) -> None:
        self.until = now + self.lease_seconds
        log.info("%s: expired leases are not reclaimed for the next %g s", reason, self.lease_seconds)

    def store_lost(self) -> None:
        """The store does not answer: the grace starts when it answers again."""
        self.until = float("inf")

    def store_answered(self, now: float, seconds: float = 0.0) -> None:
        """The store has answered after this time. More than a third of a lease: the heartbeats waited as well."""
        if self.until == float("inf"):
            self.start(now, "the store was unreachable")
        elif seconds > self.lease_seconds / 3:
            self.start(now, f"the store took {seconds:.1f} s to answer")

    def check_uptime(self, now: float, uptime: float) -> None:
        """Start the grace if the database has just started: its workers may not have reconnected yet."""
        if uptime < self.lease_seconds:
            self.start(now, "the database has just started")

    def check_clocks(self, at: Reading) -> None:
        """Start the grace if wall and monotonic clock drifted apart: the machine slept or its clock was set.

        Also if both clocks ran on for a lease without this process (SIGSTOP, a paused virtual machine): other workers
        may have been stopped too, and their heartbeats must come first.
        """
        last, self.last = self.last or at, at
        elapsed = at.monotonic - last.monotonic
        drift = abs((at.wall - last.wall) / SECOND - elapsed)
        if drift > _MAX_CLOCK_DRIFT_SECONDS:
            self.start(at.monotonic, f"wall and monotonic clock are {drift:.1f} s apart")
        elif elapsed >= max(self.lease_seconds, _MAX_CHECK_INTERVAL_SECONDS):
            self.start(at.monotonic, f"this process did not run for {elapsed:.1f} s")
