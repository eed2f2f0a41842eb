"""Claims whose answer was lost: the rows may bear a token that only this store remembers, and are looked for."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from detent.core.errors import StoreUnavailable
from detent.ports.claims import Claimed, ClaimRequest

_LOOK_SECONDS = 10.0
"""From the first look that was answered: a server may still be at work on a statement whose connection is gone."""


class LostClaims:
    """Tokens that may stand on rows nobody works on. What is not found in time is left to its lease."""

    def __init__(self) -> None:
        self._lost: dict[str, tuple[str, float | None]] = {}

    def __bool__(self) -> bool:
        return bool(self._lost)

    def lose(self, requests: Sequence[ClaimRequest], error: BaseException) -> None:
        if isinstance(error, StoreUnavailable):
            self._lost |= {request.token: (request.worker, None) for request in requests}

    def tokens(self, worker: str) -> str:
        """Those of this worker, as JSON."""
        return json.dumps([token for token, (owner, _) in self._lost.items() if owner == worker])

    def found(self, worker: str, rows: Sequence[Any], now: float) -> list[Claimed]:
        """These are held again; the engine may be told of them as if they were claimed now."""
        claimed = [Claimed(*row) for row in rows]
        for one in claimed:
            self._lost.pop(one.token, None)
        looked = {
            token: (owner, now + _LOOK_SECONDS if until is None and owner == worker else until)
            for token, (owner, until) in self._lost.items()
        }
        self._lost = {token: lost for token, lost in looked.items() if lost[1] is None or lost[1] > now}
        return claimed


def less(request: ClaimRequest, number: int) -> ClaimRequest | None:
    """The same request for so many jobs fewer; None if nothing is left to ask for."""
    return replace(request, limit=request.limit - number) if number < request.limit else None
