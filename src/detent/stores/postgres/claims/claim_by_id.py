"""The parameters of claims by id, and those that all claim statements share for settled jobs."""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, Protocol

from detent.ports.claims import ClaimRequest, Success

from ..dialect import is_uuid

ClaimKey = tuple[int, int]
"""(check_at, n): the primary key of table claims."""


def done_values(claims: Sequence[ClaimKey]) -> dict[str, list[str]]:
    """The parameters that name claims whose jobs are all settled."""
    return {"done_times": [str(check_at) for check_at, _ in claims], "done_numbers": [str(n) for _, n in claims]}


def success_values(successes: Sequence[Success]) -> dict[str, Any]:
    """The parameters that describe the successes; `results` is empty if no job returned anything."""
    results = [s[3] for s in successes]
    return {
        "ids": [s[0] for s in successes],
        "tokens": [s[1] for s in successes],
        "results": results if results.count(None) < len(results) else [],
    }


def unsettled_successes(settled: str | None, successes: Sequence[Success]) -> list[Success]:
    """settled: comma-separated ids of the settled jobs; None if all were."""
    if settled is None:
        return []
    done = set(settled.split(","))
    return [success for success in successes if success.id not in done]


class StreamEdges(Protocol):
    stream_contracts: frozenset[str]

    def values(self, prefix: str, contracts: Any) -> dict[str, list[str]]: ...


def claim_by_id_values(
    successes: Sequence[Success],
    request: ClaimRequest,
    edges: StreamEdges,
    worker: int,
    now: int,
    done: Sequence[ClaimKey] = (),
) -> Mapping[str, Any]:
    """The parameters of claim_by_id. Successes and named jobs are each sorted by id, the order in which rows are locked
    everywhere, so that transactions cannot deadlock."""
    ordered = sorted(successes, key=itemgetter(0))
    named = sorted(job for job in request.named or () if is_uuid(job.id))
    return {
        "now": now,
        **success_values(ordered),
        "named_ids": [job[0] for job in named],
        "named_tokens": [job[1] for job in named],
        "named_counts": [str(job[2]) for job in named],
        "worker": worker,
        "family": False,
        **done_values(done),
        "lease": request.lease,
        **edges.values("end", {s[2] for s in ordered}),
        **edges.values("claim", edges.stream_contracts),
    }
