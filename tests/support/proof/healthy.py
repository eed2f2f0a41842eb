"""Builds a healthy database with jobs of all six contracts in every status in which a job can stay."""

from pathlib import Path
from typing import Any

import pytest

from detent.core.access import Scope
from detent.core.approval import make_approval_request
from detent.core.child_ids import child_id
from detent.core.contract.builtin import CONTRACTS
from detent.core.errors import IllegalMove
from detent.core.job import APPROVAL, CHILDREN, Failure, Job, Step, Wait
from detent.core.outcome import Cancelled, Failed, Outcome, Snoozed, Stopped, Succeeded, Waits
from detent.core.times import SECOND, from_iso
from detent.engine import Engine, Submission
from detent.engine.execution import children as child_acts
from detent.engine.execution.children import ChildRequest
from detent.engine.schedules.request import ScheduleRequest
from detent.ports.claims import Claimed
from detent.ports.store import Store
from detent.ports.tx import Tx
from detent.stores.sqlite.store import SqliteStore

LEASE = 30.0
TRANSIENT = Failed(Failure("TASK_EXECUTION_FAILED", "try again", "Boom"))
BROKEN = Failed(Failure("BROKEN", "never works", "Broken", retryable=False))
DONE = Succeeded('{"n":1}')


class ManualClock:
    """A clock that changes only by `advance`."""

    def __init__(self) -> None:
        self.at = from_iso("2026-02-25T12:00:00Z", field="start")

    def now(self) -> int:
        return self.at

    def monotonic(self) -> float:
        return self.at / SECOND

    def advance(self, seconds: float) -> None:
        self.at += int(seconds * SECOND)


class DatabaseBuilder:
    """Creates jobs and leads them to a status, one at a time; each has its own job type, so claims find only it."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self.engine = Engine(store)
        self._kinds = 0

    async def job(self, contract: str, **fields: Any) -> Job:
        self.clock.advance(1)
        self._kinds += 1
        submission = Submission(f"kind-{self._kinds}", {"n": self._kinds}, contract, actor="ann", **fields)
        return (await self.engine.jobs.submit(submission)).job

    async def claim(self, job: Job, **options: Any) -> Claimed:
        self.clock.advance(1)
        types = frozenset({job.job_type})
        claimed = await self.engine.claim(self.engine.claim_request("w1", 5, LEASE, job_types=types, **options))
        assert [claim.id for claim in claimed] == [job.id]
        return claimed[0]

    async def settle(self, claimed: Claimed, outcome: Outcome) -> Job:
        self.clock.advance(1)
        return await self.engine.settle(claimed.id, claimed.token, outcome)

    async def run(self, contract: str, *outcomes: Outcome, **fields: Any) -> Job:
        """Run a new job once per outcome; the clock advances to each due time."""
        job = await self.job(contract, **fields)
        for outcome in outcomes:
            if job.due_at and job.due_at > self.clock.at:
                self.clock.at = job.due_at
            job = await self.settle(await self.claim(job), outcome)
        return job

    async def lose(self, job: Job) -> Job:
        await self.claim(job)
        self.clock.advance(LEASE + 1)
        assert job.id in [expired.id for expired in await self.engine.expire()]
        return await self.engine.jobs.get(job.id)


async def build(path: Path) -> None:
    clock = ManualClock()
    await build_on(SqliteStore(str(path), clock=clock, inline=True, synchronous="OFF"), clock)


async def build_on(store: Store, clock: ManualClock) -> None:
    builder = DatabaseBuilder(store, clock)
    await builder.engine.open()
    for build_part in (
        _plain,
        _losses,
        _waits,
        _approvals,
        _approval_requests,
        _parents_and_children,
        _keys,
        _dead_letters,
        _operators,
        _schedules,
        _held,
    ):
        await build_part(builder)
    statuses = {(name, status) for name, status, *_ in await builder.store.read(lambda tx: tx.stats.counts())}
    passing = {"dlq_pending", "dlq_recorded"}
    missing = {
        (name, status)
        for name, contract in CONTRACTS.items()
        for status in contract.statuses
        if status not in passing and status not in contract.unreachable and (name, status) not in statuses
    }
    assert not missing, f"no job is in {sorted(missing)}"
    await builder.engine.close()


async def _plain(builder: DatabaseBuilder) -> None:
    for name in CONTRACTS:
        await builder.job(name)
        await builder.run(name, DONE)
        await builder.run(name, TRANSIENT)
        await builder.run(name, TRANSIENT, DONE)
        await builder.run(name, *[TRANSIENT] * (CONTRACTS[name].retry.max_retries + 1))
        await builder.run(name, BROKEN)
    for name in ("standard", "men", "p3c"):
        await builder.job(name, delay=3600.0)
        await builder.engine.jobs.cancel((await builder.job(name)).id, Scope("ann", "not wanted"))


async def _losses(builder: DatabaseBuilder) -> None:
    for name in ("gate-b2", "men", "p3c", "formal", "standard"):
        await builder.lose(await builder.job(name))
        await builder.run(name, Stopped())
    await builder.lose(await builder.lose(await builder.job("standard")))
    twice = await builder.lose(await builder.job("p3c"))
    await builder.settle(await builder.claim(await builder.lose(twice)), DONE)
    without_retries = await builder.job("standard", max_retries=0)
    assert (await builder.lose(without_retries)).dlq_id
    taken = await builder.job("streams")
    await builder.claim(taken)
    builder.clock.advance(400)
    again = await builder.claim(taken, reclaim=True)
    assert again.execution_no == 2
    await builder.settle(again, DONE)
    for name in ("formal", "standard"):
        await builder.run(name, Snoozed(5 * SECOND), DONE)


async def _waits(builder: DatabaseBuilder) -> None:
    engine = builder.engine
    for name in ("formal", "standard"):
        await builder.run(name, Waits(Wait("answer")))
        await builder.run(name, Waits(Wait("answer", timeout=60 * SECOND, park=True)))
        early = await builder.job(name)
        await engine.jobs.signal(early.id, "answer", Scope("ann"), {"by": "ann"})
        await builder.settle(await builder.claim(early), Waits(Wait("answer")))
        late = await builder.run(name, Waits(Wait("answer", timeout=3 * SECOND)))
        builder.clock.advance(4)
        assert late.id in [job.id for job in await engine.wake()]
        woken = await builder.run(name, Waits(Wait("answer", park=True)))
        await engine.jobs.signal(woken.id, "answer", Scope("bo"), None)
        await builder.settle(await builder.claim(woken), DONE)
        await engine.jobs.cancel((await builder.run(name, Waits(Wait("answer")))).id, Scope("ann"))


async def _approvals(builder: DatabaseBuilder) -> None:
    for name in ("streams", "standard"):
        await builder.job(name, hold=True)
        await builder.engine.approvals.approve((await builder.job(name, hold=True)).id, Scope("ann", "fine"))
        await builder.engine.approvals.reject((await builder.job(name, hold=True)).id, Scope("bo", "too much"))


async def _approval_requests(builder: DatabaseBuilder) -> None:
    """Approval requests: undecided without and with a vote, approved by two, rejected, cancelled, expired."""
    engine = builder.engine
    request = make_approval_request("pay", {"amount": 7}, ["boss"], 2, "reject")

    async def waiting_job(seconds: int | None = None) -> Job:
        span = None if seconds is None else seconds * SECOND
        return await builder.run("standard", Waits(Wait("approval", APPROVAL, span, approval=request)))

    await waiting_job()
    await engine.approvals.approve((await waiting_job()).id, Scope("ann"), roles=["boss"])
    approved, refused = await waiting_job(), await waiting_job()
    for person in ("ann", "bo"):
        await engine.approvals.approve(approved.id, Scope(person, "fine"))
    await engine.approvals.reject(refused.id, Scope("bo"))
    await engine.jobs.cancel((await waiting_job()).id, Scope("ann"))
    late = await waiting_job(seconds=3)
    builder.clock.advance(4)
    assert late.id in [job.id for job in await engine.wake()]
    await builder.settle(await builder.claim(approved), DONE)


async def _parents_and_children(builder: DatabaseBuilder) -> None:
    """A parent that waits for one of two children, one woken by the last and finished, one cancelled with its child."""
    for ends in (1, 2, 0):
        parent = await builder.claim(await builder.job("standard"))
        names = ["one", "two"]
        submissions = [
            Submission(f"{name}-of-{ends}", {}, id=child_id(parent.id, name), parent_id=parent.id) for name in names
        ]
        await child_acts.enqueue(
            builder.engine,
            parent,
            [ChildRequest(name, submission) for name, submission in zip(names, submissions, strict=True)],
        )
        children = tuple(submission.id or "" for submission in submissions)
        await builder.settle(parent, Waits(Wait("gather", CHILDREN, children=children)))
        for number in range(ends):
            await builder.settle(await builder.claim(await builder.engine.jobs.get(children[number])), DONE)
        if ends == 2:
            await builder.settle(await builder.claim(await builder.engine.jobs.get(parent.id)), DONE)
        if ends == 0:
            await builder.engine.jobs.cancel(parent.id, Scope("ann"))


async def _keys(builder: DatabaseBuilder) -> None:
    for name in CONTRACTS:
        await builder.job(name, idempotency_key=f"key-{name}", idempotency_scope="s", tenant_id="acme")
        await builder.job(name, idempotency_key=f"other-{name}", tenant_id='ümlaut "q"')
    await builder.run("men", DONE, task_id="T-1", idempotency_key="k", idempotency_scope="s")
    await builder.job("men", idempotency_key=" ")
    for _ in range(3):
        await builder.run("p3c", DONE, task_id="T-1")


async def _dead_letters(builder: DatabaseBuilder) -> None:
    engine = builder.engine
    for name in ("gate-b2", "standard", "streams"):
        job = await builder.run(name, BROKEN)
        assert job.dlq_id

        async def put_step(tx: Tx, job_id: str = job.id) -> None:
            await tx.steps.put_step(Step(job_id, "charge", "d", "1", True, 1, tx.now))

        await engine.store.write(put_step)
        new_job = (await engine.dead_letters.requeue(job.dlq_id, Scope("ann"), take_steps=True)).job
        await builder.settle(await builder.claim(new_job), BROKEN)
        discarded = await builder.run(name, BROKEN, tenant_id="acme")
        assert discarded.dlq_id
        await engine.dead_letters.discard(discarded.dlq_id, Scope("ann", "spam"))
        if name != "streams":
            assert (await engine.dead_letters.discard(discarded.dlq_id, Scope("bo", "indeed"))).confirmed
        proposed = await builder.run("gate-b2", BROKEN)
        await engine.dead_letters.discard(proposed.dlq_id or "", Scope("ann", "perhaps"))


async def _operators(builder: DatabaseBuilder) -> None:
    engine = builder.engine
    reopened = await builder.run("formal", TRANSIENT, TRANSIENT, TRANSIENT)
    await engine.jobs.reopen(reopened.id, Scope("ann", "try again"))
    await builder.settle(await builder.claim(reopened), TRANSIENT)
    await engine.jobs.abort((await builder.run("gate-b2", TRANSIENT)).id, Scope("ann"))
    await engine.jobs.abort((await builder.lose(await builder.job("p3c"))).id, Scope("ann"))
    moved = await builder.job("gate-b2")
    for status in ("running", "retrying", "running", "dlq_pending"):
        builder.clock.advance(1)
        await engine.jobs.transition(moved.id, status, Scope("ann"))
    await engine.jobs.cancel((await builder.job("formal")).id, Scope("ann", "at the next claim"))
    running = await builder.job("standard")
    held = await builder.claim(running)
    await engine.jobs.cancel(running.id, Scope("ann"))
    await builder.settle(held, TRANSIENT)
    await builder.run("formal", Cancelled("no need"))
    ended = await builder.run("standard", DONE)
    await engine.jobs.requeue(ended.id, Scope("ann"))
    with pytest.raises(IllegalMove):
        await engine.jobs.cancel(ended.id, Scope("ann"))


async def _schedules(builder: DatabaseBuilder) -> None:
    """One schedule that has run, one that was backfilled and paused, one whose first run is in the future."""
    for name, when in (
        ("tick", {"cron": "* * * * *"}),
        ("old", {"every": "1h"}),
        ("later", {"at": "2030-01-01T00:00:00Z"}),
    ):
        request = ScheduleRequest(name, f"by-{name}", **when)  # type: ignore[arg-type]
        await builder.engine.schedules.add(request, Scope("ann"))
    for _ in range(3):
        builder.clock.advance(60)
        assert (await builder.engine.schedules.fire_due(10)).jobs
    await builder.engine.schedules.backfill("old", "2026-02-25T00:00:00Z", "2026-02-25T03:00:00Z", Scope("ann"))
    await builder.engine.schedules.pause("old", Scope("ann"))


async def _held(builder: DatabaseBuilder) -> None:
    for name in CONTRACTS:
        await builder.claim(await builder.job(name))
        second = await builder.run(name, TRANSIENT)
        if second.due_at and second.due_at > builder.clock.at:
            builder.clock.at = second.due_at
        await builder.claim(second)
