"""One operation on many jobs, a batch per transaction; one refusal does not affect the others."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from detent.core.access import Scope
from detent.core.errors import DetentError, StoreUnavailable
from detent.engine.refusal import Refused
from detent.engine.runtime import Runtime, affected_parents
from detent.ports.tx import Tx

from . import dead_letters, job_control

BATCH = 50
MAX_REFUSALS = 20
Act = Callable[[Tx, str], Awaitable[Any]]


@dataclass(slots=True)
class BulkResult:
    """How many jobs were done and refused, and the first MAX_REFUSALS errors."""

    done: int = 0
    refused: int = 0
    refusals: list[dict[str, str]] = field(default_factory=list)

    def refuse(self, job_id: str, error: DetentError) -> None:
        self.refused += 1
        if len(self.refusals) < MAX_REFUSALS:
            self.refusals.append({"job_id": job_id, "code": error.code, "detail": error.message})


async def cancel_many(runtime: Runtime, ids: Sequence[str], scope: Scope) -> BulkResult:
    return await _run_in_batches(runtime, ids, lambda tx, job_id: job_control.cancel(runtime, tx, job_id, scope))


async def requeue_many(runtime: Runtime, ids: Sequence[str], scope: Scope) -> BulkResult:
    new_ids = {job_id: runtime.ids.job() for job_id in ids}

    async def process_job(tx: Tx, job_id: str) -> Any:
        return await dead_letters.requeue_job(runtime, tx, job_id, scope, new_id=new_ids[job_id])

    return await _run_in_batches(runtime, ids, process_job)


async def _run_in_batches(runtime: Runtime, ids: Sequence[str], process_job: Act) -> BulkResult:
    """One transaction per batch; if one job of a batch raises an error, one transaction per job."""
    result = BulkResult()
    for start in range(0, len(ids), BATCH):
        batch = ids[start : start + BATCH]
        try:
            _add_results(result, await _run_batch(runtime, batch, process_job))
        except StoreUnavailable:
            raise
        except DetentError:
            for job_id in batch:
                try:
                    _add_results(result, await _run_batch(runtime, [job_id], process_job))
                except StoreUnavailable:
                    raise
                except DetentError as error:
                    result.refuse(job_id, error)
    return result


async def _run_batch(runtime: Runtime, batch: Sequence[str], process_job: Act) -> list[tuple[str, Any]]:
    async def act(tx: Tx) -> list[tuple[str, Any]]:
        return [(job_id, await process_job(tx, job_id)) for job_id in batch]

    return await runtime.run(act, lambda results: affected_parents(result for _, result in results))


def _add_results(result: BulkResult, outcomes: list[tuple[str, Any]]) -> None:
    for job_id, outcome in outcomes:
        if isinstance(outcome, Refused):
            result.refuse(job_id, outcome.error)
        else:
            result.done += 1
