"""ctx.approval: the decision, its digest, votes of named people, roles, quorum and deadline."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from detent import ApprovalExpired, Context, Decision, Detent, JobFailed, Retry, SyncContext
from detent.core.contract.model import Phase
from detent.core.errors import DetentError
from detent.proof.verify.verify import verify
from support.waiting import until
from support.worker.running import working

pytestmark = pytest.mark.anyio


async def held(handle: Any) -> Any:
    job = await handle.job()
    return job if job.phase is Phase.BLOCKED and job.wait_kind == "approval" else None


async def refusal(act: Any) -> DetentError:
    with pytest.raises(DetentError) as refused:
        await act
    return refused.value


def declare(app: Detent, **options: Any) -> Any:
    @app.job("pay")
    async def pay(ctx: Context, amount: int) -> dict[str, Any]:
        decision = await ctx.approval(f"pay {amount}", about={"amount": amount}, **options)
        return {
            "approved": decision.approved,
            "by": list(decision.by),
            "reason": decision.reason,
            "yes": bool(decision),
        }

    return pay


async def test_the_decision_comes_back_to_the_handler(app: Detent) -> None:
    pay = declare(app)
    async with working(app):
        yes, no = await pay.enqueue(amount=7), await pay.enqueue(amount=8)
        assert (await until(lambda: held(yes))).status == "waiting_approval"
        await until(lambda: held(no))
        await yes.approve(by="ann", reason="fine")
        await no.reject(by="bob", reason="too much")
        assert await yes.result(30) == {"approved": True, "by": ["ann"], "reason": "fine", "yes": True}
        assert await no.result(30) == {"approved": False, "by": ["bob"], "reason": "too much", "yes": False}
        error = await refusal(yes.approve(by="ann"))
        assert (error.code, error.http_status) == ("JOB_TRANSITION_INVALID", 409)
    names = [event["event"] for event in await no.events()]
    assert "job.held" in names and "job.decided" in names
    assert [name for name in names if name.startswith("approval")] == ["approval.requested", "approval.rejected"]
    report = await verify(app.engine.store, app.engine.contracts)
    assert report.ok, report.violations


async def test_app_approvals_lists_open_approvals(app: Detent) -> None:
    pay = declare(app, roles=["finance", "cfo"], quorum=2, deadline=3_600)
    before = await (await pay.using(hold=True).enqueue(amount=1)).job()
    async with working(app):
        handle = await pay.using(tenant="acme").enqueue(amount=9)
        await until(lambda: held(handle))
        first, second = sorted(await app.approvals(), key=lambda line: line["summary"], reverse=True)
        assert (first["job_id"], first["summary"], first["quorum"]) == (before.id, "pay before its first execution", 1)
        assert (second["job_id"], second["about"], second["missing"]) == (handle.id, {"amount": 9}, 2)
        assert (second["roles"], second["default"], len(second["digest"])) == (["cfo", "finance"], "fail", 64)
        assert second["deadline"] is not None and second["votes"] == []
        assert [line["job_id"] for line in await app.approvals(tenant="acme")] == [handle.id]
        assert [line["job_id"] for line in await app.approvals(roles=["intern"])] == [before.id]
        await handle.approve(by="ann", roles=["finance"])
        (line,) = await app.approvals(tenant="acme")
        assert (line["missing"], [vote["person"] for vote in line["votes"]]) == (1, ["ann"])
        await handle.cancel()
        assert [line["job_id"] for line in await app.approvals()] == [before.id], "a cancelled job has no open approval"


async def test_a_quorum_counts_each_person_once(app: Detent) -> None:
    pay = declare(app, quorum=2)
    async with working(app):
        handle = await pay.enqueue(amount=3)
        await until(lambda: held(handle))
        assert (await handle.approve(by="ann")).status == "waiting_approval"
        for again in ("ann", " ann ", "Ann", "ＡＮＮ"):
            error = await refusal(handle.approve(by=again))
            assert (error.code, error.http_status) == ("APPROVAL_REQUIRED", 400)
        assert (await handle.job()).status == "waiting_approval"
        await handle.approve(by="bob")
        assert (await handle.result(30))["by"] == ["ann", "bob"]
        other = await pay.enqueue(amount=4)
        await until(lambda: held(other))
        await other.approve(by="ann")
        await other.reject(by="ANN", reason="on second thoughts")
        assert await other.result(30) == {
            "approved": False, "by": ["ann"], "reason": "on second thoughts", "yes": False,
        }  # fmt: skip
    acts = [entry.act for _, _, entry in await app.engine.audit()]
    assert acts.count("job.approve") == 3 and acts.count("job.reject") == 1


async def test_roles_are_checked_where_they_are_known(app: Detent) -> None:
    pay = declare(app, roles=["finance"])
    async with working(app):
        handle = await pay.enqueue(amount=3)
        await until(lambda: held(handle))
        error = await refusal(handle.approve(by="ann", roles=["intern"]))
        assert (error.code, error.http_status) == ("APPROVAL_ROLE_REQUIRED", 403)
        await handle.approve(by="ann", roles=["intern", "finance"])
        assert (await handle.result(30))["by"] == ["ann"]
        unknown = await pay.enqueue(amount=4)
        await until(lambda: held(unknown))
        await unknown.approve(by="bob")
        await unknown.result(30)
    (approval,) = await app.engine.approvals.of_job(handle.id)
    assert approval.votes[0].roles == ("intern", "finance")
    assert (await app.engine.approvals.of_job(unknown.id))[0].votes[0].roles is None, "no roles were passed"


async def test_a_digest_must_match_what_is_asked_now(app: Detent) -> None:
    pay = declare(app)
    async with working(app):
        handle = await pay.enqueue(amount=3)
        await until(lambda: held(handle))
        (line,) = await app.approvals()
        error = await refusal(handle.approve(by="ann", digest="0" * 64))
        assert (error.code, error.http_status) == ("APPROVAL_CHANGED", 409)
        await handle.approve(by="ann", digest=line["digest"])
        assert (await handle.result(30))["approved"]


@pytest.mark.parametrize(
    ("default", "ends"),
    [("approve", (True, True)), (True, (True, True)), ("reject", (False, True)), (False, (False, True))],
)
async def test_a_deadline_decides_as_declared(app: Detent, default: Any, ends: tuple[bool, bool]) -> None:
    @app.job("ask")
    async def ask(ctx: Context) -> list[Any]:
        decision = await ctx.approval("now or never", deadline=0.05, default=default)
        return [decision.approved, decision.expired, list(decision.by)]

    async with working(app):
        assert await (await ask.enqueue()).result(30) == [*ends, []]


async def test_a_deadline_without_a_default_raises(app: Detent) -> None:
    @app.job("ask")
    async def ask(ctx: Context) -> str:
        moment = datetime.now(UTC) + timedelta(milliseconds=50)
        try:
            await ctx.approval("now or never", deadline=moment)
        except ApprovalExpired as expired:
            return str(expired)
        return "impossible"

    async with working(app):
        handle = await ask.enqueue()
        assert "before its deadline" in await handle.result(30)
    report = await verify(app.engine.store, app.engine.contracts)
    assert report.ok, report.violations


async def test_approvals_in_a_loop_are_numbered(app: Detent) -> None:
    @app.job("loops")
    async def loops(ctx: Context) -> list[str]:
        decisions: list[Decision] = [await ctx.approval(f"part {n}") for n in range(3)]
        return [decision.by[0] for decision in decisions]

    async with working(app):
        handle = await loops.enqueue()
        for n, person in enumerate(("ann", "bob", "cid")):
            await until(lambda n=n: _waits_for_approval(app, handle, f"part {n}"))
            await handle.approve(by=person)
        assert await handle.result(30) == ["ann", "bob", "cid"]


async def _waits_for_approval(app: Detent, handle: Any, summary: str) -> bool:
    return bool(await held(handle)) and any(line["summary"] == summary for line in await app.approvals())


async def test_a_decision_is_recorded_and_does_not_apply_to_another_summary(app: Detent) -> None:
    amounts = iter((1, 1, 1, 2, 2))

    @app.job("changes", max_retries=5)
    async def changes(ctx: Context) -> str:
        amount = next(amounts)
        await ctx.approval(f"pay {amount}")
        raise Retry("again", after=0)

    async with working(app):
        handle = await changes.enqueue()
        await until(lambda: held(handle))
        await handle.approve(by="ann")
        with pytest.raises(JobFailed) as failed:
            await handle.result(30)
    assert failed.value.extra["job_code"] == "STEP_MISMATCH"


@pytest.mark.parametrize("contract", ["gate-b2", "men", "p3c", "streams", "formal"])
async def test_a_contract_without_the_status_refuses(app: Detent, contract: str) -> None:
    @app.job("ask", contract=contract)
    async def ask(ctx: Context) -> None:
        await ctx.approval("may I")

    async with working(app):
        handle = await ask.enqueue()
        job = await until(lambda: _ended(handle))
    assert job.error_code == "CONTRACT_LACKS_MOVE"


async def _ended(handle: Any) -> Any:
    job = await handle.job()
    return job if job.phase is Phase.FINAL else None


@pytest.mark.parametrize(
    "options",
    [{"quorum": 0}, {"quorum": True}, {"roles": "boss"}, {"roles": [""]}, {"default": "maybe"}, {"deadline": -1}],
)
async def test_an_invalid_approval_is_refused(app: Detent, options: dict[str, Any]) -> None:
    pay = declare(app, **options)
    async with working(app):
        with pytest.raises(JobFailed) as failed:
            await (await pay.enqueue(amount=1)).result(30)
    assert failed.value.extra["job_code"] == "APPROVAL_INVALID"


async def test_a_plain_handler(app: Detent) -> None:
    @app.job("ask")
    def ask(ctx: SyncContext) -> str:
        return ctx.approval("may I").by[0]

    async with working(app):
        handle = await ask.enqueue()
        await until(lambda: held(handle))
        await handle.approve(by="ann")
        assert await handle.result(30) == "ann"


async def test_a_signal_decides_nothing(app: Detent) -> None:
    pay = declare(app)
    async with working(app):
        handle = await pay.enqueue(amount=1)
        job = await until(lambda: held(handle))
        await handle.signal(job.wait_name, {"approved": True})
        assert (await handle.job()).version == job.version
        await handle.reject(by="ann")
        assert (await handle.result(30))["approved"] is False


async def test_why_shows_the_approval_and_hides_payloads(app: Detent) -> None:
    pay = declare(app, quorum=2, roles=["boss"])
    async with working(app):
        handle = await pay.enqueue(amount=77)
        await until(lambda: held(handle))
        await handle.approve(by="ann", reason="fine by 77")
        explanation = await app.engine.jobs.why(handle.id)
        assert explanation.reason == "WAITS_FOR_APPROVAL"
        assert "'pay 77' by boss, 1 of 2 approvals (ann approved)" in explanation.sentence
        hidden = await app.engine.scoped(tenant=None, payloads=False).jobs.why(handle.id)
        shown = hidden.details["approval"]
        assert (shown["about"], shown["votes"][0]["reason"]) == (None, None)
        assert shown["summary"] is None and "pay" not in hidden.sentence.partition(" since ")[0]
