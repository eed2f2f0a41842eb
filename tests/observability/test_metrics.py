"""The Prometheus page: valid for the official parser, equal to the log, with bounded labels; and the rules file."""

import asyncio
import re
import urllib.request
from collections import Counter
from pathlib import Path

import apsw
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from detent import Detent
from detent.core.alerts import DEFAULT_RULES
from detent.core.contract.builtin import CONTRACTS
from detent.core.outcome import Succeeded
from detent.engine import Engine, Submission
from detent.engine.metrics import alerts
from detent.engine.metrics.alert_kinds import prometheus_rules
from detent.engine.metrics.event_counts import EventCounter
from detent.observability.histograms import MAX_KINDS, ExecutionHistograms, Histogram
from detent.observability.metrics import MAX_LABELS, exposition
from support.acts import LEASE_SECONDS, PERMANENT, claim, submit
from support.clock import FakeClock
from support.stores import Place, make_engine
from support.waiting import until
from support.worker.claims import claimed

from .test_alerts import dead_letter_many, lose_worker, register_worker, request_illegal_moves, retry_all
from .test_event_counts import logged, run_many_jobs

pytestmark = pytest.mark.anyio
Samples = dict[str, dict[tuple[tuple[str, str], ...], float]]


def parsed(page: bytes) -> Samples:
    samples: Samples = {}
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            assert labels not in samples.setdefault(sample.name, {}), f"{sample.name}{labels} twice"
            samples[sample.name][labels] = sample.value
    return samples


async def page_of(engine: Engine, histograms: ExecutionHistograms | None = None) -> Samples:
    body, content_type = await exposition(engine, None, histograms)
    assert content_type.startswith("text/plain")
    return parsed(body)


def summed(samples: Samples, name: str, *labels: str) -> dict[tuple[str, ...], float]:
    sums: Counter[tuple[str, ...]] = Counter()
    for sample_labels, value in samples.get(name, {}).items():
        sums[tuple(dict(sample_labels)[label] for label in labels)] += value
    return dict(sums)


async def test_counters_equal_the_log_before_and_after_a_restart(
    place: Place, engine: Engine, clock: FakeClock
) -> None:
    await run_many_jobs(engine, clock)
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
        await run_many_jobs(engine, clock)


async def test_gauges_equal_the_rows(engine: Engine, clock: FakeClock) -> None:
    await run_many_jobs(engine, clock)
    samples = await page_of(engine)
    counts = await engine.store.read(lambda tx: tx.stats.counts())
    alive = {(c, s): n for c, s, phase, n in counts if phase != "final"}
    exposed = summed(samples, "detent_jobs", "contract", "status")
    assert {key: n for key, n in exposed.items() if n} == alive


async def test_dead_letters_losses_and_ages(engine: Engine, clock: FakeClock) -> None:
    await dead_letter_many(engine, clock)
    await lose_worker(engine, clock)
    await submit(engine, job_type="alone", queue="slow")
    await claim(engine, 1, job_types={"mail"})
    clock.advance(20)
    await register_worker(engine, "w", "mail")
    samples = await page_of(engine)
    assert summed(samples, "detent_dead_letters_total", "tenant_id") == {("acme",): 12}
    assert summed(samples, "detent_lease_losses_total", "charged") == {("false",): 12}
    assert summed(samples, "detent_unserved_seconds", "queue", "job_type") == {("slow", "alone"): 20}
    assert summed(samples, "detent_backlog_oldest_seconds", "queue")["slow",] == 20
    assert summed(samples, "detent_running_oldest_seconds", "job_type") == {("mail",): 20}
    assert summed(samples, "detent_slots") == {(): 8}
    assert summed(samples, "detent_workers", "state") == {("working",): 1}


async def test_labels_are_bounded(engine: Engine, clock: FakeClock) -> None:
    submissions = [Submission(f"type-{n}", tenant_id=f"t{n}", contract="gate-b2") for n in range(MAX_KINDS + 20)]
    await engine.jobs.submit_many(submissions)
    for _ in range(MAX_KINDS + 20):
        for job in await claim(engine, 1_000):
            await engine.settle(job.id, job.token, PERMANENT)
    samples = await page_of(engine)
    kinds = summed(samples, "detent_events_total", "job_type")
    assert len(kinds) == MAX_KINDS + 1 and kinds["other",] == 20 * 5
    assert sum(kinds.values()) == (MAX_KINDS + 20) * 5
    tenants = summed(samples, "detent_dead_letters_total", "tenant_id")
    assert len(tenants) == MAX_LABELS + 1 and sum(tenants.values()) == MAX_KINDS + 20


def test_histograms_are_bounded_and_cumulative() -> None:
    histograms = ExecutionHistograms()
    for n in range(MAX_KINDS + 5):
        histograms.record_execution(claimed(f"j{n}")._replace(job_type=f"type-{n}"), 0.003)
    assert len(histograms.execution) == MAX_KINDS + 1
    assert sum(histogram.buckets()[-1][1] for histogram in histograms.execution.values()) == MAX_KINDS + 5
    histogram = Histogram()
    for value in (0.0005, 0.001, 0.2, 10_000):
        histogram.add(value)
    assert histogram.total == 10_000.2015
    buckets = dict(histogram.buckets())
    assert (buckets["0.001"], buckets["0.25"], buckets["1800.0"], buckets["+Inf"]) == (2, 3, 3, 4)


async def test_a_worker_serves_the_page_with_its_histograms(tmp_path: Path) -> None:
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
    log = dict(connection.execute("SELECT event, count(*) FROM detent_event_list GROUP BY event"))
    connection.close()
    assert {event: n for (event,), n in summed(samples, "detent_events_total", "event").items()} == log


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as response:
        return bytes(response.read())


async def test_the_rules_file_uses_metrics_of_the_page(engine: Engine, clock: FakeClock) -> None:
    await retry_all(engine, clock)
    await dead_letter_many(engine, clock)
    await request_illegal_moves(engine, clock)
    await lose_worker(engine, clock)
    await claim(engine, 1)
    await alerts.evaluate(engine, EventCounter(engine), DEFAULT_RULES)
    text = prometheus_rules(DEFAULT_RULES, CONTRACTS)
    (group,) = yaml.safe_load(text)["groups"]
    assert [rule["labels"]["severity"] for rule in group["rules"]] == [rule.severity for rule in DEFAULT_RULES]
    exposed = (await exposition(engine))[0].decode()
    families = set(re.findall(r"^# TYPE (\w+)", exposed, re.MULTILINE))
    for rule in group["rules"]:
        assert rule["expr"].count("(") == rule["expr"].count(")")
        named = set(re.findall(r"detent_\w+", rule["expr"]))
        assert named and named <= families, (rule["alert"], named - families)
        for name, labels in re.findall(r"(detent_\w+)\{([^}]*)\}", rule["expr"]):
            for label in re.findall(r"(\w+)=", labels):
                assert any(f"{name}{{" in line and f"{label}=" in line for line in exposed.splitlines()), (name, label)


async def test_pruned_jobs_are_still_counted(engine: Engine, clock: FakeClock) -> None:
    """The page is made from stored sums: it reads no finished job and no event that was counted before."""
    await engine.jobs.submit_many([Submission("mail") for _ in range(20)])
    for job in await claim(engine, 20):
        await engine.settle(job.id, job.token, Succeeded(None))
    first = summed(await page_of(engine), "detent_events_total", "event")
    assert sum(first.values()) == 60
    clock.advance(LEASE_SECONDS)
    assert (await engine.prune(0)).jobs == 20
    assert summed(await page_of(engine), "detent_events_total", "event") == first
