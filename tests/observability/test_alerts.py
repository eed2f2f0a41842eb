"""Every alert fires when its cause really happens and resolves when it is over; it is told once, whoever evaluates."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from engine.acts import LEASE_SECONDS, PERMANENT, claim, refused, retryable, submit
from engine.clock import FakeClock
from engine.stores import Place, make_engine

from detent.core.alerts import DEFAULT_RULES, Alert, State
from detent.core.outcome import Succeeded
from detent.engine import Engine
from detent.engine.metrics import alerts
from detent.engine.metrics.alert_kinds import KINDS
from detent.engine.schedules import schedules
from detent.engine.schedules.firing import fire_due
from detent.engine.schedules.request import ScheduleRequest
from detent.observability.alert_sinks import SIGNATURE, CommandSink, WebhookSink, signature_holds
from detent.observability.maintenance import MaintenanceLoop
from detent.observability.settings import Settings
from detent.ports.listing import WorkerRow

from .conftest import Receiver

pytestmark = pytest.mark.anyio
RULES = {rule.name: rule for rule in DEFAULT_RULES}
Cause = Callable[[Engine, FakeClock], Awaitable[Any]]


async def introduce(engine: Engine, worker: str = "w1", *types: str) -> None:
    """A live worker that runs these types."""
    now = engine.store.now()
    row = WorkerRow(worker, "host", 1, "0", None, json.dumps(types or ["mail"]), 8, 0, "working", now, now, 30_000_000)
    await engine.store.write(lambda tx: tx.put_worker(row))


async def fail_many(engine: Engine, clock: FakeClock, *, for_good: bool, jobs: int = 30, tenant: str = "acme") -> None:
    for _ in range(jobs):
        await submit(engine, "gate-b2", tenant_id=tenant)
    for job in await claim(engine, jobs):
        await engine.settle(job.id, job.token, PERMANENT if for_good else retryable("gate-b2"))


async def retry_all(engine: Engine, clock: FakeClock) -> None:
    await fail_many(engine, clock, for_good=False)


async def finish_retries(engine: Engine, clock: FakeClock) -> None:
    clock.advance(10)
    for job in await claim(engine, 1_000):
        await engine.settle(job.id, job.token, Succeeded(None))


async def bury_many(engine: Engine, clock: FakeClock) -> None:
    await fail_many(engine, clock, for_good=True, jobs=12)


async def ask_for_the_impossible(engine: Engine, clock: FakeClock) -> None:
    job = await submit(engine, "gate-b2")
    for _ in range(3):
        await refused(engine.transition(job.id, "succeeded", actor="ann"), "WF_STATE_TRANSITION_INVALID")


async def leave_unserved(engine: Engine, clock: FakeClock) -> None:
    await introduce(engine, "w1", "other")
    await submit(engine, job_type="mail")
    clock.advance(31)
    await introduce(engine, "w1", "other")


async def serve(engine: Engine, clock: FakeClock) -> None:
    await introduce(engine, "w2", "mail")


async def let_wait(engine: Engine, clock: FakeClock) -> None:
    await submit(engine, queue="slow")
    clock.advance(301)


async def work_off(engine: Engine, clock: FakeClock) -> None:
    for job in await claim(engine, 1_000):
        await engine.settle(job.id, job.token, Succeeded(None))


async def run_for_ever(engine: Engine, clock: FakeClock) -> None:
    await submit(engine)
    (job,) = await claim(engine)
    for _ in range(125):
        clock.advance(LEASE_SECONDS)
        await engine.extend({job.id: job.token}, LEASE_SECONDS)


async def end_it(engine: Engine, clock: FakeClock) -> None:
    rows = await engine.store.read(lambda tx: tx.query("held_jobs", limit=10))
    for row in rows:
        job = await engine.job(row[0])
        await engine.settle(job.id, job.token or "", Succeeded(None))


async def lose_a_worker(engine: Engine, clock: FakeClock) -> None:
    for _ in range(12):
        await submit(engine, "p3c")
    assert len(await claim(engine, 12, worker="dies")) == 12
    clock.advance(LEASE_SECONDS + 1)
    assert len(await engine.expire()) == 12


async def leave_a_schedule_alone(engine: Engine, clock: FakeClock) -> None:
    await schedules.add(engine, ScheduleRequest("nightly", "mail", every="1h"), actor="ann")
    clock.advance(3_600 + 121)


async def fire_it(engine: Engine, clock: FakeClock) -> None:
    assert len((await fire_due(engine, 10)).jobs) == 1


async def nothing(engine: Engine, clock: FakeClock) -> None:
    return None


CAUSES: dict[str, tuple[Cause, Cause, str]] = {
    "retrying_share": (retry_all, finish_retries, "contract=gate-b2"),
    "dlq_arrivals": (bury_many, nothing, "tenant=acme"),
    "illegal_transitions": (ask_for_the_impossible, nothing, "all"),
    "no_worker": (leave_unserved, serve, "queue=default, job_type=mail"),
    "backlog_age": (let_wait, work_off, "queue=slow"),
    "stuck_running": (run_for_ever, end_it, "queue=default, job_type=mail"),
    "schedule_missed": (leave_a_schedule_alone, fire_it, "schedule=nightly"),
    "lease_losses": (lose_a_worker, nothing, "all"),
    "error_rate": (bury_many, nothing, "queue=default, job_type=mail"),
}
"""rule -> what makes it fire, what ends it, and about whom it is. Windows end by themselves."""


def settings(name: str, **sinks: Any) -> Settings:
    """One rule with its defaults; error_rate with fewer executions."""
    rule = RULES[name]
    return Settings(rules=(replace(rule, min_count=min(rule.min_count, 10)),), sinks=sinks)


async def state_of(engine: Engine, rule: str) -> Alert | None:
    found = [alert for alert in await alerts.listing(engine) if alert.rule == rule]
    assert len(found) <= 1, found
    return found[0] if found else None


def test_every_default_rule_has_a_cause_here() -> None:
    assert set(CAUSES) == set(RULES) == set(KINDS)


@pytest.mark.parametrize("name", CAUSES)
async def test_it_fires_and_resolves(engine: Engine, clock: FakeClock, name: str) -> None:
    cause, cure, subject = CAUSES[name]
    rule, maintenance = RULES[name], MaintenanceLoop(engine, settings(name))
    assert await maintenance.evaluate() == [], "nothing is wrong yet"
    assert await state_of(engine, name) is None
    await cause(engine, clock)
    news = await maintenance.evaluate()
    if rule.for_seconds:
        assert news == []
        pending = await state_of(engine, name)
        assert pending and pending.state == State.PENDING
        clock.advance(rule.for_seconds)
        news = await maintenance.evaluate()
    assert [step.news for step in news] == [State.FIRING]
    fired = await state_of(engine, name)
    assert fired and (fired.state, fired.severity, fired.subject) == (State.FIRING, rule.severity, subject)
    assert fired.value >= rule.threshold
    assert await maintenance.evaluate() == [], "it fires once"

    await cure(engine, clock)
    clock.advance(rule.window_seconds + 10)
    if name == "stuck_running":
        assert not await engine.store.read(lambda tx: tx.query("held_jobs", limit=10))
    if name == "no_worker":
        await introduce(engine, "w2", "mail")
    assert await maintenance.evaluate() == [], "not before it has been well for a while"
    clock.advance(rule.resolve_after_seconds)
    if name == "no_worker":
        await introduce(engine, "w2", "mail")
    assert [step.news for step in await maintenance.evaluate()] == [State.RESOLVED]
    resolved = await state_of(engine, name)
    assert resolved and resolved.state == State.RESOLVED
    assert await maintenance.evaluate() == []


def test_illegal_transitions_are_a_p1() -> None:
    assert [rule.severity for rule in DEFAULT_RULES if rule.kind == "illegal_transitions"] == ["P1"]


async def test_dead_letters_are_counted_by_tenant(engine: Engine, clock: FakeClock) -> None:
    await fail_many(engine, clock, for_good=True, jobs=12, tenant="loud")
    await fail_many(engine, clock, for_good=True, jobs=2, tenant="quiet")
    await MaintenanceLoop(engine, settings("dlq_arrivals")).evaluate()
    assert [alert.subject for alert in await alerts.listing(engine)] == ["tenant=loud"]


async def test_paused_queues_are_meant_to_wait(engine: Engine, clock: FakeClock) -> None:
    await engine.pause("queue", "slow", actor="ann")
    await let_wait(engine, clock)
    for name in ("backlog_age", "no_worker"):
        await MaintenanceLoop(engine, settings(name)).evaluate()
    assert await alerts.listing(engine) == []


async def test_one_of_several_processes_announces_it(
    place: Place, engine: Engine, clock: FakeClock, receiver: Receiver
) -> None:
    others = [make_engine(place, clock) for _ in range(3)]
    for other in others:
        await other.open()
    try:
        await ask_for_the_impossible(engine, clock)
        sink = WebhookSink(receiver.url, "s3cret")
        crowd = [MaintenanceLoop(one, settings("illegal_transitions", hook=sink)) for one in (engine, *others)]
        await asyncio.gather(*(one.evaluate() for one in crowd))
        await asyncio.gather(*(one.evaluate() for one in crowd))
        await asyncio.gather(*(one.deliver() for one in crowd))
        assert len(receiver.got) == 1
    finally:
        for other in others:
            await other.close()


async def test_a_webhook_is_signed_and_names_its_delivery(engine: Engine, clock: FakeClock, receiver: Receiver) -> None:
    sink = WebhookSink(receiver.url, "s3cret")
    maintenance = MaintenanceLoop(engine, settings("illegal_transitions", hook=sink))
    await ask_for_the_impossible(engine, clock)
    await maintenance.evaluate()
    assert await maintenance.deliver() == 1
    ((headers, body),) = receiver.got
    told = json.loads(body)
    assert (told["rule"], told["state"], told["severity"], told["kind"]) == (
        "illegal_transitions",
        "firing",
        "P1",
        "illegal_transitions",
    )
    now = clock.now() // 1_000_000
    assert signature_holds("s3cret", headers[SIGNATURE], body, now=now)
    assert not signature_holds("other", headers[SIGNATURE], body, now=now)
    assert not signature_holds("s3cret", headers[SIGNATURE], body + b" ", now=now)
    assert not signature_holds("s3cret", headers[SIGNATURE], body, now=now + 301)
    assert headers["Detent-Delivery"] == (await alerts.deliveries(engine))[0].id


async def test_what_does_not_arrive_is_tried_again_later_and_in_order(
    engine: Engine, clock: FakeClock, receiver: Receiver
) -> None:
    receiver.answers = [500, 302]
    sink = WebhookSink(receiver.url)
    maintenance = MaintenanceLoop(engine, settings("illegal_transitions", hook=sink))
    await ask_for_the_impossible(engine, clock)
    await maintenance.evaluate()
    assert await maintenance.deliver() == 1
    assert await maintenance.deliver() == 0, "not at once"
    clock.advance(1_000)
    await maintenance.evaluate()
    clock.advance(1_000)
    await maintenance.evaluate()
    assert await maintenance.deliver() == 1, "the end of it is not told before its beginning"
    clock.advance(1_000)
    assert await maintenance.deliver() == 2
    assert [json.loads(body)["state"] for _, body in receiver.got] == ["firing", "firing", "firing", "resolved"]
    assert len({headers["Detent-Delivery"] for headers, _ in receiver.got}) == 2


async def test_a_crash_between_the_decision_and_the_delivery_loses_nothing(
    place: Place, engine: Engine, clock: FakeClock, receiver: Receiver
) -> None:
    """Taken by a process that dies: after a minute another one tells it."""
    sink = WebhookSink(receiver.url)
    await ask_for_the_impossible(engine, clock)
    maintenance = MaintenanceLoop(engine, settings("illegal_transitions", hook=sink))
    await maintenance.evaluate()
    assert await alerts.take_delivery(engine, ["hook"]) is not None
    survivor = make_engine(place, clock)
    await survivor.open()
    try:
        other = MaintenanceLoop(survivor, settings("illegal_transitions", hook=sink))
        assert await other.deliver() == 0
        clock.advance(61)
        assert await other.deliver() == 1
    finally:
        await survivor.close()
    assert len(receiver.got) == 1


async def test_it_gives_up_in_the_end_and_says_so(engine: Engine, clock: FakeClock, receiver: Receiver) -> None:
    receiver.answers = [500] * 100
    maintenance = MaintenanceLoop(engine, settings("illegal_transitions", hook=WebhookSink(receiver.url)))
    await ask_for_the_impossible(engine, clock)
    await maintenance.evaluate()
    for _ in range(25):
        await maintenance.deliver()
        clock.advance(400)
    assert len(receiver.got) == alerts.GIVE_UP_AFTER
    view = alerts.delivery_view((await alerts.deliveries(engine))[0])
    assert view["state"] == "given up" and "500" in view["last_error"]


async def test_a_command_gets_the_alert_on_its_input(engine: Engine, clock: FakeClock, tmp_path: Any) -> None:
    told = tmp_path / "told"
    sink = CommandSink(("sh", "-c", f"cat > {told}"))
    maintenance = MaintenanceLoop(engine, settings("illegal_transitions", shell=sink))
    await ask_for_the_impossible(engine, clock)
    await maintenance.evaluate()
    assert await maintenance.deliver() == 1
    assert json.loads(told.read_text())["rule"] == "illegal_transitions"
    bad = CommandSink(("sh", "-c", "echo no >&2; exit 3"))
    error = await bad.tell((await alerts.deliveries(engine))[0], clock.now())
    assert error and "exited with 3: no" in error
    slow = CommandSink(("sleep", "60"), timeout_seconds=0.05)
    assert "did not end" in (await slow.tell((await alerts.deliveries(engine))[0], clock.now()) or "")
    gone = CommandSink(("/no/such/program",))
    assert "cannot be started" in (await gone.tell((await alerts.deliveries(engine))[0], clock.now()) or "")


async def test_turns_are_taken_by_one(engine: Engine, clock: FakeClock) -> None:
    assert await alerts.take_turn(engine, "x", 15)
    assert not await alerts.take_turn(engine, "x", 15)
    clock.advance(15)
    assert [await alerts.take_turn(engine, "x", 15) for _ in range(2)] == [True, False]
