"""The page for Prometheus: read by the official parser, its numbers the log's, its labels bounded, its rules ours."""

import asyncio
import re
import urllib.request
from collections import Counter
from pathlib import Path

import apsw
import pytest
import yaml
from engine.acts import LEASE_SECONDS, PERMANENT, claim, submit
from engine.clock import FakeClock
from engine.stores import Place, make_engine
from prometheus_client.parser import text_string_to_metric_families
from worker.claims import claimed
from worker.waiting import until

from detent import Detent
from detent.core.alerts import DEFAULT_RULES
from detent.core.contract.builtin import CONTRACTS
from detent.core.outcome import Succeeded
from detent.engine import Engine, Submission
from detent.engine.metrics import alerts
from detent.engine.metrics.alert_export import prometheus_rules
from detent.engine.metrics.event_counts import Follower
from detent.observability.histograms import KINDS_AT_MOST, ExecutionHistograms, Histogram
from detent.observability.metrics import NAMES_AT_MOST, exposition

from .test_alerts import ask_for_the_impossible, bury_many, introduce, lose_a_worker, retry_all
from .test_event_counts import busy, logged

pytestmark = pytest.mark.anyio
Samples = dict[str, dict[tuple[tuple[str, str], ...], float]]


def parsed(page: bytes) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            assert labels not in found.setdefault(sample.name, {}), f"{sample.name}{labels} twice"
            found[sample.name][labels] = sample.value
    return found


async def page_of(engine: Engine, histograms: ExecutionHistograms | None = None) -> Samples:
    body, kind = await exposition(engine, None, histograms)
    assert kind.startswith("text/plain")
    return parsed(body)


def summed(samples: Samples, name: str, *labels: str) -> dict[tuple[str, ...], float]:
    sums: Counter[tuple[str, ...]] = Counter()
    for its, value in samples.get(name, {}).items():
        sums[tuple(dict(its)[label] for label in labels)] += value
    return dict(sums)


async def test_the_numbers_are_the_logs_before_and_after_a_restart(
    place: Place, engine: Engine, clock: FakeClock
) -> None:
    await busy(engine, clock)
    for _ in range(2):
        reader = make_engine(place, clock)
        await reader.open()
        samples = await page_of(reader)
        log = await logged(engine)
        await reader.close()
        events: Counter[tuple[str, ...]] = Counter()
        notes: Counter[tuple[str, ...]] = Counter()
        for (contract, queue, job_type, _, event, _), number in log.items():
            if contract:
                events[contract, queue, job_type, event] += number
            else:
                notes[event,] += number
        assert summed(samples, "detent_events_total", "contract", "queue", "job_type", "event") == events
        assert summed(samples, "detent_notes_total", "note") == notes
        await busy(engine, clock)


async def test_gauges_are_what_the_rows_say(engine: Engine, clock: FakeClock) -> None:
    await busy(engine, clock)
    samples = await page_of(engine)
    counts = await engine.store.read(lambda tx: tx.counts())
    alive = {(c, s): n for c, s, phase, n in counts if phase != "final"}
    told = summed(samples, "detent_jobs", "contract", "status")
    assert {key: n for key, n in told.items() if n} == alive


async def test_dead_letters_losses_and_ages(engine: Engine, clock: FakeClock) -> None:
    await bury_many(engine, clock)
    await lose_a_worker(engine, clock)
    await submit(engine, job_type="alone", queue="slow")
    await claim(engine, 1, job_types={"mail"})
    clock.advance(20)
    await introduce(engine, "w", "mail")
    samples = await page_of(engine)
    assert summed(samples, "detent_dead_letters_total", "tenant_id") == {("acme",): 12}
    assert summed(samples, "detent_lease_losses_total", "charged") == {("false",): 12}
    assert summed(samples, "detent_unserved_seconds", "queue", "job_type") == {("slow", "alone"): 20}
    assert summed(samples, "detent_backlog_oldest_seconds", "queue")["slow",] == 20
    assert summed(samples, "detent_running_oldest_seconds", "job_type") == {("mail",): 20}
    assert summed(samples, "detent_slots") == {(): 8}
    assert summed(samples, "detent_workers", "state") == {("working",): 1}


async def test_labels_are_bounded(engine: Engine, clock: FakeClock) -> None:
    asks = [Submission(f"type-{n}", tenant_id=f"t{n}", contract="gate-b2") for n in range(KINDS_AT_MOST + 20)]
    await engine.submit_many(asks)
    for _ in range(KINDS_AT_MOST + 20):
        for job in await claim(engine, 1_000):
            await engine.settle(job.id, job.token, PERMANENT)
    samples = await page_of(engine)
    kinds = summed(samples, "detent_events_total", "job_type")
    assert len(kinds) == KINDS_AT_MOST + 1 and kinds["other",] == 20 * 5
    assert sum(kinds.values()) == (KINDS_AT_MOST + 20) * 5
    tenants = summed(samples, "detent_dead_letters_total", "tenant_id")
    assert len(tenants) == NAMES_AT_MOST + 1 and sum(tenants.values()) == KINDS_AT_MOST + 20


def test_timings_are_bounded_and_cumulative() -> None:
    histograms = ExecutionHistograms()
    for n in range(KINDS_AT_MOST + 5):
        histograms.executed(claimed(f"j{n}")._replace(job_type=f"type-{n}"), 0.003)
    assert len(histograms.execution) == KINDS_AT_MOST + 1
    assert sum(one.count for one in histograms.execution.values()) == KINDS_AT_MOST + 5
    seen = Histogram()
    for value in (0.0005, 0.001, 0.2, 10_000):
        seen.add(value)
    assert seen.total == 10_000.2015
    buckets = dict(seen.buckets())
    assert (buckets["0.001"], buckets["0.25"], buckets["1800.0"], buckets["+Inf"]) == (2, 3, 3, 4)


async def test_a_worker_serves_it_and_tells_what_it_measured(tmp_path: Path) -> None:
    app = Detent(f"sqlite:///{tmp_path / 'jobs.db'}")

    @app.job("quick", queue="fast")
    async def quick(n: int) -> None:
        if n == 0:
            raise ValueError("no")

    async with app:
        await quick.using(max_retries=0).enqueue_many([{"n": n} for n in range(50)])
        worker = await app.worker(metrics_port=0, slots=8)
        task = asyncio.create_task(worker.run(handle_signals=False))
        page = worker.background.page
        assert page is not None
        await until(lambda: worker.done >= 50)
        body = await asyncio.to_thread(_get, f"http://127.0.0.1:{page.port}/metrics")
        assert await asyncio.to_thread(_get, f"http://127.0.0.1:{page.port}/healthz") == b"ok\n"
        worker.stop()
        assert await task == 0
    samples = parsed(body)
    assert summed(samples, "detent_execution_seconds_count", "queue", "job_type") == {("fast", "quick"): 50}
    assert summed(samples, "detent_pickup_seconds_count", "contract") == {("standard",): 50}
    connection = apsw.Connection(str(tmp_path / "jobs.db"))
    log = dict(connection.execute("SELECT event, count(*) FROM events GROUP BY event"))
    connection.close()
    assert {event: n for (event,), n in summed(samples, "detent_events_total", "event").items()} == log


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return bytes(answer.read())


async def test_the_rules_file_asks_for_what_the_page_tells(engine: Engine, clock: FakeClock) -> None:
    await retry_all(engine, clock)
    await bury_many(engine, clock)
    await ask_for_the_impossible(engine, clock)
    await lose_a_worker(engine, clock)
    await claim(engine, 1)
    await alerts.evaluate(engine, Follower(engine), DEFAULT_RULES)
    text = prometheus_rules(DEFAULT_RULES, CONTRACTS)
    (group,) = yaml.safe_load(text)["groups"]
    assert [rule["labels"]["severity"] for rule in group["rules"]] == [rule.severity for rule in DEFAULT_RULES]
    told = (await exposition(engine))[0].decode()
    families = set(re.findall(r"^# TYPE (\w+)", told, re.MULTILINE))
    for rule in group["rules"]:
        assert rule["expr"].count("(") == rule["expr"].count(")")
        named = set(re.findall(r"detent_\w+", rule["expr"]))
        assert named and named <= families, (rule["alert"], named - families)
        for name, labels in re.findall(r"(detent_\w+)\{([^}]*)\}", rule["expr"]):
            for label in re.findall(r"(\w+)=", labels):
                assert any(f"{name}{{" in line and f"{label}=" in line for line in told.splitlines()), (name, label)


async def test_what_was_pruned_is_still_counted(engine: Engine, clock: FakeClock) -> None:
    """The page rests on sums: it needs no finished job and no event that was counted before."""
    await engine.submit_many([Submission("mail") for _ in range(20)])
    for job in await claim(engine, 20):
        await engine.settle(job.id, job.token, Succeeded(None))
    first = summed(await page_of(engine), "detent_events_total", "event")
    assert sum(first.values()) == 60
    clock.advance(LEASE_SECONDS)
    assert (await engine.prune(0)).jobs == 20
    assert summed(await page_of(engine), "detent_events_total", "event") == first
