"""What contracts are made of: phases, moves, edges and error codes."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Phase(StrEnum):
    """What a status means to the engine. The names of the statuses belong to the contract.

    CLAIMABLE: a worker may take the job. LEASED: a worker holds it. BLOCKED: it waits for a time, a signal, children or
    an approval. FINAL: it has ended.
    """

    CLAIMABLE = "claimable"
    LEASED = "leased"
    BLOCKED = "blocked"
    FINAL = "final"


class Move(StrEnum):
    """What the engine can do with a job. A contract maps (move, status) to an edge.

    SUBMIT, DEFER (due later) and HOLD (wait for approval) create a job. CLAIM gives it to a worker. SUCCEED, RETRY,
    FAIL, WAIT, PARK (a long wait) and RELEASE (give it back) end an execution; EXPIRE and RECLAIM take a job from a
    lost worker. WAKE ends a wait, REJECT an approval. CANCEL ends a job, REOPEN makes a finished one claimable again.
    FOLLOW is committed together with the edge before it.
    """

    SUBMIT = "SUBMIT"
    DEFER = "DEFER"
    HOLD = "HOLD"
    CLAIM = "CLAIM"
    SUCCEED = "SUCCEED"
    RETRY = "RETRY"
    FAIL = "FAIL"
    RELEASE = "RELEASE"
    EXPIRE = "EXPIRE"
    RECLAIM = "RECLAIM"
    WAIT = "WAIT"
    PARK = "PARK"
    WAKE = "WAKE"
    REJECT = "REJECT"
    CANCEL = "CANCEL"
    REOPEN = "REOPEN"
    FOLLOW = "FOLLOW"


_C, _L, _B, _F = Phase.CLAIMABLE, Phase.LEASED, Phase.BLOCKED, Phase.FINAL

MOVE_PHASES: Mapping[Move, tuple[frozenset[Phase | None], frozenset[Phase]]] = MappingProxyType(
    {
        Move.SUBMIT: (frozenset({None}), frozenset({_C, _B})),
        Move.DEFER: (frozenset({None}), frozenset({_B})),
        Move.HOLD: (frozenset({None, _L}), frozenset({_B})),
        Move.CLAIM: (frozenset({_C}), frozenset({_L})),
        Move.SUCCEED: (frozenset({_L}), frozenset({_F})),
        Move.RETRY: (frozenset({_L}), frozenset({_C, _B})),
        Move.FAIL: (frozenset({_L, _C}), frozenset({_F, _B})),
        Move.RELEASE: (frozenset({_L}), frozenset({_C})),
        Move.EXPIRE: (frozenset({_L}), frozenset({_C})),
        Move.RECLAIM: (frozenset({_L}), frozenset({_L})),
        Move.WAIT: (frozenset({_L}), frozenset({_B})),
        Move.PARK: (frozenset({_L}), frozenset({_B})),
        Move.WAKE: (frozenset({_B}), frozenset({_C})),
        Move.REJECT: (frozenset({_B}), frozenset({_F})),
        Move.CANCEL: (frozenset({_C, _L, _B}), frozenset({_F})),
        Move.REOPEN: (frozenset({_F}), frozenset({_C})),
        Move.FOLLOW: (frozenset({_B}), frozenset({_B, _F})),
    }
)
"""Move -> (phases it may leave, phases it may enter). Every edge of every contract must conform."""


@dataclass(frozen=True, slots=True)
class Edge:
    """One legal transition: `move` takes a job from status `source` to status `target` and logs `event`.

    source None: creation. move None: accepted in a replayed history, never made by Detent.

        Edge(Move.CLAIM, "queued", "job.claimed", "running")
    """

    move: Move | None
    source: str | None
    event: str
    target: str

    def __str__(self) -> str:
        return f"({self.move or '-'}, {self.source or '(nothing)'}, {self.event}, {self.target})"


CODES: Mapping[str, str | None] = MappingProxyType(
    {
        "illegal_transition": "JOB_TRANSITION_INVALID",
        "not_found": "JOB_NOT_FOUND",
        "idempotency_conflict": "IDEMPOTENCY_CONFLICT",
        "tenant_scope_violation": "TENANT_SCOPE_VIOLATION",
        "dlq_item_not_found": "DLQ_ITEM_NOT_FOUND",
        "dlq_requeue_conflict": "DLQ_REQUEUE_CONFLICT",
        "dlq_discard_conflict": "DLQ_DISCARD_CONFLICT",
        "approval_required": "APPROVAL_REQUIRED",
        "invalid_schedule": "SCHEDULE_INVALID",
        "execution_failed": "JOB_EXECUTION_FAILED",
        "timeout": "JOB_TIMEOUT",
        "lost": "WORKER_LOST",
        "stopped": "WORKER_STOPPED",
        "payload_invalid": "PAYLOAD_INVALID",
        "retry_exhausted": None,
    }
)
"""Every error code a contract may rename. retry_exhausted None: the failure keeps the code of its cause."""
