"""Prometheus: what the log adds up to, how things stand, and what this process measured, as one page of text.

Sums over the log are the same from every process (take `max by`, not `sum`); histograms are each process's own.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from detent.core.alerts import Alert
from detent.core.contract.model import Move
from detent.core.times import SECOND
from detent.engine import Engine
from detent.engine.metrics.alert_kinds import Readings
from detent.engine.metrics.alerts import listing, readings
from detent.engine.metrics.event_counts import EVENTS, LOSSES, NOTES, Follower, Group
from detent.engine.reads.why import is_live
from detent.version import __version__

from .histograms import KINDS_AT_MOST, OTHER, ExecutionHistograms, Histogram

NAMES_AT_MOST = 100
"""Tenants, notes and schedules told apart; the rest is summed up as `other`."""
Values = Mapping[Any, float]
"""By the values of the labels, as a tuple."""
_KIND = ("contract", "queue", "job_type")
_STEPS = 200


async def exposition(
    engine: Engine, follower: Follower | None = None, histograms: ExecutionHistograms | None = None
) -> tuple[bytes, str]:
    """(the page, its content type). Counts the log up to now first, so the numbers are the log's."""
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

    await (follower or Follower(engine)).catch_up(_STEPS)
    found = await engine.store.read(partial(readings, engine))
    families = list(_families(found, await listing(engine), histograms))
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Ready(families))
    return generate_latest(registry), CONTENT_TYPE_LATEST


class _Ready:
    """Hands out what was collected before."""

    def __init__(self, families: list[Any]) -> None:
        self._families = families

    def collect(self) -> Iterator[Any]:
        yield from self._families


def _families(found: Readings, alerts: list[Alert], histograms: ExecutionHistograms | None) -> Iterator[Any]:
    known = _bounded_groups(found)
    yield _family(
        "counter", "detent_events", "Status changes in the log.", (*_KIND, "event", "move"), _events(found, known)
    )
    yield _family(
        "gauge", "detent_jobs", "Unfinished jobs by status.", (*_KIND, "status", "phase"), _jobs(found, known)
    )
    yield _family(
        "counter", "detent_dead_letters", "Dead letters written, by tenant.", ("tenant_id",), _dead_letters(found)
    )
    notes = _bounded({key.event: n for (log, key), n in found.sums.items() if log == NOTES}.items())
    yield _family("counter", "detent_notes", "Notes in the log, refused moves among them.", ("note",), notes)
    losses = {(str(key.event == "charged").lower(),): n for (log, key), n in found.sums.items() if log == LOSSES}
    says = "Jobs taken from workers whose lease ran out."
    yield _family("counter", "detent_lease_losses", says, ("charged",), losses)
    yield from _standing(found)
    states = Counter((alert.rule, alert.severity, str(alert.state)) for alert in alerts)
    yield _family("gauge", "detent_alerts", "Alerts by rule and state.", ("rule", "severity", "state"), states)
    yield _family("gauge", "detent_build_info", "The version that tells.", ("version",), {(__version__,): 1})
    if histograms is not None:
        says = "From due to picked up by this process."
        yield _histogram("detent_pickup_seconds", says, histograms.pickup)
        yield _histogram("detent_execution_seconds", "How long handlers ran in this process.", histograms.execution)


def _standing(found: Readings) -> Iterator[Any]:
    now = found.now
    waiting = {(queue,): (now - due) / SECOND for queue, due in found.waiting().items()}
    says = "Since when the oldest due job waits; paused ones do not count."
    yield _family("gauge", "detent_backlog_oldest_seconds", says, ("queue",), _capped(waiting))
    unserved = {(kind.queue, kind.job_type): (now - due) / SECOND for kind, due in found.unserved()}
    says = "Since when jobs are due that no live worker takes."
    yield _family("gauge", "detent_unserved_seconds", says, ("queue", "job_type"), _capped(unserved))
    running = {(queue, job_type): (now - since) / SECOND for queue, job_type, _, since in found.running}
    says = "For how long the oldest execution under way runs."
    yield _family("gauge", "detent_running_oldest_seconds", says, ("queue", "job_type"), _capped(running))
    late = {(one.called,): one.late(now) / SECOND for one in found.missed}
    yield _family("gauge", "detent_schedule_late_seconds", "How late schedules are.", ("schedule",), _capped(late))
    live = [worker for worker in found.workers if is_live(worker, now)]
    states = Counter((worker.state,) for worker in live)
    yield _family("gauge", "detent_workers", "Live workers by state.", ("state",), states)
    yield _family("gauge", "detent_slots", "Slots of live workers.", (), {(): sum(worker.slots for worker in live)})
    busy = sum(worker.busy for worker in live)
    yield _family("gauge", "detent_slots_busy", "Slots of live workers that run a job.", (), {(): busy})


def _events(found: Readings, known: Mapping[Group, Group]) -> Mapping[tuple[str, ...], float]:
    sums: Counter[tuple[str, ...]] = Counter()
    for (log, key), number in found.sums.items():
        if log == EVENTS:
            sums[(*known[found.group(key)], key.event, str(found.move(key) or ""))] += number
    return sums


def _jobs(found: Readings, known: Mapping[Group, Group]) -> Mapping[tuple[str, ...], float]:
    sums: Counter[tuple[str, ...]] = Counter()
    for (group, status), number in found.standing().items():
        sums[(*known[group], status, str(found.contracts[group.contract].phase(status)))] += number
    return sums


def _dead_letters(found: Readings) -> Mapping[tuple[str, ...], float]:
    sums: dict[int, int] = {}
    for (log, key), number in sorted(found.sums.items(), key=lambda entry: entry[0][1].party):
        contract = found.contracts.get(found.group(key).contract)
        if log == EVENTS and contract and contract.dead_letters and found.move(key) is Move.FAIL:
            sums[key.party] = sums.get(key.party, 0) + number
    return _bounded((found.tenants.get(party, OTHER), number) for party, number in sums.items())


def _bounded_groups(found: Readings) -> dict[Group, Group]:
    """The kinds that came first keep their names, in every process and after every restart."""
    known = [group for _, group in sorted(found.groups.items())]
    other = Group(OTHER, OTHER, OTHER)
    return {group: group if place <= KINDS_AT_MOST else other for place, group in enumerate(known)}


def _bounded(rows: Iterable[tuple[str, float]]) -> dict[tuple[str, ...], float]:
    sums: dict[tuple[str, ...], float] = {}
    for name, number in rows:
        label = (name,) if (name,) in sums or len(sums) < NAMES_AT_MOST else (OTHER,)
        sums[label] = sums.get(label, 0) + number
    return sums


def _capped(values: Values) -> Values:
    """Of gauges the worst are told; the worst of the rest stands for them."""
    ordered = sorted(values.items(), key=lambda entry: -entry[1])
    kept = dict(ordered[:NAMES_AT_MOST])
    if len(ordered) > NAMES_AT_MOST:
        kept[(OTHER,) * len(ordered[0][0])] = ordered[NAMES_AT_MOST][1]
    return kept


def _family(kind: str, name: str, says: str, labels: tuple[str, ...], values: Values) -> Any:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    made = (CounterMetricFamily if kind == "counter" else GaugeMetricFamily)(name, says, labels=labels)
    for its, number in sorted(values.items()):
        made.add_metric(its, number)
    return made


def _histogram(name: str, says: str, table: Mapping[tuple[str, ...], Histogram]) -> Any:
    from prometheus_client.core import HistogramMetricFamily

    made = HistogramMetricFamily(name, says, labels=_KIND)
    for (contract, job_type, queue), found in sorted(table.items()):
        made.add_metric((contract, queue, job_type), found.buckets(), found.total)
    return made
