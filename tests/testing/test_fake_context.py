"""FakeContext: a handler called as a function, with everything around it given by the test."""

from typing import Any

import pytest

from detent import Context, Detent
from detent.core.errors import InvalidInput
from detent.handler.approvals import ApprovalExpired
from detent.handler.children import ChildFailed
from detent.handler.outcomes import CancelRequested, WaitTimeout
from detent.testing.fake_context import FakeContext

app = Detent("sqlite:///:memory:")
pytestmark = pytest.mark.anyio


@app.job("child")
async def child(n: int) -> int:
    return n


async def test_results_and_errors_of_steps() -> None:
    ctx = FakeContext(steps={"bank": TimeoutError("no answer")})
    assert await ctx.step("add", lambda: 3) == 3
    with pytest.raises(TimeoutError, match="no answer"):
        await ctx.step("bank", lambda: 4, retries=2, backoff=[5])
    assert ctx.steps == {"add": 3} and ctx.sleeps == [5, 5]
    with pytest.raises(InvalidInput, match="STEP_RESULT_INVALID"):
        await ctx.step("bad", object)
    calls: list[int] = []
    assert await ctx.once("once", lambda: calls.append(1)) is None
    assert calls == [1] and ctx.steps == {"add": 3, "once": None}


async def test_waits() -> None:
    ctx = FakeContext(signals={"paid": {"amount": 5}})
    before = ctx.clock.now()
    assert await ctx.wait_for("paid", type=dict[str, int]) == {"amount": 5}
    with pytest.raises(WaitTimeout):
        await ctx.wait_for("opened", timeout="1h")
    assert ctx.clock.now() - before == 3_600_000_000 and ctx.waits == ["paid", "opened"]
    with pytest.raises(AssertionError, match=r"signals=\{'closed'"):
        await ctx.wait_for("closed")


@pytest.mark.parametrize(("default", "approved"), [("approve", True), ("reject", False)])
async def test_an_approval_at_its_deadline(default: str, approved: bool) -> None:
    decision = await FakeContext().approval("refund", deadline=60, default=default)
    assert bool(decision) is approved and decision.expired


async def test_approvals() -> None:
    ctx = FakeContext(approvals={"approval": True, "approval#2": False})
    assert await ctx.approval("refund", about={"order": 7}, roles=["lead"])
    assert not await ctx.approval("refund")
    assert ctx.approval_requests[0] == ("approval", "refund", {"order": 7}, ("lead",))
    with pytest.raises(ApprovalExpired):
        await ctx.approval("refund", deadline=60)
    with pytest.raises(AssertionError, match=r"approvals=\{'approval#4'"):
        await ctx.approval("refund")


async def test_children() -> None:
    ctx = FakeContext(children={"child": lambda n: n * 2, "child#2": ValueError("broken")})
    assert await (await ctx.enqueue(child, n=4)).result() == 8
    with pytest.raises(ChildFailed, match="JOB_EXECUTION_FAILED: ValueError: broken"):
        await ctx.gather(ctx.enqueue(child, n=5))
    assert await ctx.gather(*await ctx.enqueue_many(child, [{"n": 6}, {"n": 7}])) == [12, 14]
    assert [one.arguments for one in ctx.enqueued] == [{"n": n} for n in (4, 5, 6, 7)]
    with pytest.raises(AssertionError, match=r"children=\{'child'"):
        await FakeContext().enqueue(child, n=1).result()


async def test_requests_of_the_worker() -> None:
    ctx = FakeContext()
    ctx.stop()
    assert ctx.stopping and not ctx.cancelled
    ctx.cancel("no longer needed")
    assert ctx.cancelled and ctx.cancel_reason == "no longer needed"
    with pytest.raises(CancelRequested):
        await ctx.progress(0.1)


async def test_the_connection_of_a_transaction() -> None:
    written: list[str] = []

    class Connection:
        async def execute(self, query: str) -> None:
            written.append(query)

    ctx = FakeContext(connection=Connection())

    async def book() -> str:
        async with ctx.transaction() as connection:
            await connection.execute("INSERT")
        return "booked"

    assert await ctx.step("book", book) == "booked"
    assert written == ["INSERT"] and ctx.steps == {"book": "booked"}
    with pytest.raises(AssertionError, match="connection="):
        await FakeContext().transaction().__aenter__()


@pytest.mark.parametrize("contract", ["standard", "gate-b2", "p3c", "men"])
async def test_the_contract_is_that_of_the_job(contract: str) -> None:
    application = Detent("sqlite:///:memory:")

    @application.job("work", contract=contract)
    async def work(ctx: Context) -> Any:
        return [ctx.job_type, ctx.retries, ctx.idempotency_key, ctx.tenant_id]

    ctx = FakeContext(work, retries=2, idempotency_key="k", tenant="acme")
    assert await work(ctx) == ["work", 2, "k", "acme"]


def test_a_plain_handler() -> None:
    ctx = FakeContext(approvals={"approval": True}, signals={"paid": 5}, children={"child": 6}, steps={"pay": 7})
    sync = ctx.sync
    assert sync.approval("refund") and sync.wait_for("paid") == 5 and sync.step("pay", lambda: 0) == 7
    assert sync.gather(sync.enqueue(child, n=1)) == [6]
    sync.progress(2, "done")
    sync.sleep("1m")
    assert ctx.reports == [(1.0, "done")] and ctx.sleeps == [60] and ctx.approval_requests[0].summary == "refund"


def test_a_misspelled_fact_is_refused() -> None:
    with pytest.raises(TypeError, match="unknown arguments retry"):
        FakeContext(retry=1)
