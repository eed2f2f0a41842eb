"""When a batch of results cannot be stored: each is tried alone, and only the culprit is refused."""

from collections.abc import Sequence

from .core.errors import DetentError, InvalidInput, StoreRefused
from .engine import Cycled, Engine, Settlement

CULPRITS = (StoreRefused, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors that come from what is to be written, not from the store's state: saying it again cannot help."""


async def one_by_one(engine: Engine, settled: Sequence[Settlement]) -> Cycled:
    """Somebody's outcome stops the whole batch: the others are settled, the culprit is refused."""
    answer = Cycled()
    for said in settled:
        try:
            await engine.settle(said.id, said.token, said.outcome)
        except DetentError as error:
            answer.refused[said.id] = error
        except CULPRITS as error:
            told = f"its outcome cannot be stored: {type(error).__name__}: {error}"
            answer.refused[said.id] = InvalidInput(told, code="OUTCOME_INVALID")
    return answer
