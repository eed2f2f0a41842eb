"""Claims whose result was lost with the connection: their rows may be leased under a token that only we know."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

from detent.core.errors import StoreContended, StoreUnavailable
from detent.ports.claims import Claimed, ClaimRequest

from .claim_by_id import ClaimKey

_SEARCH_SECONDS = 10.0
"""How long a token is searched for, from the first search that succeeded: the server may still be executing a statement
whose connection is lost."""


class LostClaims:
    """Tokens of lost claims. Rows that are not found in time stay leased until the lease expires."""

    def __init__(self) -> None:
        self._lost: dict[str, tuple[str, float | None]] = {}

    def __bool__(self) -> bool:
        return bool(self._lost)

    def add(self, requests: Sequence[ClaimRequest], error: BaseException) -> None:
        """Remember the tokens of these claims, if the error leaves open whether they were committed."""
        if isinstance(error, StoreUnavailable) and not isinstance(error, StoreContended):
            self._lost |= {request.token: (request.worker, None) for request in requests}

    def tokens(self, worker: str) -> str:
        """The lost tokens of this worker, as JSON."""
        return json.dumps([token for token, (owner, _) in self._lost.items() if owner == worker])

    def adopt(self, worker: str, claimed: Sequence[Claimed], now: float) -> None:
        """claimed: what a search for this worker's tokens found. Drops these tokens, and those searched long enough."""
        for claim in claimed:
            self._lost.pop(claim.token, None)
        searched = {
            token: (owner, now + _SEARCH_SECONDS if until is None and owner == worker else until)
            for token, (owner, until) in self._lost.items()
        }
        self._lost = {token: lost for token, lost in searched.items() if lost[1] is None or lost[1] > now}


def remaining_request(request: ClaimRequest, number: int) -> ClaimRequest | None:
    """The same request for this many jobs fewer; None if all have been claimed."""
    return replace(request, limit=request.limit - number) if number < request.limit else None


class OpenClaims:
    """The claims of this process whose jobs are not all settled yet, so that their rows can be deleted when they are.

    Only an optimisation: a row that stays is deleted by a sweep at its check_at.
    """

    def __init__(self) -> None:
        self._claim_of: dict[str, ClaimKey] = {}
        self._jobs_left: dict[ClaimKey, int] = {}
        self._done: list[ClaimKey] = []

    def add(self, claim: ClaimKey | None, claimed: Sequence[Claimed]) -> None:
        if claim is None:
            return
        if len(self._claim_of) > _MAX_OPEN_JOBS:
            self._claim_of.clear()
            self._jobs_left.clear()
        self._jobs_left[claim] = len(claimed)
        for job in claimed:
            self._claim_of[job.id] = claim

    def settle(self, ids: Iterable[str]) -> None:
        """These jobs are no longer leased."""
        for job_id in ids:
            claim = self._claim_of.pop(job_id, None)
            if claim is None or claim not in self._jobs_left:
                continue
            self._jobs_left[claim] -= 1
            if not self._jobs_left[claim]:
                del self._jobs_left[claim]
                self._done.append(claim)

    def take_done(self) -> list[ClaimKey]:
        """The claims whose rows can be deleted; each is returned once."""
        done, self._done = self._done, []
        return done


_MAX_OPEN_JOBS = 100_000
