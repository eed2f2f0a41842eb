"""A database in which everything has happened: jobs of all six contracts in all statuses they can rest in."""

from pathlib import Path
from typing import Any

import pytest

from detent.core.approval import ask
from detent.core.child_ids import child_id
from detent.core.contract.builtin import CONTRACTS
from detent.core.errors import IllegalMove
from detent.core.job import APPROVAL, CHILDREN, Asked, Failure, Job, Step, Wait
from detent.core.outcome import Cancelled, Failed, Outcome, Snoozed, Stopped, Succeeded, Waits
from detent.core.times import SECOND, from_iso
from detent.engine import Engine, Submission
from detent.engine.execution import children as child_acts
from detent.engine.execution.children import Named
from detent.engine.schedules import schedules
from detent.engine.schedules.backfill import backfill
from detent.engine.schedules.firing import fire_due
from detent.engine.schedules.request import ScheduleRequest
from detent.ports.claims import Claimed
from detent.ports.store import Store
from detent.ports.tx import Tx
from detent.stores.sqlite.store import SqliteStore

LEASE = 30.0
TRANSIENT = Failed(Failure("TASK_EXECUTION_FAILED", "try again", "Boom"))
BROKEN = Failed(Failure("BROKEN", "never works", "Broken", retryable=False))
DONE = Succeeded('{"n":1}')


class Hands:
    """The clock of the database that is made here; it stands still unless told."""

    def __init__(self) -> None:
        self.at = from_iso("2026-02-25T12:00:00Z", field="start")

    def now(self) -> int:
        return self.at

    def monotonic(self) -> float:
        return self.at / SECOND

    def advance(self, seconds: float) -> None:
        self.at += int(seconds * SECOND)


class Town:
    """One database under construction, one job led at a time: each has a job type of its own."""

    def __init__(self, store: Store, clock: Hands) -> None:
        self.store = store
        self.clock = clock
        self.engine = Engine(store)
        self._kinds = 0

    async def job(self, contract: str, **fields: Any) -> Job:
        self.clock.advance(1)
        self._kinds += 1
        ask = Submission(f"kind-{self._kinds}", {"n": self._kinds}, contract, actor="ann", **fields)
        return (await self.engine.submit(ask)).job

    async def claim(self, job: Job, **options: Any) -> Claimed:
        self.clock.advance(1)
        types = frozenset({job.job_type})
        found = await self.engine.claim(self.engine.claim_request("w1", 5, LEASE, job_types=types, **options))
        assert [one.id for one in found] == [job.id]
        return found[0]

    async def settle(self, claimed: Claimed, outcome: Outcome) -> Job:
        self.clock.advance(1)
        return await self.engine.settle(claimed.id, claimed.token, outcome)

    async def run(self, contract: str, *outcomes: Outcome, **fields: Any) -> Job:
        """A job executed once per outcome, with the time passing that lies between."""
        job = await self.job(contract, **fields)
        for outcome in outcomes:
            if job.due_at and job.due_at > self.clock.at:
                self.clock.at = job.due_at
            job = await self.settle(await self.claim(job), outcome)
        return job

    async def lose(self, job: Job) -> Job:
        await self.claim(job)
        self.clock.advance(LEASE + 1)
        assert job.id in [one.id for one in await self.engine.expire()]
        return await self.engine.job(job.id)


async def build(path: Path) -> None:
    clock = Hands()
    await build_on(SqliteStore(str(path), clock=clock, inline=True, synchronous="OFF"), clock)


async def build_on(store: Store, clock: Hands) -> None:
    town = Town(store, clock)
    await town.engine.open()
    for life in (
        _plain,
        _losses,
        _waits,
        _approvals,
        _questions,
        _families,
        _keys,
        _dead_letters,
        _operators,
        _schedules,
        _held,
    ):
        await life(town)
    rest = {(name, status) for name, status, *_ in await town.store.read(lambda tx: tx.counts())}
    passing = {"dlq_pending", "dlq_recorded"}
    missing = {
        (name, status)
        for name, contract in CONTRACTS.items()
        for status in contract.statuses
        if status not in passing and status not in contract.unreachable and (name, status) not in rest
    }
    assert not missing, f"no job rests in {sorted(missing)}"
    await town.engine.close()


async def _plain(town: Town) -> None:
    for name in CONTRACTS:
        await town.job(name)
        await town.run(name, DONE)
        await town.run(name, TRANSIENT)
        await town.run(name, TRANSIENT, DONE)
        await town.run(name, *[TRANSIENT] * (CONTRACTS[name].retry.max_retries + 1))
        await town.run(name, BROKEN)
    for name in ("standard", "men", "p3c"):
        await town.job(name, delay=3600.0)
        await town.engine.cancel((await town.job(name)).id, actor="ann", reason="not wanted")


async def _losses(town: Town) -> None:
    for name in ("gate-b2", "men", "p3c", "formal", "standard"):
        await town.lose(await town.job(name))
        await town.run(name, Stopped())
    await town.lose(await town.lose(await town.job("standard")))
    twice = await town.lose(await town.job("p3c"))
    await town.settle(await town.claim(await town.lose(twice)), DONE)
    worn = await town.job("standard", max_retries=0)
    assert (await town.lose(worn)).dlq_id
    taken = await town.job("streams")
    await town.claim(taken)
    town.clock.advance(400)
    again = await town.claim(taken, reclaim=True)
    assert again.execution_no == 2
    await town.settle(again, DONE)
    for name in ("formal", "standard"):
        await town.run(name, Snoozed(5 * SECOND), DONE)


async def _waits(town: Town) -> None:
    engine = town.engine
    for name in ("formal", "standard"):
        await town.run(name, Waits(Wait("answer")))
        await town.run(name, Waits(Wait("answer", timeout=60 * SECOND, park=True)))
        early = await town.job(name)
        await engine.signal(early.id, "answer", {"by": "ann"}, actor="ann")
        await town.settle(await town.claim(early), Waits(Wait("answer")))
        late = await town.run(name, Waits(Wait("answer", timeout=3 * SECOND)))
        town.clock.advance(4)
        assert late.id in [job.id for job in await engine.wake()]
        woken = await town.run(name, Waits(Wait("answer", park=True)))
        await engine.signal(woken.id, "answer", None, actor="bo")
        await town.settle(await town.claim(woken), DONE)
        await engine.cancel((await town.run(name, Waits(Wait("answer")))).id, actor="ann")


async def _approvals(town: Town) -> None:
    for name in ("streams", "standard"):
        await town.job(name, hold=True)
        await town.engine.approve((await town.job(name, hold=True)).id, actor="ann", reason="fine")
        await town.engine.reject((await town.job(name, hold=True)).id, actor="bo", reason="too much")


async def _questions(town: Town) -> None:
    """Open without and with a vote, approved by two, rejected, expired."""
    engine = town.engine
    two = ask("pay", {"amount": 7}, ["boss"], 2, "reject")

    async def asked(question: Asked = two, seconds: int | None = None) -> Job:
        span = None if seconds is None else seconds * SECOND
        return await town.run("standard", Waits(Wait("approval", APPROVAL, span, asked=question)))

    await asked()
    await engine.approve((await asked()).id, actor="ann", roles=["boss"])
    lock_quotas, refused = await asked(), await asked()
    for person in ("ann", "bo"):
        await engine.approve(lock_quotas.id, actor=person, reason="fine")
    await engine.reject(refused.id, actor="bo")
    await engine.cancel((await asked()).id, actor="ann")
    late = await asked(seconds=3)
    town.clock.advance(4)
    assert late.id in [job.id for job in await engine.wake()]
    await town.settle(await town.claim(lock_quotas), DONE)


async def _families(town: Town) -> None:
    """A parent that waits for one of two, one that was woken by the last and ended, one cancelled with its child."""
    for ends in (1, 2, 0):
        parent = await town.claim(await town.job("standard"))
        names = ["one", "two"]
        asks = [
            Submission(f"{name}-of-{ends}", {}, id=child_id(parent.id, name), parent_id=parent.id) for name in names
        ]
        await child_acts.enqueue(town.engine, parent, [Named(name, one) for name, one in zip(names, asks, strict=True)])
        children = tuple(one.id or "" for one in asks)
        await town.settle(parent, Waits(Wait("gather", CHILDREN, children=children)))
        for number in range(ends):
            await town.settle(await town.claim(await town.engine.job(children[number])), DONE)
        if ends == 2:
            await town.settle(await town.claim(await town.engine.job(parent.id)), DONE)
        if ends == 0:
            await town.engine.cancel(parent.id, actor="ann")


async def _keys(town: Town) -> None:
    for name in CONTRACTS:
        await town.job(name, idempotency_key=f"key-{name}", idempotency_scope="s", tenant_id="acme")
        await town.job(name, idempotency_key=f"other-{name}", tenant_id='ümlaut "q"')
    await town.run("men", DONE, task_id="T-1", idempotency_key="k", idempotency_scope="s")
    await town.job("men", idempotency_key=" ")
    for _ in range(3):
        await town.run("p3c", DONE, task_id="T-1")


async def _dead_letters(town: Town) -> None:
    engine = town.engine
    for name in ("gate-b2", "standard", "streams"):
        job = await town.run(name, BROKEN)
        assert job.dlq_id

        async def keep(tx: Tx, job_id: str = job.id) -> None:
            await tx.put_step(Step(job_id, "charge", "d", "1", True, 1, tx.now))

        await engine.store.write(keep)
        made = (await engine.requeue(job.dlq_id, actor="ann", take_steps=True)).job
        await town.settle(await town.claim(made), BROKEN)
        gone = await town.run(name, BROKEN, tenant_id="acme")
        assert gone.dlq_id
        await engine.discard(gone.dlq_id, person="ann", reason="spam")
        if name != "streams":
            assert (await engine.discard(gone.dlq_id, person="bo", reason="indeed")).confirmed
        proposed = await town.run("gate-b2", BROKEN)
        await engine.discard(proposed.dlq_id or "", person="ann", reason="perhaps")


async def _operators(town: Town) -> None:
    engine = town.engine
    reopened = await town.run("formal", TRANSIENT, TRANSIENT, TRANSIENT)
    await engine.reopen(reopened.id, actor="ann", reason="try again")
    await town.settle(await town.claim(reopened), TRANSIENT)
    await engine.abort((await town.run("gate-b2", TRANSIENT)).id, actor="ann")
    await engine.abort((await town.lose(await town.job("p3c"))).id, actor="ann")
    moved = await town.job("gate-b2")
    for status in ("running", "retrying", "running", "dlq_pending"):
        town.clock.advance(1)
        await engine.transition(moved.id, status, actor="ann")
    await engine.cancel((await town.job("formal")).id, actor="ann", reason="at the next claim")
    running = await town.job("standard")
    held = await town.claim(running)
    await engine.cancel(running.id, actor="ann")
    await town.settle(held, TRANSIENT)
    await town.run("formal", Cancelled("no need"))
    ended = await town.run("standard", DONE)
    await engine.requeue_job(ended.id, actor="ann")
    with pytest.raises(IllegalMove):
        await engine.cancel(ended.id, actor="ann")


async def _schedules(town: Town) -> None:
    """One that fired, one that was backfilled and paused, one that has not come to it yet."""
    for name, when in (
        ("tick", {"cron": "* * * * *"}),
        ("old", {"every": "1h"}),
        ("later", {"at": "2030-01-01T00:00:00Z"}),
    ):
        ask = ScheduleRequest(name, f"by-{name}", **when)  # type: ignore[arg-type]
        await schedules.add(town.engine, ask, actor="ann")
    for _ in range(3):
        town.clock.advance(60)
        assert (await fire_due(town.engine, 10)).jobs
    await backfill(town.engine, "old", "2026-02-25T00:00:00Z", "2026-02-25T03:00:00Z", actor="ann")
    await schedules.pause(town.engine, "old", actor="ann")


async def _held(town: Town) -> None:
    for name in CONTRACTS:
        await town.claim(await town.job(name))
        second = await town.run(name, TRANSIENT)
        if second.due_at and second.due_at > town.clock.at:
            town.clock.at = second.due_at
        await town.claim(second)
