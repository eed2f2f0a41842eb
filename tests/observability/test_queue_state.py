"""The state of queues and job types: paused, no worker, draining, at its limit, active, idle; what runs now."""

import json
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from detent.core.access import Scope
from detent.core.errors import NotFound
from detent.core.job import Wait
from detent.core.outcome import Succeeded, Waits
from detent.engine import Engine
from detent.engine.metrics.alerts import read_inputs
from detent.engine.reads.queue_state import state_text
from detent.ports.listing import WorkerRow
from support.acts import claim, claim_one, submit
from support.clock import FakeClock

pytestmark = pytest.mark.anyio
ANN = Scope("ann")


async def register_worker(
    engine: Engine, worker: str, *, job_types: list[str], queues: list[str] | None = None, state: str = "working"
) -> None:
    now, served = engine.store.now(), None if queues is None else json.dumps(queues)
    row = WorkerRow(worker, "host", 1, "0", served, json.dumps(job_types), 8, 0, state, now, now, 30_000_000)
    await engine.store.write(lambda tx: tx.workers.put_worker(row))


async def queue(engine: Engine, name: str = "q") -> dict[str, Any]:
    items = (await engine.stats.queues()).queues_view()["items"]
    (view,) = [dict(item) for item in items if item["queue"] == name]
    return view


async def state(engine: Engine, name: str = "q") -> str:
    return str((await queue(engine, name))["state"])


async def test_a_queue_without_workers_names_its_types(engine: Engine) -> None:
    for job_type in ("a", "b", "c"):
        await submit(engine, job_type=job_type, queue="q")
    view = await queue(engine)
    assert (view["state"], view["unserved_types"]) == ("no_worker", ["a", "b", "c"])
    assert state_text(view["state"], view["unserved_types"]) == "no worker for 3 types"
    await register_worker(engine, "w1", job_types=["a", "b"])
    assert (await queue(engine))["unserved_types"] == ["c"]
    await register_worker(engine, "w2", job_types=["c"], queues=["other"])
    assert (await queue(engine))["unserved_types"] == ["c"], "this worker does not serve the queue"
    await register_worker(engine, "w3", job_types=["c"], queues=["q"])
    assert await state(engine) == "active"


async def test_a_worker_that_is_gone_does_not_count(engine: Engine, clock: FakeClock) -> None:
    await submit(engine, queue="q")
    await register_worker(engine, "w1", job_types=["mail"])
    assert await state(engine) == "active"
    clock.advance(100_000)
    assert await state(engine) == "no_worker"


async def test_draining_workers_and_a_pause(engine: Engine) -> None:
    await submit(engine, queue="q")
    await register_worker(engine, "w1", job_types=["mail"], state="draining")
    assert await state(engine) == "draining"
    await register_worker(engine, "w2", job_types=["mail"])
    assert await state(engine) == "active"
    await engine.limits.pause("queue", "q", ANN)
    assert await state(engine) == "paused"
    await engine.limits.resume("queue", "q", ANN)
    await engine.limits.pause("job_type", "mail", ANN)
    assert await state(engine) == "paused", "the only type that has jobs is paused"
    await submit(engine, job_type="other", queue="q")
    assert await state(engine) == "no_worker"


async def test_a_queue_whose_ready_jobs_belong_to_paused_tenants_is_paused(engine: Engine) -> None:
    await register_worker(engine, "w1", job_types=["mail"])
    for tenant in ("a", "a", "b"):
        await submit(engine, queue="q", tenant_id=tenant)
    await engine.limits.pause("tenant", "a", ANN)
    view = await queue(engine)
    assert (view["state"], view["due"], view["due_paused"]) == ("active", 3, 2)
    held = await claim_one(engine)
    assert (await queue(engine))["state"] == "active", "the job of tenant b runs"
    await engine.settle(held.id, held.token, Succeeded("1"))
    view = await queue(engine)
    assert (view["state"], view["due"], view["due_paused"], view["paused"]) == ("paused", 2, 2, None)
    detail = await engine.stats.queue("q")
    assert (detail["state"], detail["kinds"][0]["due_paused"]) == ("paused", 2)
    assert (await engine.stats.job_type("mail"))["state"] == "paused"
    await submit(engine, queue="q", tenant_id="b", delay=500)
    assert await state(engine) == "paused", "a scheduled job may not start yet"
    await submit(engine, queue="q", tenant_id="b")
    assert await state(engine) == "active"
    await engine.limits.resume("tenant", "a", ANN)
    assert (await queue(engine))["due_paused"] == 0


async def test_a_scheduled_job_does_not_hide_that_all_ready_jobs_are_paused(engine: Engine) -> None:
    await register_worker(engine, "w1", job_types=["mail", "sms"])
    await submit(engine, queue="q")
    await submit(engine, queue="q", job_type="sms", delay=500)
    await engine.limits.pause("job_type", "mail", ANN)
    view = await queue(engine)
    assert (view["state"], [pause["name"] for pause in view["paused_by"]]) == ("paused", ["mail"])
    await engine.limits.resume("job_type", "mail", ANN)
    assert await state(engine) == "active"


async def test_a_paused_state_names_the_pauses_of_others(engine: Engine) -> None:
    await submit(engine, queue="q")
    await engine.limits.pause("queue", "q", replace(ANN, reason="the bank is closed"))
    await engine.limits.pause("queue", "other", ANN)
    detail = await engine.stats.job_type("mail")
    (pause,) = detail["paused_by"]
    assert (detail["state"], detail["paused"]) == ("paused", None)
    assert (pause["kind"], pause["name"], pause["reason"]) == ("queue", "q", "the bank is closed")
    view = await queue(engine)
    assert view["paused"]["name"] == "q" and view["paused_by"] == []
    await engine.limits.resume("queue", "q", ANN)
    assert (await engine.stats.job_type("mail"))["paused_by"] == []


async def test_jobs_of_a_paused_tenant_need_no_worker(engine: Engine) -> None:
    await submit(engine, queue="q", tenant_id="a")
    await engine.limits.pause("tenant", "a", ANN)
    view = await queue(engine)
    assert (view["state"], view["unserved_types"]) == ("paused", [])


async def test_a_queue_is_at_its_limit_while_no_ready_job_may_start(engine: Engine, clock: FakeClock) -> None:
    await register_worker(engine, "w1", job_types=["mail", "other"])
    for _ in range(3):
        await submit(engine, queue="q")
    await engine.limits.set(ANN, queue="q", concurrency=1)
    assert await state(engine) == "active"
    held = await claim_one(engine)
    view = await queue(engine)
    assert view["state"] == "at_limit" and view["limited_by"][0]["concurrency"] == 1
    await engine.settle(held.id, held.token, Succeeded("1"))
    assert await state(engine) == "active"
    await engine.limits.remove(ANN, queue="q")
    await engine.limits.set(ANN, per="queue", rate=(1, 60.0))
    assert await state(engine) == "active"
    assert len(await claim(engine)) == 1
    assert await state(engine) == "at_limit"
    clock.advance(61)
    assert await state(engine) == "active"


async def test_a_limit_of_a_tenant_does_not_limit_the_queue(engine: Engine) -> None:
    await register_worker(engine, "w1", job_types=["mail"])
    await engine.limits.set(ANN, per="tenant", concurrency=1)
    for tenant in ("a", "a", "b"):
        await submit(engine, queue="q", tenant_id=tenant)
    assert len(await claim(engine)) == 2
    assert await state(engine) == "active"


async def test_a_waiting_job_is_not_scheduled(engine: Engine, clock: FakeClock) -> None:
    """Neither its time-out, nor a paused time, makes it a scheduled job; a job for later is one."""
    await submit(engine, "formal", queue="q")
    held = await claim_one(engine)
    await engine.settle(held.id, held.token, Waits(Wait("answer", timeout=3_600_000_000)))
    view = await queue(engine)
    assert (view["due"], view["later"], view["held"], view["state"]) == (0, 0, 0, "idle")
    for contract in ("standard", "gate-b2"):
        await submit(engine, contract, queue="q", delay=500)
    assert (await queue(engine))["later"] == 2


async def test_what_runs_now(engine: Engine, clock: FakeClock) -> None:
    await register_worker(engine, "w1", job_types=["mail"], queues=["q"])
    for name in ("q", "q", "other"):
        await submit(engine, queue=name)
        await claim_one(engine)
        clock.advance(1)
    detail = await engine.stats.queue("q")
    assert [job["queue"] for job in detail["running_jobs"]] == ["q", "q"]
    assert detail["running_jobs"][0]["since"] < detail["running_jobs"][1]["since"]
    assert [worker["id"] for worker in detail["serving"]] == ["w1"]
    assert (detail["held"], detail["kinds"][0]["held"]) == (2, 2)
    by_type = await engine.stats.job_type("mail")
    assert len(by_type["running_jobs"]) == 3 and by_type["queues"] == ["other", "q"]
    with pytest.raises(NotFound):
        await engine.stats.queue("unknown")


async def test_the_lists_of_a_worker_are_parsed_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alerts and metrics compare every group of due jobs with every worker."""
    for name in ("w1", "w2", "w3"):
        await register_worker(engine, name, job_types=["other"], queues=["q"])
    for number in range(10):
        await submit(engine, queue="q", job_type=f"t{number}")
    readings = await engine.store.read(partial(read_inputs, engine))
    parse, texts = json.loads, list[str]()
    monkeypatch.setattr(json, "loads", lambda text: texts.append(text) or parse(text))
    assert len(readings.unserved()) == 10
    assert len(texts) == 2 * 3
