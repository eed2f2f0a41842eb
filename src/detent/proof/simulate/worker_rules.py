"""What a worker must do with the jobs it holds: settle or give back each of them, and end handlers at their timeout."""

from typing import Any, ClassVar

from detent.engine import BatchResult
from detent.handler.lease import Reading
from detent.ports.claims import Claimed
from detent.worker.state import Batch, Interrupt, WorkerState

from .monitor import InvariantMonitor

Execution = tuple[str, str]
"""(job id, token)"""


def with_checks(state: type[WorkerState], monitor: InvariantMonitor) -> type[WorkerState]:
    """This class with the checks below."""
    return type(f"Checked{state.__name__}", (_Checks, state), {"monitor": monitor})


class _Checks(WorkerState):
    """Compares the settlements that the worker has still to send before and after each event."""

    monitor: ClassVar[InvariantMonitor]

    def _unsettled(self) -> set[Execution]:
        return {(settlement.id, settlement.token) for settlement in self.unsettled()}

    def _check_kept(self, before: set[Execution], event: str) -> None:
        for job_id, token in before - self._unsettled():
            self.monitor.report(job_id, "settlement.lost", f"the worker dropped the settlement under {token} {event}")

    def batch_done(self, result: BatchResult, batch: Batch | None = None, *args: Any, **options: Any) -> list[Claimed]:
        assert batch is not None, "workers pass the batch"
        later = {(settlement.id, settlement.token) for settlement in result.later}
        settled = {(settlement.id, settlement.token) for settlement in batch.settled} - later
        before = self._unsettled() - settled
        started = super().batch_done(result, batch, *args, **options)
        self._check_kept(before, "after a batch")
        return started

    def batch_failed(self, batch: Batch | None = None) -> float | None:
        before = self._unsettled()
        pause = super().batch_failed(batch)
        self._check_kept(before, "after a batch that failed")
        return pause

    def stop(self) -> None:
        waiting = {(held.claimed.id, held.claimed.token) for held in self.held.values() if not held.started}
        before = self._unsettled() | waiting
        super().stop()
        self._check_kept(before, "when it stopped")

    def hand_back_running(self) -> list[Interrupt]:
        before = self._unsettled() | {(held.claimed.id, held.claimed.token) for held in self.held.values()}
        interrupts = super().hand_back_running()
        self._check_kept(before, "at the end of its grace")
        return interrupts

    def tick(self, at: Reading, timeout_codes: dict[str, str]) -> list[Interrupt]:
        before = self._unsettled()
        interrupts = super().tick(at, timeout_codes)
        self._check_kept(before, "at a tick")
        for job_id, held in self.held.items():
            if held.deadline is not None and held.deadline <= at.monotonic:
                detail = f"its handler goes on {at.monotonic - held.deadline:.3f} s after its timeout"
                self.monitor.report(job_id, "timeout.ignored", detail)
        return interrupts
