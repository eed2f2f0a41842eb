"""One operation on many jobs, a batch per transaction; one refusal does not affect the others."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

from detent.core.access import Scope
from detent.core.errors import DetentError
from detent.engine.refusal import Refused, is_refusal
from detent.engine.runtime import Runtime, affected_parents
from detent.ports.tx import Tx
from detent.system.batcher import batch_then_each

from . import dead_letters, job_control

BATCH = 50
MAX_REFUSALS = 20
Act = Callable[[Tx, str], Awaitable[Any]]


@dataclass(slots=True)
class BulkResult:
    """How many jobs were done and refused, and the first errors."""

    done: Annotated[int, "Number that was changed; 0 in a dry run."] = 0
    refused: Annotated[int, "Number that was refused."] = 0
    refusals: Annotated[list[dict[str, str]], "The first 20 refusals: job_id, code, detail."] = field(
        default_factory=list
    )

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

    async def run(batch: Sequence[str]) -> list[Any]:
        return await runtime.run(partial(_run_batch, batch, process_job), affected_parents)

    for start in range(0, len(ids), BATCH):
        batch = ids[start : start + BATCH]
        for job_id, outcome in zip(batch, await batch_then_each(batch, run, is_refusal), strict=True):
            error = outcome.error if isinstance(outcome, Refused) else outcome
            if isinstance(error, DetentError):
                result.refuse(job_id, error)
            else:
                result.done += 1
    return result


async def _run_batch(batch: Sequence[str], process_job: Act, tx: Tx) -> list[Any]:
    return [await process_job(tx, job_id) for job_id in batch]
