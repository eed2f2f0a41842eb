"""Whether an execution still holds its job, as far as its process knows without asking the store."""

from typing import NamedTuple

from detent.core.errors import StaleLease
from detent.core.job import TIMEOUT_GRACE, Micros
from detent.core.times import SECOND
from detent.ports.clock import Clock

_TRUSTED_SHARE = 2 / 3
"""The share of a lease after which the store is asked. Heartbeats confirm a lease every third of it."""


class Reading(NamedTuple):
    """Both clocks at one moment. The monotonic clock stands still while the machine is suspended."""

    monotonic: float
    wall: Micros

    @classmethod
    def of(cls, clock: Clock) -> "Reading":
        return cls(clock.monotonic(), clock.now())


class LeaseClock:
    """Measures how long ago the leases of one worker were confirmed."""

    def __init__(self, clock: Clock, lease_seconds: float) -> None:
        self._clock = clock
        self.lease_seconds = lease_seconds
        self._trusted = lease_seconds * _TRUSTED_SHARE
        self._trusted_micros = int(self._trusted * SECOND)

    def read(self) -> Reading:
        return Reading.of(self._clock)

    def has_reached(self, monotonic: float) -> bool:
        return self._clock.monotonic() >= monotonic

    def is_recent(self, confirmed: Reading) -> bool:
        """True while by both clocks at least a third of a lease confirmed then is left."""
        return (
            self._clock.monotonic() - confirmed.monotonic < self._trusted
            and 0 <= self._clock.now() - confirmed.wall < self._trusted_micros
        )


class Lease:
    """The lease of one execution: written by the worker and its heartbeat, read before each call of a context.

    Another execution may have recorded a step since the lease was lost, so this one must not run it.
    """

    __slots__ = ("clock", "confirmed", "ends", "lost")

    def __init__(
        self, timeout_ms: int | None = None, *, clock: LeaseClock | None = None, confirmed: Reading | None = None
    ) -> None:
        """Without a clock the lease has no end that this process could notice; used by tests and simulated workers."""
        self.clock = clock
        self.confirmed = confirmed
        """Read before the statement that claimed the job or extended its lease was sent."""
        self.ends: float | None = None
        """By the monotonic clock: from here on the store may give the job to another execution, because no heartbeat
        extends a lease beyond the timeout. The store counts from the claim, whose answer may have arrived late."""
        if timeout_ms is not None and confirmed is not None:
            self.ends = confirmed.monotonic + timeout_ms / 1_000 + TIMEOUT_GRACE / SECOND
        self.lost: str | None = None
        """Why the execution no longer holds the job, once the worker or the store has said so."""

    def confirm(self, at: Reading) -> None:
        if self.confirmed is None or at.monotonic > self.confirmed.monotonic:
            self.confirmed = at

    @property
    def is_sure(self) -> bool:
        """True if the job is surely held; False if it is lost, or if the store must be asked."""
        if self.lost is not None or self._is_over:
            return False
        return self.clock is None or self.confirmed is None or self.clock.is_recent(self.confirmed)

    @property
    def _is_over(self) -> bool:
        return self.ends is not None and self.clock is not None and self.clock.has_reached(self.ends)

    def raise_if_lost(self, job_id: str, what: str) -> None:
        if self.lost is None and self._is_over:
            self.lost = "its timeout has passed"
        if self.lost is not None:
            raise StaleLease(
                f"this execution no longer holds job {job_id} ({self.lost}), {what} is not run; stop working on it",
                job_id=job_id,
            )
