"""Each alert fires and resolves with its cause, is delivered at least once, and by one of several processes."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from detent.core.access import Scope
from detent.core.alerts import DEFAULT_RULES, Alert, State
from detent.core.errors import InvalidInput, NotFound
from detent.core.outcome import Succeeded
from detent.engine import Engine
from detent.engine.metrics import alerts
from detent.engine.metrics.alert_kinds import KINDS
from detent.engine.metrics.webhooks import WebhookRequest
from detent.engine.schedules.request import ScheduleRequest
from detent.observability.alert_sinks import SIGNATURE, CommandSink, WebhookSink, verify_signature
from detent.observability.maintenance import MaintenanceLoop
from detent.observability.settings import Settings, WebhookSettings
from detent.observability.webhook_sender import WebhookSender
from detent.ports.listing import WorkerRow
from support.acts import LEASE_SECONDS, PERMANENT, claim, refused, retryable, submit
from support.clock import FakeClock
from support.stores import Place, make_engine
from support.webhook_receiver import Receiver

pytestmark = pytest.mark.anyio
RULES = {rule.name: rule for rule in DEFAULT_RULES}
Cause = Callable[[Engine, FakeClock], Awaitable[Any]]


async def register_worker(engine: Engine, worker: str = "w1", *types: str) -> None:
    """Store the row of a live worker that runs these job types."""
    now = engine.store.now()
    row = WorkerRow(worker, "host", 1, "0", None, json.dumps(types or ["mail"]), 8, 0, "working", now, now, 30_000_000)
    await engine.store.write(lambda tx: tx.workers.put_worker(row))


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


async def dead_letter_many(engine: Engine, clock: FakeClock) -> None:
    await fail_many(engine, clock, for_good=True, jobs=12)


async def request_illegal_moves(engine: Engine, clock: FakeClock) -> None:
    job = await submit(engine, "gate-b2")
    for _ in range(3):
        await refused(engine.jobs.transition(job.id, "succeeded", Scope("ann")), "WF_STATE_TRANSITION_INVALID")


async def leave_without_worker(engine: Engine, clock: FakeClock) -> None:
    await register_worker(engine, "w1", "other")
    await submit(engine, job_type="mail")
    clock.advance(31)
    await register_worker(engine, "w1", "other")


async def start_worker(engine: Engine, clock: FakeClock) -> None:
    await register_worker(engine, "w2", "mail")


async def leave_waiting(engine: Engine, clock: FakeClock) -> None:
    await submit(engine, queue="slow")
    clock.advance(301)


async def run_all(engine: Engine, clock: FakeClock) -> None:
    for job in await claim(engine, 1_000):
        await engine.settle(job.id, job.token, Succeeded(None))


async def run_too_long(engine: Engine, clock: FakeClock) -> None:
    await submit(engine)
    (job,) = await claim(engine)
    for _ in range(125):
        clock.advance(LEASE_SECONDS)
        await engine.extend({job.id: job.token}, LEASE_SECONDS)


async def finish_all(engine: Engine, clock: FakeClock) -> None:
    rows = await engine.store.read(lambda tx: tx.claims.held_jobs(10))
    for row in rows:
        job = await engine.jobs.get(row.id)
        await engine.settle(job.id, job.token or "", Succeeded(None))


async def lose_worker(engine: Engine, clock: FakeClock) -> None:
    for _ in range(12):
        await submit(engine, "p3c")
    assert len(await claim(engine, 12, worker="dies")) == 12
    clock.advance(LEASE_SECONDS + 1)
    assert len(await engine.expire()) == 12


async def lose_twice(engine: Engine, clock: FakeClock) -> None:
    await submit(engine, "p3c")
    for _ in range(2):
        assert len(await claim(engine, 1)) == 1
        clock.advance(LEASE_SECONDS + 1)
        assert len(await engine.expire()) == 1


async def miss_schedule(engine: Engine, clock: FakeClock) -> None:
    await engine.schedules.add(ScheduleRequest("nightly", "mail", every="1h"), Scope("ann"))
    clock.advance(3_600 + 121)


async def run_schedule(engine: Engine, clock: FakeClock) -> None:
    assert len((await engine.schedules.fire_due(10)).jobs) == 1


async def break_webhook(engine: Engine, clock: FakeClock) -> None:
    """Port 9 refuses connections."""
    await engine.webhooks.add(WebhookRequest("crm", "http://127.0.0.1:9/"), Scope("ann"))
    await submit(engine)
    await WebhookSender(engine, WebhookSettings()).drain()
    clock.advance(3_601)


async def repair_webhook(engine: Engine, clock: FakeClock) -> None:
    await engine.webhooks.resume("crm", Scope("ann"))


async def nothing(engine: Engine, clock: FakeClock) -> None:
    return None


CAUSES: dict[str, tuple[Cause, Cause, str]] = {
    "retrying_share": (retry_all, finish_retries, "contract=gate-b2"),
    "dlq_arrivals": (dead_letter_many, nothing, "tenant=acme"),
    "illegal_transitions": (request_illegal_moves, nothing, "contract=gate-b2, code=WF_STATE_TRANSITION_INVALID"),
    "no_worker": (leave_without_worker, start_worker, "queue=default, job_type=mail"),
    "backlog_age": (leave_waiting, run_all, "queue=slow"),
    "stuck_running": (run_too_long, finish_all, "queue=default, job_type=mail"),
    "schedule_missed": (miss_schedule, run_schedule, "schedule=nightly"),
    "lease_losses": (lose_worker, nothing, "all"),
    "suspects": (lose_twice, run_all, "queue=default, job_type=mail"),
    "webhook_failing": (break_webhook, repair_webhook, "webhook=crm"),
    "error_rate": (dead_letter_many, nothing, "queue=default, job_type=mail"),
}
"""rule -> (its cause, what ends it, the subject of the alert). A rule over a time window ends without an act."""


def settings(name: str, **sinks: Any) -> Settings:
    """One rule with its defaults; error_rate with fewer executions."""
    rule = RULES[name]
    return Settings(rules=(replace(rule, min_count=min(rule.min_count, 10)),), sinks=sinks)


async def state_of(engine: Engine, rule: str) -> Alert | None:
    matching = [alert for alert in await alerts.list_alerts(engine) if alert.rule == rule]
    assert len(matching) <= 1, matching
    return matching[0] if matching else None


def test_every_default_rule_is_tested() -> None:
    assert set(CAUSES) == set(RULES) == set(KINDS)


@pytest.mark.parametrize("name", CAUSES)
async def test_it_fires_and_resolves(engine: Engine, clock: FakeClock, name: str) -> None:
    cause, cure, subject = CAUSES[name]
    rule, maintenance = RULES[name], MaintenanceLoop(engine, settings(name))
    assert await maintenance.evaluate() == [], "no cause yet"
    assert await state_of(engine, name) is None
    await cause(engine, clock)
    news = await maintenance.evaluate()
    if rule.for_seconds:
        assert news == []
        pending = await state_of(engine, name)
        assert pending and pending.state == State.PENDING
        clock.advance(rule.for_seconds)
        news = await maintenance.evaluate()
    assert [step.notify for step in news] == [State.FIRING]
    fired = await state_of(engine, name)
    assert fired and (fired.state, fired.severity, fired.subject) == (State.FIRING, rule.severity, subject)
    assert fired.value >= rule.threshold
    assert await maintenance.evaluate() == [], "it fires once"

    await cure(engine, clock)
    clock.advance(rule.window_seconds + 10)
    if name == "stuck_running":
        assert not await engine.store.read(lambda tx: tx.claims.held_jobs(10))
    if name == "no_worker":
        await register_worker(engine, "w2", "mail")
    assert await maintenance.evaluate() == [], "not before resolve_after_seconds"
    clock.advance(rule.resolve_after_seconds)
    if name == "no_worker":
        await register_worker(engine, "w2", "mail")
    assert [step.notify for step in await maintenance.evaluate()] == [State.RESOLVED]
    resolved = await state_of(engine, name)
    assert resolved and resolved.state == State.RESOLVED
    assert await maintenance.evaluate() == []


def test_illegal_transitions_are_a_p1() -> None:
    assert [rule.severity for rule in DEFAULT_RULES if rule.kind == "illegal_transitions"] == ["P1"]


async def test_illegal_moves_are_counted_by_contract(engine: Engine, clock: FakeClock) -> None:
    """Two of one contract and two of another are below the threshold of three."""
    for contract, code in (("gate-b2", "WF_STATE_TRANSITION_INVALID"), ("men", "TASK_INVALID_TRANSITION")):
        job = await submit(engine, contract)
        for _ in range(2):
            await refused(engine.jobs.transition(job.id, "succeeded", Scope("ann")), code)
    maintenance = MaintenanceLoop(engine, settings("illegal_transitions"))
    assert await maintenance.evaluate() == []
    await refused(engine.jobs.transition(job.id, "succeeded", Scope("ann")), "TASK_INVALID_TRANSITION")
    await maintenance.evaluate()
    (alert,) = await alerts.list_alerts(engine)
    assert (alert.subject, alert.value) == ("contract=men, code=TASK_INVALID_TRANSITION", 3)
    assert "3 moves of men jobs were refused as TASK_INVALID_TRANSITION" in alert.summary


async def test_dead_letters_are_counted_by_tenant(engine: Engine, clock: FakeClock) -> None:
    await fail_many(engine, clock, for_good=True, jobs=12, tenant="loud")
    await fail_many(engine, clock, for_good=True, jobs=2, tenant="quiet")
    await MaintenanceLoop(engine, settings("dlq_arrivals")).evaluate()
    assert [alert.subject for alert in await alerts.list_alerts(engine)] == ["tenant=loud"]


@pytest.mark.parametrize(("kind", "name"), [("queue", "slow"), ("job_type", "mail"), ("tenant", "default")])
async def test_what_is_paused_raises_no_alert(engine: Engine, clock: FakeClock, kind: str, name: str) -> None:
    await engine.limits.pause(kind, name, Scope("ann"))
    await leave_waiting(engine, clock)
    for name in ("backlog_age", "no_worker"):
        await MaintenanceLoop(engine, settings(name)).evaluate()
    assert await alerts.list_alerts(engine) == []


async def test_one_of_several_processes_delivers_it(
    place: Place, engine: Engine, clock: FakeClock, receiver: Receiver
) -> None:
    others = [make_engine(place, clock) for _ in range(3)]
    for other in others:
        await other.open()
    try:
        await request_illegal_moves(engine, clock)
        sink = WebhookSink(receiver.url, "s3cret")
        loops = [MaintenanceLoop(process, settings("illegal_transitions", hook=sink)) for process in (engine, *others)]
        await asyncio.gather(*(loop.evaluate() for loop in loops))
        await asyncio.gather(*(loop.evaluate() for loop in loops))
        await asyncio.gather(*(loop.deliver() for loop in loops))
        assert len(receiver.got) == 1
    finally:
        for other in others:
            await other.close()


async def test_a_webhook_is_signed_and_names_its_delivery(engine: Engine, clock: FakeClock, receiver: Receiver) -> None:
    sink = WebhookSink(receiver.url, "s3cret")
    maintenance = MaintenanceLoop(engine, settings("illegal_transitions", hook=sink))
    await request_illegal_moves(engine, clock)
    await maintenance.evaluate()
    assert await maintenance.deliver() == 1
    ((headers, body),) = receiver.got
    delivered = json.loads(body)
    assert (delivered["rule"], delivered["state"], delivered["severity"], delivered["kind"]) == (
        "illegal_transitions",
        "firing",
        "P1",
        "illegal_transitions",
    )
    now = clock.now() // 1_000_000
    assert verify_signature("s3cret", headers[SIGNATURE], body, now=now)
    assert not verify_signature("other", headers[SIGNATURE], body, now=now)
    assert not verify_signature("s3cret", headers[SIGNATURE], body + b" ", now=now)
    assert not verify_signature("s3cret", headers[SIGNATURE], body, now=now + 301)
    assert headers["Detent-Delivery"] == (await alerts.list_deliveries(engine))[0].id


async def test_failed_deliveries_are_retried_later_and_in_order(
    engine: Engine, clock: FakeClock, receiver: Receiver
) -> None:
    receiver.answers = [500, 302]
    sink = WebhookSink(receiver.url)
    maintenance = MaintenanceLoop(engine, settings("illegal_transitions", hook=sink))
    await request_illegal_moves(engine, clock)
    await maintenance.evaluate()
    assert await maintenance.deliver() == 1
    assert await maintenance.deliver() == 0, "not at once"
    clock.advance(1_000)
    await maintenance.evaluate()
    clock.advance(1_000)
    await maintenance.evaluate()
    assert await maintenance.deliver() == 1, "resolved is not delivered before firing"
    clock.advance(1_000)
    assert await maintenance.deliver() == 2
    assert [json.loads(body)["state"] for _, body in receiver.got] == ["firing", "firing", "firing", "resolved"]
    assert len({headers["Detent-Delivery"] for headers, _ in receiver.got}) == 2


async def test_a_crash_between_the_decision_and_the_delivery_loses_nothing(
    place: Place, engine: Engine, clock: FakeClock, receiver: Receiver
) -> None:
    """A delivery taken by a process that dies is taken by another process after a minute."""
    sink = WebhookSink(receiver.url)
    await request_illegal_moves(engine, clock)
    maintenance = MaintenanceLoop(engine, settings("illegal_transitions", hook=sink))
    await maintenance.evaluate()
    assert len(await alerts.take_deliveries(engine, ["hook"], 10)) == 1
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


async def test_a_delivery_is_given_up_after_the_last_attempt(
    engine: Engine, clock: FakeClock, receiver: Receiver
) -> None:
    receiver.answers = [500] * 100
    maintenance = MaintenanceLoop(engine, settings("illegal_transitions", hook=WebhookSink(receiver.url)))
    await request_illegal_moves(engine, clock)
    await maintenance.evaluate()
    for _ in range(25):
        await maintenance.deliver()
        clock.advance(400)
    assert len(receiver.got) == alerts.MAX_DELIVERY_ATTEMPTS
    view = alerts.delivery_view((await alerts.list_deliveries(engine))[0])
    assert view["state"] == "given up" and "500" in view["last_error"]


async def test_a_command_gets_the_alert_on_its_input(engine: Engine, clock: FakeClock, tmp_path: Any) -> None:
    delivered = tmp_path / "alert.json"
    sink = CommandSink(("sh", "-c", f"cat > {delivered}"))
    maintenance = MaintenanceLoop(engine, settings("illegal_transitions", shell=sink))
    await request_illegal_moves(engine, clock)
    await maintenance.evaluate()
    assert await maintenance.deliver() == 1
    assert json.loads(delivered.read_text())["rule"] == "illegal_transitions"
    bad = CommandSink(("sh", "-c", "echo no >&2; exit 3"))
    error = await bad.deliver((await alerts.list_deliveries(engine))[0], clock.now())
    assert error and "exited with 3: no" in error
    slow = CommandSink(("sleep", "60"), timeout_seconds=0.05)
    assert "did not end" in (await slow.deliver((await alerts.list_deliveries(engine))[0], clock.now()) or "")
    gone = CommandSink(("/no/such/program",))
    assert "cannot be started" in (await gone.deliver((await alerts.list_deliveries(engine))[0], clock.now()) or "")


async def test_an_interval_is_claimed_once(engine: Engine, clock: FakeClock) -> None:
    assert await alerts.claim_interval(engine, "x", 15)
    assert not await alerts.claim_interval(engine, "x", 15)
    clock.advance(15)
    assert [await alerts.claim_interval(engine, "x", 15) for _ in range(2)] == [True, False]


async def test_a_silence_holds_back_notifications_until_it_ends(
    engine: Engine, clock: FakeClock, receiver: Receiver
) -> None:
    """An alert that still fires when its silence ends is announced then; one that ended meanwhile is not."""
    maintenance = MaintenanceLoop(engine, settings("backlog_age", hook=WebhookSink(receiver.url)))
    await alerts.silence(engine, "backlog_age", "", 3_600, Scope("ann", "a known outage"))
    await leave_waiting(engine, clock)
    await maintenance.evaluate()
    clock.advance(60)
    assert [step.notify for step in await maintenance.evaluate()] == [State.FIRING]
    await maintenance.deliver()
    assert receiver.got == []
    (silence,) = await alerts.list_silences(engine)
    (alert,) = await alerts.list_alerts(engine)
    view = alerts.listed_view(alert, [silence], RULES.values(), engine.store.now())
    assert view["silenced_until"] is not None and view["labels"] == {"queue": "slow"}
    clock.advance(3_600)
    await maintenance.evaluate()
    await maintenance.deliver()
    assert [json.loads(body)["state"] for _, body in receiver.got] == ["firing"]
    assert await alerts.list_silences(engine) == []
    await maintenance.evaluate()
    await maintenance.deliver()
    assert len(receiver.got) == 1, "announced once"


async def test_a_silence_that_is_ended_early_silences_nothing(engine: Engine) -> None:
    silence = await alerts.silence(engine, "backlog_age", "queue=slow", 60, Scope("ann"))
    assert await alerts.end_silence(engine, silence.id, Scope("ann"))
    assert not await alerts.end_silence(engine, silence.id, Scope("ann")) and await alerts.list_silences(engine) == []
    assert not silence.covers("backlog_age", "queue=fast", silence.created_at)
    with pytest.raises(InvalidInput, match="SILENCE_INVALID"):
        await alerts.silence(engine, "backlog_age", "", 10**9, Scope("ann"))


async def test_an_acknowledgement_lasts_for_one_episode(engine: Engine, clock: FakeClock) -> None:
    maintenance = MaintenanceLoop(engine, settings("webhook_failing"))
    await break_webhook(engine, clock)
    await maintenance.evaluate()
    acknowledged = await alerts.acknowledge(engine, "webhook_failing", "webhook=crm", Scope("ann"))
    assert acknowledged.acknowledged_by == "ann"
    await maintenance.evaluate()
    (alert,) = await alerts.list_alerts(engine)
    assert (alert.state, alert.acknowledged_by) == (State.FIRING, "ann")
    await repair_webhook(engine, clock)
    for _ in range(2):
        clock.advance(400)
        await maintenance.evaluate()
    with pytest.raises(NotFound, match="ALERT_NOT_FOUND"):
        await alerts.acknowledge(engine, "webhook_failing", "webhook=crm", Scope("ann"))
    await WebhookSender(engine, WebhookSettings()).drain()
    clock.advance(3_601)
    await maintenance.evaluate()
    (alert,) = await alerts.list_alerts(engine)
    assert (alert.state, alert.acknowledged_by) == (State.FIRING, None)
