"""Claims whose result was lost with the connection: their rows may be leased under a token that only we know."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from detent.core.errors import StoreContended, StoreUnavailable
from detent.ports.claims import Claimed, ClaimRequest

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

    def adopt(self, worker: str, rows: Sequence[Any], now: float) -> list[Claimed]:
        """The rows that a search for this worker's tokens found, as claims; also drops tokens searched long enough."""
        claimed = [Claimed(*row) for row in rows]
        for claim in claimed:
            self._lost.pop(claim.token, None)
        searched = {
            token: (owner, now + _SEARCH_SECONDS if until is None and owner == worker else until)
            for token, (owner, until) in self._lost.items()
        }
        self._lost = {token: lost for token, lost in searched.items() if lost[1] is None or lost[1] > now}
        return claimed


def remaining_request(request: ClaimRequest, number: int) -> ClaimRequest | None:
    """The same request for this many jobs fewer; None if all have been claimed."""
    return replace(request, limit=request.limit - number) if number < request.limit else None
