"""The handler of simulated jobs, with steps, waits, children and approvals through the real context."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from detent.core.contract.model import Contract, Move
from detent.core.errors import DetentError, OnceUnfinished, QuotaExceeded, StoreUnavailable
from detent.engine import Submission
from detent.handler.children import Child, ChildFailed
from detent.handler.context import Context
from detent.handler.handler import Options, inspect_handler
from detent.handler.outcomes import Cancel, Fail, Retry, Snooze, WaitTimeout
from detent.ports.claims import Claimed

from .loop import current_process

JOB_TYPE = "work"
SIGNAL = "go"
TOKEN_FIELD = "told_by"
"""Field of results and step results that holds the token under which the handler ran."""
TOKEN_PREFIX = "told by "
"""Precedes that token in error messages."""
SOON = ", soon"
"""Ends the message of a retry whose handler chooses the delay."""
_SLICES = 4
_LONG_SECONDS = 0.5
_SLOW_SECONDS = 1.7
RETRY_SOON_SECONDS = 0.5
SNOOZE_SECONDS = 1.0
SLEEP = "sleep"
SLEEP_SECONDS = 3.0
WAIT_SECONDS = 20.0
HOPELESS = "HOPELESS"
"""The code of a failure that its handler does not want to be retried."""
QUESTION = "may it go on"
DEADLINES = (2.5, 25.0)
"""Seconds until an approval is decided by its default: of jobs with an even number of plan lines, and of others."""
_DEFAULTS = ("reject", "approve", "fail")
CHILDREN = 2
_OUTCOMES: dict[str, Callable[[str], Exception]] = {
    "retry": Retry,
    "retry soon": lambda message: Retry(message + SOON, after=RETRY_SOON_SECONDS),
    "fail": partial(Fail, code=HOPELESS),
    "snooze": lambda _: Snooze(SNOOZE_SECONDS),
    "cancel": Cancel,
}


async def work(
    ctx: Context,
    plan: list[list[Any]],
    steps: bool = False,
    family: int = 0,
    question: int = 0,
    deaf: bool = False,
) -> dict[str, Any]:
    """The handler. Each execution follows one line of the plan, [act, seconds]; after the last line it
    succeeds, and takes as long as that line.

    steps: record a step before and after the act, and run a `once`. family: enqueue children, this many generations
    deep, and wait for them at the end. question: wait for that many approvals. deaf: ignore that the task is
    cancelled, like a handler in a thread.
    """
    number = ctx.execution_no - 1
    line: list[Any] = plan[number] if number < len(plan) else ["succeed", plan[-1][1] if plan else 0.01]
    act, seconds = line
    result: dict[str, Any] = {TOKEN_FIELD: ctx._claimed.token}
    message = f"{TOKEN_PREFIX}{ctx._claimed.token} in execution {ctx.execution_no}"
    try:
        if steps:
            result["first"] = await ctx.step("first", partial(_token_of, ctx, "first"))
        children = await enqueue_children(ctx, plan, family) if family else []
        slices = _SLICES if steps else 1  # without steps, a handler that a stall interrupts ends right after it
        for number in range(slices):
            pause = partial(_pause, max(seconds / slices, _slowness()), ignores_cancel=deaf)
            await (_pause_once(ctx, pause) if steps and number == 0 else pause())
            if ctx.cancelled and act != "ignore":
                raise Cancel(message)
            if steps and seconds > _LONG_SECONDS:  # long enough to lose the lease between two steps
                await ctx.step("slice", partial(_token_of, ctx, f"slice#{number + 1}" if number else "slice"))
        if act in _OUTCOMES:
            raise _OUTCOMES[act](message)
        if act in _WAITS:
            data = await ctx.wait_for(SIGNAL, timeout=_WAITS[act])
            _check_received(ctx, ctx.job_id, _SIGNAL_DATA, data)
        if act == "sleep":
            await ctx.sleep(SLEEP_SECONDS)
            _check_received(ctx, ctx.job_id, _SLEPT, True)
        if question:
            default, deadline = _DEFAULTS[len(plan) % 3], DEADLINES[len(plan) % 2]
            decision = await ctx.approval(QUESTION, quorum=question, deadline=deadline, default=default)
            _check_received(ctx, ctx.job_id, _APPROVED, decision.approved)
        results = await ctx.gather(*children, return_exceptions=len(plan) % 2 == 0)
        for child, child_result in zip(children, results, strict=True):
            if not isinstance(child_result, ChildFailed):
                _check_received(ctx, child.id, _RESULT, child_result)
        if steps:
            result["last"] = await ctx.step("last", partial(_token_of, ctx, "last"))
    except ChildFailed:
        raise Fail(message, code="CHILD_FAILED") from None
    except (QuotaExceeded, StoreUnavailable, WaitTimeout) as error:
        raise Retry(f"{message}: {type(error).__name__}") from None
    except (DetentError, Retry, Fail, Snooze, Cancel):
        raise
    except Exception as error:
        ctx._engine.store.handler_findings.append((ctx.job_id, "handler.error", repr(error)))  # type: ignore[attr-defined]
        raise
    return result


_WAITS = {"wait": WAIT_SECONDS, "wait long": None}
_SLEPT = f"SELECT iif(count(*), 'true', 'false') FROM detent_signals WHERE job_id = ? AND name = '{SLEEP}'"
_SIGNAL_DATA = f"SELECT data FROM detent_signals WHERE job_id = ? AND name = '{SIGNAL}'"
_APPROVED = (
    "SELECT iif(decision = 'approve', 'true', 'false') FROM detent_approvals WHERE job_id = ? AND decision IS NOT NULL"
)
_RESULT = "SELECT result FROM detent_job_list WHERE id = ? AND result IS NOT NULL"


def _check_received(ctx: Context, job_id: str, query: str, value: Any) -> None:
    ctx._engine.store.check_received(job_id, query, value)  # type: ignore[attr-defined]


def _token_of(ctx: Context, name: str) -> dict[str, str]:
    """A step function whose result is the token under which it ran."""
    ctx._engine.store.step_called(ctx.job_id, ctx._claimed.token, name)  # type: ignore[attr-defined]
    return {TOKEN_FIELD: ctx._claimed.token}


def has_slices(claimed: Claimed, arguments: Mapping[str, Any]) -> bool:
    """Whether this execution records several steps one after the other."""
    line = arguments["plan"][claimed.execution_no - 1 :][:1] or arguments["plan"][-1:]
    return bool(arguments.get("steps")) and bool(line) and line[0][1] > _LONG_SECONDS


def _slowness() -> float:
    """The least duration of a slice in seconds: more than a moment if the process is in trouble."""
    process = current_process.get()
    return _SLOW_SECONDS if process is not None and process.slow_until > process.loop.now else 0.0


async def _pause(seconds: float, *, ignores_cancel: bool) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while (left := end - loop.time()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            if not ignores_cancel:
                raise


async def _pause_once(ctx: Context, pause: Callable[[], Awaitable[None]]) -> None:
    """Run the pause as a `once` and count how often it really ran."""
    effects: Counter[str] = ctx._engine.store.effects  # type: ignore[attr-defined]

    async def act() -> None:
        effects[ctx.job_id] += 1
        await pause()

    with suppress(OnceUnfinished):
        await ctx.once("only", act)


async def old_work(ctx: Context, plan: list[list[Any]], steps: bool = False, family: int = 0) -> dict[str, Any]:
    """The previous version of the handler: it cannot be called with the other arguments."""
    return await work(ctx, plan, steps, family)


HANDLER = inspect_handler(JOB_TYPE, work, Options(), "auto")
OLD_HANDLER = inspect_handler(JOB_TYPE, old_work, Options(), "auto")


class ChildJob:
    """The job definition a parent enqueues its children with: its own handler and contract."""

    name = JOB_TYPE
    handler = HANDLER

    def __init__(self, contract: str) -> None:
        self._contract = contract

    def submission(self, payload: dict[str, Any]) -> Submission:
        return Submission(self.name, payload, contract=self._contract)

    async def enqueue(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("simulated children are enqueued by ctx.enqueue_many")


async def enqueue_children(ctx: Context, plan: Sequence[list[Any]], depth: int) -> list[Child[Any]]:
    """Enqueue two children with parts of their parent's plan; they have children too until depth is 0."""
    plans = [{"plan": [[act, seconds / 2] for act, seconds in plan[n:3]], "family": depth - 1} for n in range(CHILDREN)]
    return await ctx.enqueue_many(ChildJob(ctx._claimed.contract), plans)


def relation_payload(contract: Contract, number: int) -> dict[str, int]:
    """Handler arguments for children and approvals of a producer's job `number`, if the contract supports them."""
    payload = {}
    if number % 4 == 1 and contract.has(Move.WAIT):
        payload["family"] = 1 + number % 2 if number % 8 == 1 else 1
    if number % 5 in (2, 4) and contract.has(Move.HOLD):
        payload["question"] = 1 + number % 2
    return payload
