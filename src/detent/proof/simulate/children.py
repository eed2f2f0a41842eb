"""Simulated families and questions: children of a simulated job, and people it asks, through the real context."""

from collections.abc import Sequence
from typing import Any

from detent.core.contract.model import Contract, Move
from detent.engine import Submission
from detent.handler.children import Child
from detent.handler.context import Context
from detent.handler.handler import Handler

QUESTION = "may it go on"
DEADLINE_SECONDS = 25.0
CHILDREN = 2


class Relative:
    """A job as its parent enqueues it: of the same kind and under the same contract."""

    def __init__(self, handler: Handler, contract: str) -> None:
        self.name = handler.name
        self.handler = handler
        self._contract = contract

    def submission(self, payload: dict[str, Any]) -> Submission:
        return Submission(self.name, payload, contract=self._contract)

    async def enqueue(self, *args: Any, **kwargs: Any) -> Any:
        raise NameError("simulated children are enqueued by their parents")


async def children_of(ctx: Context, handler: Handler, plan: Sequence[list[Any]], depth: int) -> list[Child[Any]]:
    """Two of them, with parts of their parent's plan, and children of their own while there is depth left."""
    job = Relative(handler, ctx._claimed.contract)
    plans = [{"plan": [[act, seconds / 2] for act, seconds in plan[n:3]], "family": depth - 1} for n in range(CHILDREN)]
    return await ctx.enqueue_many(job, plans)


async def asked(ctx: Context, quorum: int) -> bool:
    return bool(await ctx.approval(QUESTION, quorum=quorum, deadline=DEADLINE_SECONDS, default="reject"))


def relations(contract: Contract, number: int) -> dict[str, int]:
    """What the numbered job of a producer has to do with others, as far as its contract has statuses for it."""
    told = {}
    if number % 4 == 1 and any(edge.move is Move.WAIT for edge in contract.edges):
        told["family"] = 1 + number % 2 if number % 8 == 1 else 1
    if number % 5 == 2 and any(edge.move is Move.HOLD and edge.source for edge in contract.edges):
        told["question"] = 1 + number % 2
    return told
