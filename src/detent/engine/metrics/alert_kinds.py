"""The kinds of alerts: for each, the measurement that Detent evaluates and the equal Prometheus expression."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from detent.core.alerts import Measurement, Rule
from detent.core.contract.model import Contract, Move, Phase
from detent.core.job import Loss, Micros
from detent.core.times import SECOND
from detent.core.webhooks.subscription import Webhook, WebhookState
from detent.engine.reads.why import live_workers, span
from detent.engine.refusal import MOVE_REFUSED
from detent.ports.claims import HeldJobs, Suspect
from detent.ports.limits import Pause
from detent.ports.listing import WorkerRow
from detent.ports.metrics import Group, Key, RecentCount
from detent.ports.schedules import MissedSchedule

from .event_counts import EVENTS, NOTES, SLOT, UNKNOWN, edge_of

_FAILURES = (Move.RETRY, Move.FAIL)
_ENDS = (Move.SUCCEED, *_FAILURES)
_GROUP_LABELS = "contract, queue, job_type"
PromQL = Callable[[Rule, Mapping[str, Contract]], str]


@dataclass(frozen=True, slots=True)
class Readings:
    """The inputs of all rules, read in one transaction; its size does not grow with the number of finished jobs."""

    now: Micros
    contracts: Mapping[str, Contract]
    groups: Mapping[int, Group]
    tenants: Mapping[int, str]
    sums: Mapping[tuple[str, Key], int]
    slots: list[RecentCount]
    due: list[tuple[Group, Micros]]
    """Groups with due jobs, and since when the oldest is due."""
    workers: list[WorkerRow]
    pauses: list[Pause]
    running: list[HeldJobs]
    losses: list[Loss]
    suspects: list[Suspect]
    missed: list[MissedSchedule]
    webhooks: list[Webhook]

    def recent(self, log: str, seconds: float) -> Iterator[tuple[Key, int]]:
        since = (self.now - int(seconds * SECOND)) // SLOT
        return ((key, number) for slot, slot_log, key, number in self.slots if slot_log == log and slot >= since)

    def group(self, key: Key) -> Group:
        return self.groups.get(key.lane_group, UNKNOWN)

    def move(self, key: Key) -> Move | None:
        edge = edge_of(self.contracts.get(self.group(key).contract), key.source, key.event, key.target)
        return edge.move if edge else None

    def worst_suspects(self) -> dict[tuple[str, str], tuple[int, str, int]]:
        """(queue, job_type) -> (losses in a row and id of the suspect lost most often, number of suspects)."""
        worst: dict[tuple[str, str], tuple[int, str, int]] = {}
        for queue, job_type, losses, job_id in self.suspects:
            most, worst_id, number = worst.get((queue, job_type), (0, "", 0))
            worst[queue, job_type] = (*max((most, worst_id), (losses, job_id)), number + 1)
        return worst

    def jobs_by_status(self) -> Counter[tuple[Group, str]]:
        """Unfinished jobs by group and status: events that enter the status minus events that leave it."""
        numbers: Counter[tuple[Group, str]] = Counter()
        for (log, key), number in self.sums.items():
            if log != EVENTS:
                continue
            group = self.group(key)
            contract = self.contracts.get(group.contract)
            for status, sign in ((key.target, 1), (key.source, -1)):
                if contract and contract.statuses.get(status, Phase.FINAL) is not Phase.FINAL:
                    numbers[group, status] += sign * number
        return numbers

    def is_paused(self, queue: str, job_type: str) -> bool:
        paused = {(pause.kind, pause.name) for pause in self.pauses}
        return ("queue", queue) in paused or ("job_type", job_type) in paused

    def unserved(self) -> list[tuple[Group, Micros]]:
        """Groups with due jobs that are not paused and that no live worker claims."""
        live = live_workers(self.workers, self.now)
        return [
            (group, oldest)
            for group, oldest in self.due
            if not self.is_paused(group.queue, group.job_type)
            and not any(worker.can_run(group.queue, group.job_type) for worker in live)
        ]

    def waiting(self) -> dict[str, Micros]:
        """The due time of the oldest due job of each queue; paused jobs are left out, they are meant to wait."""
        oldest: dict[str, Micros] = {}
        for group, due in self.due:
            if not self.is_paused(group.queue, group.job_type):
                oldest[group.queue] = min(due, oldest.get(group.queue, due))
        return oldest


@dataclass(frozen=True, slots=True)
class AlertKind:
    """summary: what is wrong; unit: of the threshold; promql: the same check on Detent's Prometheus metrics."""

    summary: str
    unit: str
    measure: Callable[[Rule, Readings], Iterable[Measurement]]
    promql: PromQL


def retry_statuses(contract: Contract) -> set[str]:
    """Statuses that a job enters by a retry, and not by a submit or a wake."""
    retried = {edge.target for edge in contract.edges if edge.move is Move.RETRY}
    return retried - {edge.target for edge in contract.edges if edge.move in (Move.SUBMIT, Move.WAKE)}


def _retrying_share(rule: Rule, readings: Readings) -> Iterator[Measurement]:
    alive: Counter[str] = Counter()
    retrying: Counter[str] = Counter()
    for (group, status), number in readings.jobs_by_status().items():
        if _matches(rule, group):
            alive[group.contract] += number
            if status in retry_statuses(readings.contracts[group.contract]):
                retrying[group.contract] += number
    for contract, number in retrying.items():
        share = number / alive[contract] if alive[contract] > 0 else 0.0
        summary = f"{number} of {alive[contract]} unfinished {contract} jobs wait for a retry ({share:.0%})"
        yield Measurement({"contract": contract}, share, summary, alive[contract])


def _dlq_arrivals(rule: Rule, readings: Readings) -> Iterator[Measurement]:
    arrived: Counter[str] = Counter()
    for key, number in readings.recent(EVENTS, rule.window_seconds):
        contract = readings.contracts.get(readings.group(key).contract)
        if (
            contract
            and contract.dead_letters
            and _matches(rule, readings.group(key))
            and readings.move(key) is Move.FAIL
        ):
            arrived[readings.tenants.get(key.party, "other")] += number
    for tenant, number in arrived.items():
        if rule.tenant_id in (None, tenant):
            summary = f"{number} jobs of tenant {tenant} became dead letters within {_window(rule)}"
            yield Measurement({"tenant": tenant}, number, summary)


def _illegal_transitions(rule: Rule, readings: Readings) -> Iterator[Measurement]:
    refused: Counter[str] = Counter()
    for key, number in readings.recent(NOTES, rule.window_seconds):
        if key.event == MOVE_REFUSED and _matches(rule, readings.group(key)):
            refused[readings.group(key).contract] += number
    for name, number in refused.items():
        contract = readings.contracts.get(name)
        code = contract.code("illegal_transition") if contract else "illegal"
        summary = f"{number} moves of {name} jobs were refused as {code} within {_window(rule)}"
        yield Measurement({"contract": name, "code": code}, number, summary)


def _no_worker(rule: Rule, readings: Readings) -> Iterator[Measurement]:
    for group, oldest in readings.unserved():
        if _matches(rule, group):
            age = readings.now - oldest
            jobs = f"jobs of type {group.job_type} in queue {group.queue}"
            summary = f"{jobs} have been due for {span(age)}, but no live worker runs them"
            yield Measurement({"queue": group.queue, "job_type": group.job_type}, age / SECOND, summary)


def _backlog_age(rule: Rule, readings: Readings) -> Iterator[Measurement]:
    for queue, due in replace(readings, due=[row for row in readings.due if _matches(rule, row[0])]).waiting().items():
        age = readings.now - due
        summary = f"the oldest due job in queue {queue} has waited for {span(age)}"
        yield Measurement({"queue": queue}, age / SECOND, summary)


def _stuck_running(rule: Rule, readings: Readings) -> Iterator[Measurement]:
    for queue, job_type, number, since in readings.running:
        if rule.queue in (None, queue) and rule.job_type in (None, job_type):
            age = readings.now - since
            summary = f"the oldest of {number} running {job_type} jobs in queue {queue} has run for {span(age)}"
            yield Measurement({"queue": queue, "job_type": job_type}, age / SECOND, summary)


def _schedule_missed(rule: Rule, readings: Readings) -> Iterator[Measurement]:
    """Seconds by which a fire is late; a missed fire counts as at least the threshold during the rule's window."""
    since = readings.now - int(rule.window_seconds * SECOND)
    for schedule in readings.missed:
        late = schedule.late(readings.now)
        error = f" ({schedule.last_error})" if schedule.last_error else ""
        value, summary = late / SECOND, f"schedule {schedule.label} should have fired {span(late)} ago{error}"
        if schedule.last_misfire_at is not None and schedule.last_misfire_at >= since:
            value = max(value, rule.threshold)
            age = readings.now - schedule.last_misfire_at
            summary = f"schedule {schedule.label} missed a fire {span(age)} ago{error}"
        yield Measurement({"schedule": schedule.label}, value, summary)


def _lease_losses(rule: Rule, readings: Readings) -> Iterator[Measurement]:
    since = readings.now - int(rule.window_seconds * SECOND)
    lost = [loss.worker for loss in readings.losses if loss.at >= since]
    summary = f"{len(lost)} jobs were taken back from {len(set(lost))} lost workers within {_window(rule)}"
    yield Measurement({}, len(lost), summary)


def _suspects(rule: Rule, readings: Readings) -> Iterator[Measurement]:
    for (queue, job_type), (losses, job_id, number) in readings.worst_suspects().items():
        if rule.queue in (None, queue) and rule.job_type in (None, job_type):
            more = f" (and {number - 1} more suspects of this type)" if number > 1 else ""
            summary = f"job {job_id} of type {job_type} in queue {queue} was lost {losses} times in a row{more}"
            yield Measurement({"queue": queue, "job_type": job_type}, losses, f"{summary}; it runs alone")


def _webhook_failing(rule: Rule, readings: Readings) -> Iterator[Measurement]:
    for webhook in readings.webhooks:
        if webhook.failing_since is not None:
            disabled = webhook.state == WebhookState.DISABLED
            failing = readings.now - webhook.failing_since
            summary = f"requests to webhook {webhook.name} have failed for {span(failing)} ({webhook.last_error})"
            value = max(failing / SECOND, rule.threshold if disabled else 0)
            yield Measurement({"webhook": webhook.name}, value, summary + ("; it is disabled" if disabled else ""))


def _error_rate(rule: Rule, readings: Readings) -> Iterator[Measurement]:
    ended: Counter[tuple[str, str]] = Counter()
    failed: Counter[tuple[str, str]] = Counter()
    for key, number in readings.recent(EVENTS, rule.window_seconds):
        group, move = readings.group(key), readings.move(key)
        if _matches(rule, group) and move in _ENDS:
            ended[group.queue, group.job_type] += number
            failed[group.queue, group.job_type] += number if move in _FAILURES else 0
    for (queue, job_type), number in ended.items():
        failures = failed[queue, job_type]
        summary = f"{failures} of {number} executions of {job_type} in queue {queue} failed within {_window(rule)}"
        yield Measurement({"queue": queue, "job_type": job_type}, failures / number, summary, number)


def _matches(rule: Rule, group: Group) -> bool:
    pairs = ((rule.contract, group.contract), (rule.queue, group.queue), (rule.job_type, group.job_type))
    return all(rule_value in (None, group_value) for rule_value, group_value in pairs)


def _window(rule: Rule) -> str:
    return span(int(rule.window_seconds * SECOND))


def _label_selector(rule: Rule, *more: str) -> str:
    named = (("contract", rule.contract), ("queue", rule.queue), ("job_type", rule.job_type))
    tests = [*more, *(f'{label}="{value}"' for label, value in named if value is not None)]
    return "{" + ",".join(tests) + "}" if tests else ""


def _max_by(labels: str, metric: str) -> str:
    """Every process exports the same totals, so they must be combined with max, not sum."""
    return f"max by ({labels}) ({metric})"


def _max_increase(rule: Rule, metric: str, labels: str) -> str:
    return _max_by(labels, f"increase({metric}[{int(rule.window_seconds)}s])")


def _gauge_promql(metric: str, labels: str) -> PromQL:
    return lambda rule, contracts: f"{_max_by(labels, metric + _label_selector(rule))} >= {rule.threshold:g}"


def _dlq_promql(rule: Rule, contracts: Mapping[str, Contract]) -> str:
    metric = "detent_dead_letters_total" + (f'{{tenant_id="{rule.tenant_id}"}}' if rule.tenant_id else "")
    return f"{_max_increase(rule, metric, 'tenant_id')} >= {rule.threshold:g}"


def _illegal_promql(rule: Rule, contracts: Mapping[str, Contract]) -> str:
    metric = f'detent_notes_total{{note="{MOVE_REFUSED}"' + (f',contract="{rule.contract}"}}' if rule.contract else "}")
    return f"{_max_increase(rule, metric, 'contract')} >= {rule.threshold:g}"


def _losses_promql(rule: Rule, contracts: Mapping[str, Contract]) -> str:
    return f"sum({_max_increase(rule, 'detent_lease_losses_total', 'charged')}) >= {rule.threshold:g}"


def _share_promql(rule: Rule, contracts: Mapping[str, Contract]) -> str:
    def jobs(*tests: str) -> str:
        metric = "detent_jobs" + _label_selector(rule, *tests)
        return f"sum by (contract) ({_max_by(f'{_GROUP_LABELS}, status', metric)})"

    statuses = "|".join(sorted({status for c in contracts.values() for status in retry_statuses(c)}))
    return _ratio_promql(rule, jobs(f'status=~"{statuses}"'), jobs())


def _errors_promql(rule: Rule, contracts: Mapping[str, Contract]) -> str:
    def ended(moves: Iterable[Move]) -> str:
        metric = "detent_events_total" + _label_selector(rule, f'move=~"{"|".join(moves)}"')
        return f"sum by (queue, job_type) ({_max_increase(rule, metric, f'{_GROUP_LABELS}, event, move')})"

    return _ratio_promql(rule, ended(_FAILURES), ended(_ENDS))


def _ratio_promql(rule: Rule, part: str, whole: str) -> str:
    return f"{part} / {whole} >= {rule.threshold:g} and {whole} >= {rule.min_count}"


KINDS: Mapping[str, AlertKind] = {
    "retrying_share": AlertKind("too many unfinished jobs wait for a retry", "share", _retrying_share, _share_promql),
    "dlq_arrivals": AlertKind("jobs of one tenant become dead letters", "jobs", _dlq_arrivals, _dlq_promql),
    "illegal_transitions": AlertKind("moves are refused as illegal", "moves", _illegal_transitions,
        _illegal_promql),
    "no_worker": AlertKind("due jobs have no live worker", "seconds", _no_worker,
        _gauge_promql("detent_unserved_seconds", "queue, job_type")),
    "backlog_age": AlertKind("a queue's oldest due job waits too long", "seconds", _backlog_age,
        _gauge_promql("detent_backlog_oldest_seconds", "queue")),
    "stuck_running": AlertKind("an execution takes too long", "seconds", _stuck_running,
        _gauge_promql("detent_running_oldest_seconds", "queue, job_type")),
    "schedule_missed": AlertKind("a schedule did not fire on time", "seconds", _schedule_missed,
        _gauge_promql("detent_schedule_late_seconds", "schedule")),
    "lease_losses": AlertKind("jobs are taken back from lost workers", "jobs", _lease_losses, _losses_promql),
    "suspects": AlertKind("a job seems to kill its workers", "losses", _suspects,
        _gauge_promql("detent_suspect_losses", "queue, job_type")),
    "webhook_failing": AlertKind("requests to a webhook fail", "seconds", _webhook_failing,
        _gauge_promql("detent_webhook_failing_seconds", "webhook")),
    "error_rate": AlertKind("many executions of a job type fail", "share", _error_rate, _errors_promql),
}  # fmt: skip
"""All kinds that a rule can use, by name."""


def prometheus_rules(rules: Sequence[Rule], contracts: Mapping[str, Contract]) -> str:
    """The rules as a Prometheus rules file in YAML; texts are quoted as JSON strings, which are valid YAML."""
    lines = ["groups:", "- name: detent", "  rules:"]
    for rule in rules:
        if not rule.enabled:
            continue
        kind = KINDS[rule.kind]
        lines += [
            f"  - alert: {json.dumps('Detent' + rule.name.title().replace('_', ''))}",
            f"    expr: {json.dumps(kind.promql(rule, contracts))}",
            f"    for: {int(rule.for_seconds)}s",
            f"    keep_firing_for: {int(rule.resolve_after_seconds)}s",
            "    labels:",
            f"      severity: {json.dumps(rule.severity)}",
            "    annotations:",
            f"      summary: {json.dumps(f'{kind.summary} ({rule.name}, threshold {rule.threshold:g} {kind.unit})')}",
        ]
    return "\n".join(lines) + "\n"
