"""What can be wrong: one entry a kind, with how we measure it and how Prometheus would, from one table."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from detent.core.alerts import Measured, Rule
from detent.core.contract.model import Contract, Move, Phase
from detent.core.job import Loss, Micros
from detent.core.times import SECOND
from detent.engine.reads.why import Pause, handles, is_live, serves, span
from detent.engine.refusal import MOVE_REFUSED
from detent.ports.listing import WorkerRow

from .event_counts import EVENTS, NOTES, SLOT, UNKNOWN, Group, Key, edge_of

_FAILURES = (Move.RETRY, Move.FAIL)
_ENDS = (Move.SUCCEED, *_FAILURES)


class MissedSchedule(NamedTuple):
    """A schedule whose moment has passed, or that missed one lately."""

    tenant_id: str
    name: str
    next_fire_at: Micros | None
    misfires: int
    last_misfire_at: Micros | None
    last_error: str | None

    @property
    def called(self) -> str:
        return self.name if self.tenant_id == "default" else f"{self.tenant_id}/{self.name}"

    def late(self, now: Micros) -> Micros:
        return max(0, now - self.next_fire_at) if self.next_fire_at is not None else 0


@dataclass(frozen=True, slots=True)
class Readings:
    """Everything the rules look at, read in one transaction; nothing in it grows with finished jobs."""

    now: Micros
    contracts: Mapping[str, Contract]
    groups: Mapping[int, Group]
    tenants: Mapping[int, str]
    sums: Mapping[tuple[str, Key], int]
    slots: list[tuple[int, str, Key, int]]
    due: list[tuple[Group, Micros]]
    """Kinds with due jobs, and since when the oldest is due."""
    workers: list[WorkerRow]
    pauses: list[Pause]
    running: list[tuple[str, str, int, Micros]]
    """(queue, job_type, how many are held, since when the oldest is)"""
    losses: list[Loss]
    missed: list[MissedSchedule]

    def recent(self, log: str, seconds: float) -> Iterator[tuple[Key, int]]:
        since = (self.now - int(seconds * SECOND)) // SLOT
        return ((key, number) for slot, its, key, number in self.slots if its == log and slot >= since)

    def group(self, key: Key) -> Group:
        return self.groups.get(key.lane_group, UNKNOWN)

    def move(self, key: Key) -> Move | None:
        edge = edge_of(self.contracts.get(self.group(key).contract), key.source, key.event, key.target)
        return edge.move if edge else None

    def standing(self) -> Counter[tuple[Group, str]]:
        """How many unfinished jobs of each kind stand in each status: arrivals less departures."""
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
        """Kinds with due jobs that no live worker takes, though nobody paused them."""
        live = [worker for worker in self.workers if is_live(worker, self.now)]
        return [
            (kind, oldest)
            for kind, oldest in self.due
            if not self.is_paused(kind.queue, kind.job_type)
            and not any(handles(w, kind.job_type) and serves(w, kind.queue) for w in live)
        ]

    def waiting(self) -> dict[str, Micros]:
        """Since when the oldest due job of each queue waits; what somebody paused is meant to wait."""
        oldest: dict[str, Micros] = {}
        for kind, due in self.due:
            if not self.is_paused(kind.queue, kind.job_type):
                oldest[kind.queue] = min(due, oldest.get(kind.queue, due))
        return oldest


@dataclass(frozen=True, slots=True)
class Kind:
    """says: what it is about; unit: of the threshold; promql: the same question to our own metrics."""

    says: str
    unit: str
    measure: Callable[[Rule, Readings], Iterable[Measured]]
    promql: Callable[[Rule, Mapping[str, Contract]], str]


def retry_statuses(contract: Contract) -> set[str]:
    """Statuses a job enters by a retry and by nothing else that is normal."""
    retried = {edge.target for edge in contract.edges if edge.move is Move.RETRY}
    return retried - {edge.target for edge in contract.edges if edge.move in (Move.SUBMIT, Move.WAKE)}


def _retrying_share(rule: Rule, found: Readings) -> Iterator[Measured]:
    alive: Counter[str] = Counter()
    retrying: Counter[str] = Counter()
    for (group, status), number in found.standing().items():
        if _wanted(rule, group):
            alive[group.contract] += number
            if status in retry_statuses(found.contracts[group.contract]):
                retrying[group.contract] += number
    for contract, number in retrying.items():
        share = number / alive[contract] if alive[contract] > 0 else 0.0
        says = f"{number} of {alive[contract]} unfinished {contract} jobs wait for a retry ({share:.0%})"
        yield Measured({"contract": contract}, share, says, alive[contract])


def _dlq_arrivals(rule: Rule, found: Readings) -> Iterator[Measured]:
    arrived: Counter[str] = Counter()
    for key, number in found.recent(EVENTS, rule.window_seconds):
        contract = found.contracts.get(found.group(key).contract)
        if contract and contract.dead_letters and _wanted(rule, found.group(key)) and found.move(key) is Move.FAIL:
            arrived[found.tenants.get(key.party, "other")] += number
    for tenant, number in arrived.items():
        if rule.tenant_id in (None, tenant):
            says = f"{number} jobs of tenant {tenant} became dead letters within {_window(rule)}"
            yield Measured({"tenant": tenant}, number, says)


def _illegal_transitions(rule: Rule, found: Readings) -> Iterator[Measured]:
    refused = sum(n for key, n in found.recent(NOTES, rule.window_seconds) if key.event == MOVE_REFUSED)
    yield Measured({}, refused, f"{refused} moves were refused as illegal within {_window(rule)}")


def _no_worker(rule: Rule, found: Readings) -> Iterator[Measured]:
    for kind, oldest in found.unserved():
        if _wanted(rule, kind):
            waits = found.now - oldest
            says = (
                f"jobs of type {kind.job_type} in queue {kind.queue} wait for {span(waits)}, no live worker takes them"
            )
            yield Measured({"queue": kind.queue, "job_type": kind.job_type}, waits / SECOND, says)


def _backlog_age(rule: Rule, found: Readings) -> Iterator[Measured]:
    for queue, due in replace(found, due=[row for row in found.due if _wanted(rule, row[0])]).waiting().items():
        waits = found.now - due
        yield Measured({"queue": queue}, waits / SECOND, f"the oldest due job in queue {queue} waits for {span(waits)}")


def _stuck_running(rule: Rule, found: Readings) -> Iterator[Measured]:
    for queue, job_type, number, since in found.running:
        if rule.queue in (None, queue) and rule.job_type in (None, job_type):
            runs = found.now - since
            says = f"of {number} running {job_type} jobs in queue {queue} the oldest runs for {span(runs)}"
            yield Measured({"queue": queue, "job_type": job_type}, runs / SECOND, says)


def _schedule_missed(rule: Rule, found: Readings) -> Iterator[Measured]:
    """Late by so many seconds; a fire that was missed for good counts as too late while the window lasts."""
    since = found.now - int(rule.window_seconds * SECOND)
    for one in found.missed:
        late = one.late(found.now)
        why = f" ({one.last_error})" if one.last_error else ""
        value, says = late / SECOND, f"schedule {one.called} should have fired {span(late)} ago{why}"
        if one.last_misfire_at is not None and one.last_misfire_at >= since:
            value = max(value, rule.threshold)
            says = f"schedule {one.called} missed its fire {span(found.now - one.last_misfire_at)} ago{why}"
        yield Measured({"schedule": one.called}, value, says)


def _lease_losses(rule: Rule, found: Readings) -> Iterator[Measured]:
    since = found.now - int(rule.window_seconds * SECOND)
    lost = [loss.worker for loss in found.losses if loss.at >= since]
    says = f"{len(lost)} jobs were taken from {len(set(lost))} lost workers within {_window(rule)}"
    yield Measured({}, len(lost), says)


def _error_rate(rule: Rule, found: Readings) -> Iterator[Measured]:
    ended: Counter[tuple[str, str]] = Counter()
    failed: Counter[tuple[str, str]] = Counter()
    for key, number in found.recent(EVENTS, rule.window_seconds):
        group, move = found.group(key), found.move(key)
        if _wanted(rule, group) and move in _ENDS:
            ended[group.queue, group.job_type] += number
            failed[group.queue, group.job_type] += number if move in _FAILURES else 0
    for (queue, job_type), number in ended.items():
        wrong = failed[queue, job_type]
        says = f"{wrong} of {number} executions of {job_type} in queue {queue} failed within {_window(rule)}"
        yield Measured({"queue": queue, "job_type": job_type}, wrong / number, says, number)


def _wanted(rule: Rule, group: Group) -> bool:
    asked = ((rule.contract, group.contract), (rule.queue, group.queue), (rule.job_type, group.job_type))
    return all(mine in (None, its) for mine, its in asked)


def _window(rule: Rule) -> str:
    return span(int(rule.window_seconds * SECOND))


def _where(rule: Rule, *more: str) -> str:
    named = (("contract", rule.contract), ("queue", rule.queue), ("job_type", rule.job_type))
    tests = [*more, *(f'{label}="{value}"' for label, value in named if value is not None)]
    return "{" + ",".join(tests) + "}" if tests else ""


def _one(labels: str, metric: str) -> str:
    """Every process tells the same sums, so one of them is taken, never their sum."""
    return f"max by ({labels}) ({metric})"


_KIND = "contract, queue, job_type"


def _rose(rule: Rule, metric: str, labels: str) -> str:
    return f"max by ({labels}) (increase({metric}[{int(rule.window_seconds)}s]))"


def _share_promql(rule: Rule, contracts: Mapping[str, Contract]) -> str:
    statuses = "|".join(sorted({status for c in contracts.values() for status in retry_statuses(c)}))
    test = f'status=~"{statuses}"'
    waiting = f"sum by (contract) ({_one(f'{_KIND}, status', 'detent_jobs' + _where(rule, test))})"
    alive = f"sum by (contract) ({_one(f'{_KIND}, status', 'detent_jobs' + _where(rule))})"
    return f"{waiting} / {alive} >= {rule.threshold:g} and {alive} >= {rule.min_count}"


def _dlq_promql(rule: Rule, contracts: Mapping[str, Contract]) -> str:
    tenant = [f'tenant_id="{rule.tenant_id}"'] if rule.tenant_id else []
    metric = "detent_dead_letters_total" + ("{" + tenant[0] + "}" if tenant else "")
    return f"{_rose(rule, metric, 'tenant_id')} >= {rule.threshold:g}"


def _illegal_promql(rule: Rule, contracts: Mapping[str, Contract]) -> str:
    test = 'note="' + MOVE_REFUSED + '"'
    return f"{_rose(rule, f'detent_notes_total{{{test}}}', 'note')} >= {rule.threshold:g}"


def _gauge_promql(metric: str, labels: str) -> Callable[[Rule, Mapping[str, Contract]], str]:
    return lambda rule, contracts: f"{_one(labels, metric + _where(rule))} >= {rule.threshold:g}"


def _losses_promql(rule: Rule, contracts: Mapping[str, Contract]) -> str:
    return f"sum({_rose(rule, 'detent_lease_losses_total', 'charged')}) >= {rule.threshold:g}"


def _errors_promql(rule: Rule, contracts: Mapping[str, Contract]) -> str:
    def rose(moves: Iterable[Move]) -> str:
        test = 'move=~"' + "|".join(moves) + '"'
        inner = _rose(rule, "detent_events_total" + _where(rule, test), f"{_KIND}, event, move")
        return f"sum by (queue, job_type) ({inner})"

    return f"{rose(_FAILURES)} / {rose(_ENDS)} >= {rule.threshold:g} and {rose(_ENDS)} >= {rule.min_count}"


KINDS: Mapping[str, Kind] = {
    "retrying_share": Kind("too many unfinished jobs wait for a retry", "share", _retrying_share, _share_promql),
    "dlq_arrivals": Kind("a tenant's jobs become dead letters too fast", "jobs", _dlq_arrivals, _dlq_promql),
    "illegal_transitions": Kind("illegal moves are asked for again and again", "moves", _illegal_transitions,
        _illegal_promql),
    "no_worker": Kind("due jobs that no live worker takes", "seconds", _no_worker,
        _gauge_promql("detent_unserved_seconds", "queue, job_type")),
    "backlog_age": Kind("a queue's oldest due job waits too long", "seconds", _backlog_age,
        _gauge_promql("detent_backlog_oldest_seconds", "queue")),
    "stuck_running": Kind("an execution takes too long", "seconds", _stuck_running,
        _gauge_promql("detent_running_oldest_seconds", "queue, job_type")),
    "schedule_missed": Kind("a schedule did not fire when it should", "seconds", _schedule_missed,
        _gauge_promql("detent_schedule_late_seconds", "schedule")),
    "lease_losses": Kind("workers lose their jobs", "jobs", _lease_losses, _losses_promql),
    "error_rate": Kind("executions of a type fail", "share", _error_rate, _errors_promql),
}  # fmt: skip
"""Every kind a rule may name."""
