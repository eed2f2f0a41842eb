"""The Prometheus page: counters from the log, gauges of the current state, histograms of this process.

Counters, gauges, detent_job_wait_seconds and detent_job_run_seconds have the same values in every process: aggregate
them with `max by`, not `sum`. The other histograms are per process.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

from detent.core.alerts import Alert
from detent.core.contract.model import Move
from detent.core.times import SECOND
from detent.engine import Engine
from detent.engine.metrics import buckets
from detent.engine.metrics.alert_kinds import Readings
from detent.engine.metrics.alerts import list_alerts, read_inputs
from detent.engine.metrics.event_counts import EVENTS, LOSSES, NOTES, EventCounter
from detent.engine.metrics.time_series import read_totals
from detent.engine.reads.why import is_live
from detent.ports.metrics import BucketCounts, Group, SubjectSlot
from detent.system.extras import extra_imports
from detent.version import __version__

from .histograms import MAX_KINDS, OTHER, ExecutionHistograms, Histogram

MAX_LABELS = 100
"""Tenants, notes and schedules with a label of their own; the others share the label `other`."""
Values = Mapping[Any, float]
"""Tuple of label values -> value of the metric."""
Metric = tuple[str, str, tuple[str, ...], Values]
"""Name, help, names of the labels, values."""
_KIND = ("contract", "queue", "job_type")
_MAX_STEPS = 200
_SHOWN_BUCKETS = range(16, 104, buckets.PER_DOUBLING)
"""The bounds of detent_job_wait_seconds and detent_job_run_seconds: 1.6 ms, doubled up to 56 minutes."""


async def exposition(
    engine: Engine, event_counter: EventCounter | None = None, histograms: ExecutionHistograms | None = None
) -> tuple[bytes, str]:
    """(the page, its content type). First counts the events of the log up to now, so that the counters are exact."""
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

    await (event_counter or EventCounter(engine)).catch_up(_MAX_STEPS)
    readings = await engine.store.read(partial(read_inputs, engine))
    alerts = await list_alerts(engine)
    totals = await engine.store.read(read_totals)
    registry: Any = SimpleNamespace(collect=lambda: _families(readings, alerts, totals, histograms))
    return generate_latest(registry), CONTENT_TYPE_LATEST


def require_prometheus() -> None:
    """Raises ExtraMissing now; `exposition` would with the first request."""
    with extra_imports():
        import prometheus_client  # noqa: F401


def _families(
    readings: Readings, alerts: list[Alert], totals: list[SubjectSlot], histograms: ExecutionHistograms | None
) -> Iterator[Any]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for kind, metrics in ((CounterMetricFamily, _counters(readings)), (GaugeMetricFamily, _gauges(readings, alerts))):
        for name, help_text, labels, values in metrics:
            family = kind(name, help_text, labels=labels)
            for label_values, number in sorted(values.items()):
                family.add_metric(label_values, number)
            yield family
    yield from _latencies(readings, totals)
    if histograms is not None:
        help_text = "Seconds from due to pickup by this process."
        yield _histogram("detent_pickup_seconds", help_text, histograms.pickup)
        yield _histogram("detent_execution_seconds", "Seconds that handlers ran in this process.", histograms.execution)
        help_text = "Seconds for which handlers blocked the event loop of this process, from the warning on."
        yield _histogram("detent_loop_blocked_seconds", help_text, histograms.blocked)


def _counters(readings: Readings) -> Iterator[Metric]:
    events = _events(readings, _labels_of_groups(readings))
    yield "detent_events", "Status changes in the log.", (*_KIND, "event", "move"), events
    yield "detent_dead_letters", "Dead letters written, by tenant.", ("tenant_id",), _dead_letters(readings)
    notes = _sum(
        (readings.group(key).contract, key.event, n) for (log, key), n in readings.sums.items() if log == NOTES
    )
    help_text = "Notes in the log; refused moves by contract, the others together."
    yield "detent_notes", help_text, ("contract", "note"), notes
    losses = {(str(key.event == "charged").lower(),): n for (log, key), n in readings.sums.items() if log == LOSSES}
    yield "detent_lease_losses", "Jobs taken from workers whose lease ran out.", ("charged",), losses


def _gauges(readings: Readings, alerts: list[Alert]) -> Iterator[Metric]:
    now, job_kind = readings.now, ("queue", "job_type")
    jobs = _jobs(readings, _labels_of_groups(readings))
    yield "detent_jobs", "Unfinished jobs by status.", (*_KIND, "status", "phase"), jobs
    waiting = {(queue,): (now - due) / SECOND for queue, due in readings.waiting().items()}
    help_text = "Seconds since the oldest due job became due, without paused jobs."
    yield "detent_backlog_oldest_seconds", help_text, ("queue",), _capped(waiting)
    unserved = {(kind.queue, kind.job_type): (now - due) / SECOND for kind, due in readings.unserved()}
    help_text = "Seconds for which jobs are due that no live worker runs."
    yield "detent_unserved_seconds", help_text, job_kind, _capped(unserved)
    running = {(queue, job_type): (now - since) / SECOND for queue, job_type, _, since in readings.running}
    help_text = "Seconds since the oldest running execution started."
    yield "detent_running_oldest_seconds", help_text, job_kind, _capped(running)
    suspects = {kind: losses for kind, (losses, _, _) in readings.worst_suspects().items()}
    help_text = "Losses in a row of the job that was lost most often, from two on."
    yield "detent_suspect_losses", help_text, job_kind, _capped(suspects)
    late = {(schedule.label,): schedule.late(now) / SECOND for schedule in readings.missed}
    yield "detent_schedule_late_seconds", "Seconds by which schedules are late.", ("schedule",), _capped(late)
    failing = {(hook.name,): (now - hook.failing_since) / SECOND for hook in readings.webhooks if hook.failing_since}
    help_text = "Seconds since requests to a webhook fail, without one success."
    yield "detent_webhook_failing_seconds", help_text, ("webhook",), _capped(failing)
    live = [worker for worker in readings.workers if is_live(worker, now)]
    yield "detent_workers", "Live workers by state.", ("state",), Counter((worker.state,) for worker in live)
    yield "detent_slots", "Slots of live workers.", (), {(): sum(worker.slots for worker in live)}
    busy = sum(worker.busy for worker in live)
    yield "detent_slots_busy", "Slots of live workers that run a job.", (), {(): busy}
    states = Counter((alert.rule, alert.severity, str(alert.state)) for alert in alerts)
    yield "detent_alerts", "Alerts by rule and state.", ("rule", "severity", "state"), states
    yield "detent_build_info", "The version of Detent.", ("version",), {(__version__,): 1}


def _events(readings: Readings, labels: Mapping[Group, Group]) -> Mapping[tuple[str, ...], float]:
    sums: Counter[tuple[str, ...]] = Counter()
    for (log, key), number in readings.sums.items():
        if log == EVENTS:
            sums[(*labels[readings.group(key)], key.event, str(readings.move(key) or ""))] += number
    return sums


def _jobs(readings: Readings, labels: Mapping[Group, Group]) -> Mapping[tuple[str, ...], float]:
    sums: Counter[tuple[str, ...]] = Counter()
    for (group, status), number in readings.jobs_by_status().items():
        sums[(*labels[group], status, str(readings.contracts[group.contract].phase(status)))] += number
    return sums


def _dead_letters(readings: Readings) -> Mapping[tuple[str, ...], float]:
    sums: dict[int, int] = {}
    for (log, key), number in sorted(readings.sums.items(), key=lambda entry: entry[0][1].party):
        contract = readings.contracts.get(readings.group(key).contract)
        if log == EVENTS and contract and contract.dead_letters and readings.move(key) is Move.FAIL:
            sums[key.party] = sums.get(key.party, 0) + number
    return _sum((readings.tenants.get(party, OTHER), number) for party, number in sums.items())


def _labels_of_groups(readings: Readings) -> dict[Group, Group]:
    """Group -> its label. The first MAX_KINDS groups keep their names, in every process and after every restart."""
    groups = [group for _, group in sorted(readings.groups.items())]
    other = Group(OTHER, OTHER, OTHER)
    return {group: group if place <= MAX_KINDS else other for place, group in enumerate(groups)}


def _sum(rows: Iterable[tuple[Any, ...]]) -> dict[tuple[str, ...], float]:
    """Rows of labels and a number. The first MAX_LABELS combinations of labels keep their names."""
    sums: dict[tuple[str, ...], float] = {}
    for *names, number in rows:
        label = tuple(names) if tuple(names) in sums or len(sums) < MAX_LABELS else (OTHER,) * len(names)
        sums[label] = sums.get(label, 0) + number
    return sums


def _capped(values: Values) -> Values:
    """The MAX_LABELS highest values keep their labels; `other` gets the highest of the rest."""
    ordered = sorted(values.items(), key=lambda entry: -entry[1])
    kept = dict(ordered[:MAX_LABELS])
    if len(ordered) > MAX_LABELS:
        kept[(OTHER,) * len(ordered[0][0])] = ordered[MAX_LABELS][1]
    return kept


def _latencies(readings: Readings, totals: list[SubjectSlot]) -> Iterator[Any]:
    """Waiting and running times since the beginning, recorded by servers; the same in every process."""
    from prometheus_client.core import HistogramMetricFamily

    wait = HistogramMetricFamily("detent_job_wait_seconds", "Seconds from due to claimed.", labels=_KIND)
    run = HistogramMetricFamily("detent_job_run_seconds", "Seconds from claimed to the end of the run.", labels=_KIND)
    for group, _, sums in sorted(totals):
        labels = readings.groups[int(group)] if group else Group(OTHER, OTHER, OTHER)
        wait.add_metric(labels, _cumulative(sums.waits), sums.waited / SECOND)
        run.add_metric(labels, _cumulative(sums.runs), sums.ran / SECOND)
    yield from (wait, run)


def _cumulative(histogram: BucketCounts) -> list[tuple[str, float]]:
    """(upper bound, how many values up to it), cumulative as Prometheus expects."""
    rows = [
        (repr(buckets.upper_seconds(bound)), float(sum(n for bucket, n in histogram.items() if bucket <= bound)))
        for bound in _SHOWN_BUCKETS
    ]
    return [*rows, ("+Inf", float(sum(histogram.values())))]


def _histogram(name: str, help_text: str, table: Mapping[tuple[str, ...], Histogram]) -> Any:
    from prometheus_client.core import HistogramMetricFamily

    family = HistogramMetricFamily(name, help_text, labels=_KIND)
    for (contract, job_type, queue), histogram in sorted(table.items()):
        family.add_metric((contract, queue, job_type), histogram.buckets(), histogram.total)
    return family
