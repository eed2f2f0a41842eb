"""An AI agent that works for the support desk: it thinks, uses tools, and asks a person before it gives money back.

Run it: python examples/agent.py

Every thought is a step, so the model is asked once for each; every tool call is a `once`, so no mail goes out twice and
no money is paid twice, whatever dies in between. The person may take a day: the job waits in the database meanwhile.
"""

import asyncio
from typing import Any

from detent import Context, Detent, OnceUnfinished

app = Detent()  # $DETENT_URL, else the file detent.db
MAX_TURNS = 8
NEEDS_APPROVAL = {"refund"}
Call = dict[str, Any]


async def think(task: str, seen: list[Call]) -> Call:
    """Stands for a language model: from what it has seen it decides what to do next."""
    await asyncio.sleep(0.01)
    match len(seen):
        case 0:
            return {"tool": "look_up", "order_id": 7}
        case 1:
            return {"tool": "refund", "order_id": 7, "amount": seen[0]["answer"]["paid"]}
        case 2:
            told = "is on its way" if seen[1]["answer"] else "was not granted"
            return {"tool": "mail", "text": f"Your refund {told}."}
    return {"tool": None, "text": f"{task}: done in {len(seen)} calls"}


async def look_up(order_id: int, *, key: str) -> dict[str, int]:
    return {"order_id": order_id, "paid": 120}


async def refund(order_id: int, amount: int, *, key: str) -> str:
    """The payment service knows keys, and can be asked what became of one."""
    return f"refund {order_id}/{amount}"


async def mail(text: str, *, key: str) -> str:
    return f"mailed: {text}"


TOOLS = {"look_up": look_up, "refund": refund, "mail": mail}


async def outcome_of(tool: str, arguments: Call, key: str) -> Any:
    """After a crash nobody here knows whether the call happened. Ask the other side, which knows the key."""
    return await TOOLS[tool](**arguments, key=key)


async def use(ctx: Context, turn: int, tool: str, arguments: Call) -> Any:
    key = ctx.effect_key(f"tool {turn}")
    try:
        return await ctx.once(f"tool {turn}", TOOLS[tool], **arguments, key=key)
    except OnceUnfinished:
        return await ctx.step(f"outcome {turn}", outcome_of, tool, arguments, key)


@app.job("agent", max_retries=5, timeout=300)
async def agent(ctx: Context, task: str) -> dict[str, Any]:
    seen: list[Call] = []
    for turn in range(MAX_TURNS):
        call = dict(await ctx.step("think", think, task, seen))
        tool = call.pop("tool")
        if tool is None:
            return {"answer": call["text"], "calls": [one["tool"] for one in seen]}
        answer = None
        if tool not in NEEDS_APPROVAL or await ctx.approval(
            f"{tool} of {call}", about=call, roles=["support-lead"], deadline=86_400, default="reject"
        ):
            answer = await use(ctx, turn, tool, call)
        seen.append({"tool": tool, "answer": answer})
        await ctx.progress(turn / MAX_TURNS, f"used {tool}")
    return {"answer": f"{task}: gave up after {MAX_TURNS} turns", "calls": [one["tool"] for one in seen]}


async def asked() -> Call:
    """The first line of the inbox, as soon as there is one."""
    for _ in range(600):
        if inbox := await app.approvals():
            return inbox[0]
        await asyncio.sleep(0.05)
    raise TimeoutError("the agent asked nobody")


async def main() -> None:
    async with app:
        worker = await app.worker()
        working = asyncio.create_task(worker.run(handle_signals=False))
        handle = await agent.enqueue(task="order 7 arrived broken")
        question = await asked()
        print("asked:", question["summary"])
        await handle.approve(by="ann", reason="seen the photo", roles=["support-lead"], digest=question["digest"])
        print(await handle.result(timeout=30))
        worker.stop()
        await working


if __name__ == "__main__":
    asyncio.run(main())
