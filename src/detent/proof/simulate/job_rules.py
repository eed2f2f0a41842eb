"""What the contract and the guarantees demand of one event: retries, waits, the order of claims."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import apsw

from detent.core.approval import APPROVE
from detent.core.contract.model import Contract, Move, Phase
from detent.core.job import SUSPECT_LOSSES
from detent.ports.verification import EventRow, JobRow
from detent.proof.controlled_store import BrokenRule
from detent.proof.verify.fold import ContractTable, flags_of

from .handler import HOPELESS, TOKEN_PREFIX

_LOST, _ENDED_BY_ENGINE = "lease_expired", ("execution_timeout", "worker_stopped")


def move_of(table: ContractTable, event: EventRow) -> Move | None:
    return table.move_of((event.source, event.event, event.target), flags_of(event.data or ""))


def check_retry(contract: Contract, before: JobRow, event: EventRow, move: Move | None) -> Iterator[BrokenRule]:
    """An execution that failed is retried while it has retries left, unless its handler says that this is hopeless."""
    data: dict[str, Any] = json.loads(event.data or "{}")
    code, message = data.get("error_code"), data.get("error_message") or ""
    if move is Move.RETRY and code == HOPELESS:
        yield before.id, "retry.hopeless", "it is retried although its handler has failed it for good"
    if move is not Move.FAIL or not data.get("charged") or not contract.edge(before.status, Move.RETRY):
        return
    ended_by_engine = data.get("reason") in (_LOST, *_ENDED_BY_ENGINE)
    retryable = ended_by_engine or (TOKEN_PREFIX in message and code not in (HOPELESS, CHILD_FAILED, FOREIGN))
    exhausted = code == contract.codes["retry_exhausted"] or contract.retry.retries(code or "", True)
    if retryable and exhausted and before.failures < before.max_retries:
        detail = f"it failed for good with {code} after {before.failures} of {before.max_retries} retries"
        yield before.id, "retry.missing", detail


def check_wake(connection: apsw.Connection, before: JobRow, event: EventRow) -> Iterator[BrokenRule]:
    """A wait that timed out and a decision are recorded; a job rejected before its first execution does not run."""
    data: dict[str, Any] = json.loads(event.data or "{}")
    if data.get("reason") == "timeout" and not list(connection.execute(_SIGNAL, (before.id, before.wait_name))):
        yield before.id, "wait.unrecorded", f"its wait for {before.wait_name!r} timed out without a record"
    for (decision,) in connection.execute(_DECISION, (before.id, before.wait_name)):
        if "approved" in data and data["approved"] != (decision == APPROVE):
            yield before.id, "decision.differs", f"{before.wait_name!r} was decided as {decision}, its event has {data}"
    if data.get("approved") is False and not event.execution_no:
        yield before.id, "approval.ignored", "it was rejected before its first execution, and runs"


def check_order(connection: apsw.Connection, job_id: str) -> Iterator[BrokenRule]:
    """Within a lane the oldest due job is claimed first."""
    for (other,) in connection.execute(_OLDER_IN_LANE, (job_id,)):
        yield job_id, "claim.order", f"it was claimed before {other}, which is older and in the same lane"


def is_suspect(table: ContractTable, log: Iterable[EventRow], execution_no: int) -> bool:
    """Whether the last executions before this one were lost, by the log. Timeouts and stops of workers do not count."""
    losses = 0
    for event in log:
        move = move_of(table, event)
        reason = json.loads(event.data).get("reason") if event.data else None
        if event.execution_no - (move is Move.RECLAIM) >= execution_no:
            break
        if move is Move.REOPEN:
            losses = 0
        elif table.phases.get(event.source or "") == Phase.LEASED and reason not in _ENDED_BY_ENGINE:
            losses = losses + 1 if move is Move.RECLAIM or reason == _LOST else 0
    return losses >= SUSPECT_LOSSES


CHILD_FAILED, FOREIGN = "CHILD_FAILED", "FOREIGN"
_SIGNAL = "SELECT 1 FROM detent_signals WHERE job_id = ? AND name = ?"
_DECISION = "SELECT decision FROM detent_approvals WHERE job_id = ? AND name = ?"
_OLDER_IN_LANE = (
    "SELECT o.id FROM detent_jobs j JOIN detent_jobs o ON o.lane = j.lane AND o.ready = 1"
    " AND (o.due_at, o.n) < (j.due_at, j.n) WHERE j.id = ? LIMIT 1"
)
