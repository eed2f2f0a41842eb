"""An AI agent for a support desk: it calls a model, uses tools, and needs an approval before it refunds money.

Run it: python examples/agent.py

Every call of the model is a step, so it is not repeated after a crash. Every tool call is a `once`, so no mail is sent
twice and no money is paid twice. The approval may take a day; meanwhile the job waits in the database.
"""

import asyncio
from typing import Any

from detent import Context, Detent, OnceUnfinished

app = Detent()  # $DETENT_URL, else the file detent.db
MAX_TURNS = 8
NEEDS_APPROVAL = {"refund"}
Call = dict[str, Any]


async def think(task: str, history: list[Call]) -> Call:
    """A stand-in for a language model: chooses the next tool call from the calls so far."""
    await asyncio.sleep(0.01)
    match len(history):
        case 0:
            return {"tool": "look_up", "order_id": 7}
        case 1:
            return {"tool": "refund", "order_id": 7, "amount": history[0]["answer"]["paid"]}
        case 2:
            decision = "is on its way" if history[1]["answer"] else "was not granted"
            return {"tool": "mail", "text": f"Your refund {decision}."}
    return {"tool": None, "text": f"{task}: done in {len(history)} calls"}


async def look_up(order_id: int, *, key: str) -> dict[str, int]:
    return {"order_id": order_id, "paid": 120}


async def refund(order_id: int, amount: int, *, key: str) -> str:
    """The payment service accepts idempotency keys: a second call with the same key returns the first result."""
    return f"refund {order_id}/{amount}"


async def mail(text: str, *, key: str) -> str:
    return f"mailed: {text}"


TOOLS = {"look_up": look_up, "refund": refund, "mail": mail}


async def outcome_of(tool: str, arguments: Call, key: str) -> Any:
    """After a crash it is unknown whether the call happened. Repeat it with the same key: the service decides."""
    return await TOOLS[tool](**arguments, key=key)


async def call_tool(ctx: Context, turn: int, tool: str, arguments: Call) -> Any:
    key = ctx.effect_key(f"tool {turn}")
    try:
        return await ctx.once(f"tool {turn}", TOOLS[tool], **arguments, key=key)
    except OnceUnfinished:
        return await ctx.step(f"outcome {turn}", outcome_of, tool, arguments, key)


@app.job("agent", max_retries=5, timeout=300)
async def agent(ctx: Context, task: str) -> dict[str, Any]:
    history: list[Call] = []
    for turn in range(MAX_TURNS):
        call = dict(await ctx.step("think", think, task, history))
        tool = call.pop("tool")
        if tool is None:
            return {"answer": call["text"], "calls": [item["tool"] for item in history]}
        answer = None
        if tool not in NEEDS_APPROVAL or await ctx.approval(
            f"{tool} of {call}", about=call, roles=["support-lead"], deadline=86_400, default="reject"
        ):
            answer = await call_tool(ctx, turn, tool, call)
        history.append({"tool": tool, "answer": answer})
        await ctx.progress(turn / MAX_TURNS, f"used {tool}")
    return {"answer": f"{task}: gave up after {MAX_TURNS} turns", "calls": [item["tool"] for item in history]}


async def next_approval() -> Call:
    """Poll until an approval is requested, and return it."""
    for _ in range(600):
        if requests := await app.approvals():
            return requests[0]
        await asyncio.sleep(0.05)
    raise TimeoutError("the agent requested no approval within 30 s")


async def main() -> None:
    async with app:
        worker = await app.worker()
        working = asyncio.create_task(worker.run(handle_signals=False))
        handle = await agent.enqueue(task="order 7 arrived broken")
        request = await next_approval()
        print("approval requested:", request["summary"])
        await handle.approve(by="ann", reason="seen the photo", roles=["support-lead"], digest=request["digest"])
        print(await handle.result(timeout=30))
        worker.stop()
        await working


if __name__ == "__main__":
    asyncio.run(main())
