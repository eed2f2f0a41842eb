"""What the hot statements are told of jobs that have succeeded, and which of them they did not settle."""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, Protocol

from detent.ports.claims import Claimed, ClaimRequest, Success

from .dialect import is_uuid


def settled_values(successes: Sequence[Success]) -> dict[str, Any]:
    """What the statements are told of those that have ended; most have nothing to return."""
    results = [s[3] for s in successes]
    return {
        "ids": [s[0] for s in successes],
        "tokens": [s[1] for s in successes],
        "results": results if results.count(None) < len(results) else [],
    }


def unsettled_of(settled: str | None, successes: Sequence[Success]) -> list[Success]:
    """settled: the ids that were, if not all."""
    if settled is None:
        return []
    done = set(settled.split(","))
    return [success for success in successes if success.id not in done]


class WiredEdges(Protocol):
    wired: frozenset[str]

    def values(self, prefix: str, contracts: Any) -> dict[str, list[str]]: ...


def claim_by_id_values(
    successes: Sequence[Success], request: ClaimRequest, edges: WiredEdges, now: int
) -> Mapping[str, Any]:
    """In the order of the ids, settled and named apart: nobody else takes rows of both kinds in another order."""
    ordered = sorted(successes, key=itemgetter(0))
    named = sorted(one for one in request.named or () if is_uuid(one.id))
    return {
        "now": now,
        **settled_values(ordered),
        "named_ids": [one[0] for one in named],
        "named_tokens": [one[1] for one in named],
        "named_counts": [str(one[2]) for one in named],
        "worker": request.worker,
        "lease": request.lease,
        **edges.values("end", {s[2] for s in ordered}),
        **edges.values("claim", edges.wired),
    }


class Taken:
    """What the statement told: the claims, and which successes it settled."""

    __slots__ = ("_settled", "claimed", "wrote")

    def __init__(self, rows: Sequence[Any]) -> None:
        head, *found = rows
        self._settled: str | None = head[6]
        self.wrote = bool(found) or head[7] > 0
        self.claimed = [Claimed(*row) for row in found]

    def unsettled(self, successes: Sequence[Success]) -> list[Success]:
        if self._settled is None:
            return []
        done = set(self._settled.split(","))
        return [success for success in successes if success.id not in done]
