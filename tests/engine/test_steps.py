"""Recorded steps: once under the token, remembered ever after, typed back; and `once`, at most once."""

import asyncio
import enum
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel

from detent.core.access import Scope
from detent.core.errors import DetentError, OnceUnfinished, StaleLease, StepMismatch
from detent.core.job import Step
from detent.core.outcome import Cancelled, Succeeded
from detent.engine import Engine
from detent.engine.execution.settle import MAX_RESULT
from detent.handler.context import Context
from detent.handler.sync_context import SyncContext
from detent.ports.claims import Claimed
from support.acts import LEASE_SECONDS, LONG, NAMES, PERMANENT, claim_one, notes_of, reach, refused, running
from support.clock import FakeClock

pytestmark = pytest.mark.anyio


class Receipt(BaseModel):
    number: int
    paid: Decimal
    at: datetime


class Shop:
    """Somebody outside, who counts how often it was called."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    async def pay(self, order: int, amount: str = "1.10") -> Receipt:
        self.calls.append((order, amount))
        return Receipt(number=len(self.calls), paid=Decimal(amount), at=datetime(2026, 1, 1, tzinfo=UTC))

    def plain(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append((args, kwargs))
        return {"n": len(self.calls)}

    def pair(self) -> tuple[int, str]:
        self.calls.append("pair")
        return 1, "one"

    async def breaks(self) -> int:
        self.calls.append("breaks")
        raise ValueError("not today")


async def claimed_again(engine: Engine, clock: FakeClock) -> Claimed:
    """Whoever held it is lost; the job is claimed anew."""
    clock.advance(LEASE_SECONDS)
    await engine.expire()
    clock.advance(LONG)
    return await claim_one(engine, worker="w2", reclaim=True)


async def steps_of(engine: Engine, job_id: str) -> dict[str, Step]:
    found = await engine.store.read(lambda tx: tx.steps.list_steps(job_id))
    return {step.name: step for step in found}


@pytest.mark.parametrize("contract", NAMES)
async def test_a_recorded_step_is_remembered_in_its_type(engine: Engine, clock: FakeClock, contract: str) -> None:
    shop = Shop()
    first = await running(engine, contract)
    receipt = await Context(first, engine).step("pay", shop.pay, 7, amount="2.50")
    assert isinstance(receipt, Receipt) and receipt.paid == Decimal("2.50")
    again = await claimed_again(engine, clock)
    assert await Context(again, engine).step("pay", shop.pay, 7, amount="2.50") == receipt
    assert shop.calls == [(7, "2.50")]
    step = (await steps_of(engine, first.id))["pay"]
    assert (step.finished, step.execution_no) == (True, 1)
    assert step.at >= (await engine.jobs.get(first.id)).created_at


async def test_what_comes_back_first_is_what_comes_back_later(engine: Engine, clock: FakeClock) -> None:
    shop = Shop()
    values: list[Any] = []
    claimed = await running(engine)
    for _ in range(2):
        ctx = Context(claimed, engine)
        values.append(await ctx.step("typed", shop.pair))
        values.append(await ctx.step("untyped", lambda: (1, "one")))
        values.append(await ctx.step("nothing", lambda: None))
        claimed = await claimed_again(engine, clock)
    assert values == [(1, "one"), [1, "one"], None] * 2
    assert shop.calls == ["pair"]


async def test_every_argument_reaches_the_function(engine: Engine) -> None:
    def echo(*args: Any, **kwargs: Any) -> Any:
        return [args, kwargs]

    names = {"name": "n", "fn": "f", "self": "s", "args": 2, "kwargs": 3, "function": 4}
    ctx = Context(await running(engine), engine)
    assert await ctx.step("step", echo, 1, **names) == [[1], names]
    assert await ctx.once("once", echo, 1, **names) == [[1], names]
    assert await in_thread(ctx, lambda sync: sync.step("step in thread", echo, 1, **names)) == [[1], names]
    assert await in_thread(ctx, lambda sync: sync.once("once in thread", echo, 1, **names)) == [[1], names]


async def test_loops_number_themselves(engine: Engine, clock: FakeClock) -> None:
    shop = Shop()
    claimed = await running(engine)
    for rounds in (2, 3):
        ctx = Context(claimed, engine)
        for number in range(rounds):
            await ctx.step("mail", shop.plain, number)
        claimed = await claimed_again(engine, clock)
    assert list(await steps_of(engine, claimed.id)) == ["mail", "mail#2", "mail#3"]
    assert [args for args, _ in shop.calls] == [(0,), (1,), (2,)]


async def test_steps_side_by_side(engine: Engine, clock: FakeClock) -> None:
    shop = Shop()
    claimed = await running(engine)
    for _ in range(2):
        ctx = Context(claimed, engine)
        await asyncio.gather(*(ctx.step("mail", shop.plain, number) for number in range(5)))
        claimed = await claimed_again(engine, clock)
    assert len(shop.calls) == 5 and len(await steps_of(engine, claimed.id)) == 5


@pytest.mark.parametrize("kind", ["step", "once"])
async def test_other_arguments_are_refused(engine: Engine, clock: FakeClock, kind: str) -> None:
    shop = Shop()
    await getattr(Context(await running(engine), engine), kind)("pay", shop.pay, 7)
    ctx = Context(await claimed_again(engine, clock), engine)
    with pytest.raises(StepMismatch, match=r"'pay'.*other arguments") as caught:
        await getattr(ctx, kind)("pay", shop.pay, 8)
    assert (caught.value.code, caught.value.http_status, len(shop.calls)) == ("STEP_MISMATCH", 409, 1)


class Colour(enum.Enum):
    RED = 1


@dataclass
class Address:
    street: str
    tags: frozenset[str]


SAME: list[Callable[[], Any]] = [
    lambda: {"b": 1, "a": [1, 2.5, None, True]},
    lambda: {("x", 1): {3, 2, 1}, None: b"\x00", 4: "ü"},
    lambda: Address("a", frozenset(map(str, range(20)))),
    lambda: Receipt(number=1, paid=Decimal("1.0"), at=datetime(2026, 1, 1, tzinfo=UTC)),
    lambda: (Decimal("1.1"), datetime(2026, 1, 1, tzinfo=UTC), Colour.RED, object(), Receipt, print),
    lambda: "\ud800",
]


async def test_the_same_arguments_have_one_digest_and_others_another() -> None:
    from detent.handler.argument_digest import digest_of

    digests = [digest_of((make(),), {"k": make()}) for make in SAME for _ in range(2)]
    assert digests[::2] == digests[1::2] and len(set(digests)) == len(SAME)
    assert digest_of((1,), {}) != digest_of((), {"a": 1}) != digest_of(("1",), {})
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(DetentError, match="contain themselves"):
        digest_of((circle,), {})


async def test_a_raising_step_is_not_recorded_and_runs_again(engine: Engine, clock: FakeClock) -> None:
    shop = Shop()
    with pytest.raises(ValueError, match="not today"):
        await Context(await running(engine), engine).step("try", shop.breaks)
    again = await claimed_again(engine, clock)
    with pytest.raises(ValueError, match="not today"):
        await Context(again, engine).step("try", shop.breaks)
    assert len(shop.calls) == 2 and not await steps_of(engine, again.id)


async def test_results_that_cannot_be_stored_are_refused(engine: Engine) -> None:
    async def lies() -> int:
        return "no number"  # type: ignore[return-value]

    ctx = Context(await running(engine), engine)
    await refused(ctx.step("object", object), "STEP_RESULT_INVALID")
    await refused(ctx.step("lies", lies), "STEP_RESULT_INVALID")
    await refused(ctx.step("nan", lambda: float("nan")), "STEP_RESULT_INVALID")
    await refused(ctx.step("big", lambda: "x" * MAX_RESULT), "STEP_RESULT_TOO_LARGE")
    await refused(ctx.step("half", lambda: "\ud800"), "STEP_RESULT_INVALID")
    assert await ctx.step("zero", lambda: "\x00") == "\x00"
    for name in ("", "a#2", "x" * 201, "a\nb", 7):
        await refused(ctx.step(name, print), "NAME_INVALID")  # type: ignore[arg-type]
    assert list(await steps_of(engine, ctx.job_id)) == ["zero"]


async def test_unreadable_annotations_are_plain_json(engine: Engine) -> None:
    def strange() -> "Nowhere":  # type: ignore[name-defined]  # noqa: F821
        return {"a": 1}

    class Caller:
        def __call__(self) -> Receipt:
            return Receipt(number=1, paid=Decimal(1), at=datetime(2026, 1, 1, tzinfo=UTC))

    ctx = Context(await running(engine), engine)
    assert await ctx.step("strange", strange) == {"a": 1}
    assert isinstance(await ctx.step("object", Caller()), Receipt)
    assert isinstance(await ctx.step("partial", partial(Shop().pay, 7)), Receipt)


# A zombie: somebody else has the job, or it has ended.


@pytest.mark.parametrize("kind", ["step", "once"])
async def test_a_late_record_is_refused_and_noted(engine: Engine, clock: FakeClock, kind: str) -> None:
    shop = Shop()
    late = Context(await running(engine), engine)
    again = await claimed_again(engine, clock)
    with pytest.raises(StaleLease, match="'pay' is not recorded"):
        await getattr(late, kind)("pay", shop.pay, 7)
    assert len(shop.calls) == (1 if kind == "step" else 0), "a once asks before it acts"
    assert not await steps_of(engine, again.id)
    note = (await notes_of(engine, again.id))[-1]
    assert note.name == "step.refused" and note.data == {
        "code": "LEASE_STALE",
        "message": note.data["message"],
        "asked": "pay",
    }
    assert await Context(again, engine).step("pay", shop.pay, 7)


async def test_a_late_record_does_not_touch_what_the_new_holder_recorded(engine: Engine, clock: FakeClock) -> None:
    late = Context(await running(engine), engine)
    again = await claimed_again(engine, clock)
    assert await Context(again, engine).step("who", lambda: "new") == "new"
    with pytest.raises(StaleLease):
        await late.step("who", lambda: "old")
    assert (await steps_of(engine, again.id))["who"].result == '"new"'


@pytest.mark.parametrize("outcome", [Succeeded(), PERMANENT, Cancelled()])
async def test_nothing_is_recorded_after_the_end(engine: Engine, outcome: Any) -> None:
    held = await running(engine)
    await engine.settle(held.id, held.token, outcome)
    await refused(Context(held, engine).step("late", lambda: 1), "LEASE_STALE", 409)
    assert not await steps_of(engine, held.id)


async def test_steps_are_recorded_while_a_cancel_is_asked_for(engine: Engine) -> None:
    held = await running(engine)
    await engine.jobs.cancel(held.id, Scope("ann"))
    assert await Context(held, engine).step("tidy", lambda: 1) == 1


async def test_a_record_whose_reply_was_lost_is_said_again(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store took it, the answer did not come: the same record counts once, and the function is not called again."""
    from detent.core.errors import StoreUnavailable

    shop, real = Shop(), engine.store.record_step
    lost = iter([True, False])

    async def loses(step: Step, token: str) -> bool:
        answer = await real(step, token)
        if next(lost):
            raise StoreUnavailable("the reply was lost")
        return answer

    monkeypatch.setattr(engine.store, "record_step", loses)

    async def no_pause(_seconds: float) -> None:
        return None

    ctx = Context(await running(engine), engine, pause=no_pause)
    assert await ctx.step("pay", shop.plain) == {"n": 1}
    assert list(await steps_of(engine, ctx.job_id)) == ["pay"] and len(shop.calls) == 1


# once


async def test_once_is_remembered(engine: Engine, clock: FakeClock) -> None:
    shop = Shop()
    receipt = await Context(await running(engine), engine).once("pay", shop.pay, 7)
    again = Context(await claimed_again(engine, clock), engine)
    assert await again.once("pay", shop.pay, 7) == receipt and len(shop.calls) == 1


async def test_once_that_was_begun_is_never_run_again(engine: Engine, clock: FakeClock) -> None:
    class Death(BaseException):
        pass

    def dies() -> None:
        raise Death

    shop = Shop()
    with pytest.raises(Death):
        await Context(await running(engine), engine).once("pay", dies)
    for _ in range(2):
        ctx = Context(await claimed_again(engine, clock), engine)
        with pytest.raises(OnceUnfinished, match="begun in execution 1 and never finished; it is not run") as caught:
            await ctx.once("pay", shop.plain)
        assert (caught.value.code, caught.value.http_status) == ("ONCE_UNFINISHED", 409)
        with pytest.raises(OnceUnfinished):
            await Context(ctx._claimed, engine).step("pay", shop.plain)
    assert not shop.calls


async def test_once_that_raised_is_never_run_again_and_says_why(engine: Engine, clock: FakeClock) -> None:
    shop = Shop()
    with pytest.raises(ValueError, match="not today"):
        await Context(await running(engine), engine).once("pay", shop.breaks)
    ctx = Context(await claimed_again(engine, clock), engine)
    with pytest.raises(OnceUnfinished, match=r"never finished \(ValueError: not today\)"):
        await ctx.once("pay", shop.breaks)
    assert shop.calls == ["breaks"]
    assert await ctx.once("pay-by-hand", shop.plain) == {"n": 2}, "the handler may go on under another name"


# requeue and reopen


async def test_a_reopened_job_remembers_its_steps(engine: Engine, clock: FakeClock) -> None:
    shop = Shop()
    held = await running(engine, "formal")
    await Context(held, engine).step("pay", shop.plain)
    await engine.settle(held.id, held.token, PERMANENT)
    await engine.jobs.reopen(held.id, Scope("ann"))
    assert await Context(await claim_one(engine), engine).step("pay", shop.plain) == {"n": 1}
    assert len(shop.calls) == 1


@pytest.mark.parametrize("take_steps", [True, False])
async def test_a_requeued_job_remembers_on_request(engine: Engine, take_steps: bool) -> None:
    shop = Shop()
    held = await running(engine)
    first = Context(held, engine)
    await first.step("pay", shop.plain)
    await engine.settle(held.id, held.token, PERMANENT)
    dead_letter = (await engine.jobs.get(held.id)).dlq_id
    assert dead_letter is not None
    await engine.dead_letters.requeue(dead_letter, Scope("ann"), take_steps=take_steps)
    ctx = Context(await claim_one(engine), engine)
    assert ctx.execution_no == 1 and ctx.effect_key("pay") == first.effect_key("pay")
    assert await ctx.step("pay", shop.plain) == {"n": 1 if take_steps else 2}


# plain functions in their thread


async def in_thread(ctx: Context, call: Callable[[SyncContext], Any]) -> Any:
    return await asyncio.to_thread(call, SyncContext(ctx, asyncio.get_running_loop()))


async def test_the_same_from_a_thread(engine: Engine, clock: FakeClock) -> None:
    shop = Shop()

    def handler(ctx: SyncContext) -> list[Any]:
        return [
            ctx.step("plain", shop.plain, 1, name="n", fn="f"),
            ctx.step("async", shop.pay, 7),
            ctx.once("one", shop.plain),
            ctx.once("two", shop.pay, 7),
            ctx.step("one more", shop.pair),
        ]

    first = await in_thread(Context(await running(engine), engine), handler)
    assert first[0] == {"n": 1} and isinstance(first[1], Receipt) and first[4] == (1, "one")
    again = Context(await claimed_again(engine, clock), engine)
    assert await in_thread(again, handler) == first and len(shop.calls) == 5


async def test_refusals_from_a_thread(engine: Engine, clock: FakeClock) -> None:
    shop = Shop()

    def once(ctx: SyncContext) -> Any:
        return ctx.once("pay", shop.breaks)

    with pytest.raises(ValueError, match="not today"):
        await in_thread(Context(await running(engine), engine), once)
    late = Context(await claimed_again(engine, clock), engine)
    with pytest.raises(OnceUnfinished, match="ValueError: not today"):
        await in_thread(late, once)
    await claimed_again(engine, clock)
    with pytest.raises(StaleLease):
        await in_thread(late, lambda ctx: ctx.step("late", shop.plain))


async def test_steps_need_no_status_of_their_own(engine: Engine, clock: FakeClock) -> None:
    """A job that waits keeps its steps; who asks next finds them."""
    job = await reach(engine, clock, "standard", "waiting")
    await engine.jobs.signal(job.id, "answer", Scope("test"), 1)
    held = await claim_one(engine)
    assert held.execution_no == 2
    assert await Context(held, engine).step("after", lambda: 5) == 5
