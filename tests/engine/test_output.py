"""What an execution reports beside its result: the times of its steps, its progress, its log lines."""

from datetime import datetime
from typing import Any

import pytest

from detent.core.job import LogLine
from detent.core.outcome import Succeeded
from detent.engine import Engine
from detent.engine.execution.steps import record_progress
from detent.handler.context import Context
from detent.observability.job_logs import store_lines
from detent.ports.claims import Claimed
from detent.proof.verify.verify import verify
from support.acts import LEASE_SECONDS, LONG, claim_one, running
from support.clock import FakeClock
from support.stores import Place

pytestmark = pytest.mark.anyio


def lines(claimed: Claimed, *numbers: int) -> list[LogLine]:
    return [LogLine(claimed.execution_no, n, n, "INFO", "lib", f"line {n}") for n in numbers]


async def claimed_again(engine: Engine, clock: FakeClock) -> Claimed:
    clock.advance(LEASE_SECONDS + 1)
    await engine.expire()
    clock.advance(LONG)
    return await claim_one(engine, worker="w2", reclaim=True)


async def stored(engine: Engine, job_id: str, after: tuple[int, int] = (0, 0)) -> list[tuple[int, int]]:
    rows = await engine.store.read(lambda tx: tx.output.log_lines(job_id, after, 100))
    return [(line.execution_no, line.n) for line in rows]


async def test_a_step_has_the_time_of_its_call_and_of_its_record(engine: Engine, clock: FakeClock) -> None:
    claimed = await running(engine)
    ctx = Context(claimed, engine, LEASE_SECONDS)

    async def takes(seconds: float) -> str:
        clock.advance(seconds)
        return "done"

    async def breaks() -> None:
        clock.advance(3)
        raise ValueError

    await ctx.step("slow", takes, 5)
    await ctx.once("charge", takes, 7)
    with pytest.raises(ValueError):
        await ctx.once("broken", breaks)
    steps = {step.name: step for step in await engine.store.read(lambda tx: tx.steps.list_steps(claimed.id))}
    took = {name: (step.at - (step.started_at or 0)) / 1_000_000 for name, step in steps.items()}
    assert took == {"slow": 5, "charge": 7, "broken": 3}
    notes = [note for note in (await engine.jobs.history(claimed.id)).entries() if note["event"] == "step.finished"]
    times = [(datetime.fromisoformat(note["data"]["started_at"]), datetime.fromisoformat(note["at"])) for note in notes]
    assert [(end - start).total_seconds() for start, end in times] == [5, 7] and times[0][1] == times[1][0]


async def test_progress_is_one_row_that_is_overwritten(engine: Engine, place: Place, clock: FakeClock) -> None:
    claimed = await running(engine)
    for share in (0.1, 0.2, 7.0):
        assert await record_progress(engine, claimed, share, f"{share:g}")
        clock.advance(1)
    reports = [entry for entry in (await engine.jobs.history(claimed.id)).entries() if entry["event"] == "progress"]
    assert [report["data"] for report in reports] == [{"share": 1.0, "message": "7"}]
    assert (await engine.jobs.why(claimed.id)).details["progress"] == {"share": 1.0, "message": "7"}
    dump = place.dump()
    assert len(dump["progress"]) == 1 and dump["notes"] == []
    again = await claimed_again(engine, clock)
    assert not await record_progress(engine, claimed, 0.5, "too late"), "the lease is lost"
    assert "progress" not in (await engine.jobs.why(claimed.id)).details, "of the execution before"
    assert await record_progress(engine, again, 0.5, "again")


async def test_log_lines_are_kept_per_execution_and_trimmed(engine: Engine, place: Place, clock: FakeClock) -> None:
    claimed = await running(engine)
    job_id = claimed.id

    async def store(claimed: Claimed, first: int, *numbers: int) -> bool:
        return await engine.store.write(lambda tx: store_lines(tx.output, claimed, lines(claimed, *numbers), first))

    assert await store(claimed, 1, 1, 2, 3)
    assert await store(claimed, 3, 3, 4), "a call whose reply was lost is repeated"
    assert await stored(engine, job_id) == [(1, 3), (1, 4)]
    again = await claimed_again(engine, clock)
    assert not await store(claimed, 1, 5), "the lease is lost"
    assert await store(again, 1, 1)
    assert await stored(engine, job_id) == [(1, 3), (1, 4), (2, 1)]
    assert await stored(engine, job_id, (1, 4)) == [(2, 1)]
    newest = await engine.store.read(lambda tx: tx.output.last_log_lines(job_id, 2))
    assert [(line.execution_no, line.n) for line in newest] == [(1, 4), (2, 1)]
    logs: list[Any] = [note["data"] for note in (await engine.jobs.history(job_id)).entries() if note["event"] == "log"]
    assert [(len(data["lines"]), data.get("left_out")) for data in logs] == [(2, 2), (1, None)]
    await record_progress(engine, again, 0.5, "")
    await engine.settle(again.id, again.token, Succeeded("1"))
    assert (await verify(engine.store)).ok
    clock.advance(LONG)
    await engine.prune(0)
    dump = place.dump()
    assert dump["progress"] == [] and dump["log_lines"] == []
