"""One act on many jobs: some dozens in a commit, each refused or done as if it were the only one."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from detent.core.errors import DetentError, StoreUnavailable
from detent.engine.refusal import Refused
from detent.ports.tx import Tx

from . import dead_letters, job_control

if TYPE_CHECKING:
    from detent.engine.engine import Engine

TOGETHER = 50
TOLD_AT_MOST = 20
Act = Callable[[Tx, str], Awaitable[Any]]


@dataclass(slots=True)
class BulkResult:
    """How many were done, and the first of those that were refused."""

    done: int = 0
    refused: int = 0
    refusals: list[dict[str, str]] = field(default_factory=list)

    def refuse(self, job_id: str, error: DetentError) -> None:
        self.refused += 1
        if len(self.refusals) < TOLD_AT_MOST:
            self.refusals.append({"job_id": job_id, "code": error.code, "detail": error.message})


async def cancel_many(
    engine: "Engine", ids: Sequence[str], *, actor: str, reason: str | None, tenant: str | None
) -> BulkResult:
    async def one(tx: Tx, job_id: str) -> Any:
        return await job_control.cancel(engine, tx, job_id, actor, reason, tenant, False)

    return await _each(engine, ids, one)


async def requeue_many(
    engine: "Engine", ids: Sequence[str], *, actor: str, reason: str | None, tenant: str | None
) -> BulkResult:
    fresh = {job_id: engine.ids.job() for job_id in ids}

    async def one(tx: Tx, job_id: str) -> Any:
        return await dead_letters.requeue_job(engine, tx, job_id, actor, reason, None, tenant, fresh[job_id])

    return await _each(engine, ids, one)


async def _each(engine: "Engine", ids: Sequence[str], one: Act) -> BulkResult:
    """A commit that one of them breaks is done again, each for itself."""
    found = BulkResult()
    for start in range(0, len(ids), TOGETHER):
        batch = ids[start : start + TOGETHER]
        try:
            _told(found, await engine.write(partial(_together, batch, one)))
        except StoreUnavailable:
            raise
        except DetentError:
            for job_id in batch:
                try:
                    _told(found, await engine.write(partial(_together, [job_id], one)))
                except StoreUnavailable:
                    raise
                except DetentError as error:
                    found.refuse(job_id, error)
    return found


async def _together(batch: Sequence[str], one: Act, tx: Tx) -> list[tuple[str, Any]]:
    return [(job_id, await one(tx, job_id)) for job_id in batch]


def _told(found: BulkResult, answers: list[tuple[str, Any]]) -> None:
    for job_id, answer in answers:
        if isinstance(answer, Refused):
            found.refuse(job_id, answer.error)
        else:
            found.done += 1
