"""Children and approvals of simulated jobs, through the real handler context."""

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


class ChildJob:
    """The job definition a parent enqueues its children with: its own handler and contract."""

    def __init__(self, handler: Handler, contract: str) -> None:
        self.name = handler.name
        self.handler = handler
        self._contract = contract

    def submission(self, payload: dict[str, Any]) -> Submission:
        return Submission(self.name, payload, contract=self._contract)

    async def enqueue(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("simulated children are enqueued by ctx.enqueue_many")


async def enqueue_children(ctx: Context, handler: Handler, plan: Sequence[list[Any]], depth: int) -> list[Child[Any]]:
    """Enqueue two children with parts of their parent's plan; they have children too until depth is 0."""
    job = ChildJob(handler, ctx._claimed.contract)
    plans = [{"plan": [[act, seconds / 2] for act, seconds in plan[n:3]], "family": depth - 1} for n in range(CHILDREN)]
    return await ctx.enqueue_many(job, plans)


async def wait_for_approval(ctx: Context, quorum: int) -> bool:
    return bool(await ctx.approval(QUESTION, quorum=quorum, deadline=DEADLINE_SECONDS, default="reject"))


def relation_payload(contract: Contract, number: int) -> dict[str, int]:
    """Handler arguments for children and approvals of a producer's job `number`, if the contract supports them."""
    payload = {}
    if number % 4 == 1 and contract.has(Move.WAIT):
        payload["family"] = 1 + number % 2 if number % 8 == 1 else 1
    if number % 5 == 2 and contract.has(Move.HOLD):
        payload["question"] = 1 + number % 2
    return payload
