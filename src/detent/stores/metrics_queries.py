"""The part of a transaction that stores event counts, time series, alerts and periodic tasks; alike in every store."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from detent.core.alerts import Alert, Delivery, Silence
from detent.core.job import Micros
from detent.core.webhooks.subscription import Webhook
from detent.ports.metrics import (
    BucketCounts,
    CountedEntries,
    FrequentCounts,
    Group,
    Key,
    LogPosition,
    RecentCount,
    SlotKey,
    SlotSums,
    Subject,
    SubjectSlot,
    Timed,
    WorkerEvents,
)

from .named_queries import NamedQueries

_PLACES = "abcdefgh"
"""Suffixes of the parameters of count_hot_events, which counts eight kinds of events without sorting."""
_NO_EVENTS = CountedEntries(-1, 0, 0, "", "", "", 0, 0)

_ABOVE_ALL_IDS = "msg_z"
"""Ids of deliveries to webhooks are msg_ and hexadecimal digits."""


class MetricsQueries(NamedQueries):
    async def log_position(self, log: str) -> LogPosition:
        return {row[0]: LogPosition(row[1], row[2]) for row in await self.query("tails")}.get(log, LogPosition())

    async def log_end(self, log: str) -> int:
        await self.query("tail_mode")
        return await self.number(f"tail_end_{log}")

    async def advance_log(self, log: str, since: LogPosition, until: int) -> bool:
        await self.change("first_tail", log=log)
        return await self.change("advance_tail", log=log, **since._asdict(), until=until) == 1

    async def lock_logs(self, logs: Sequence[str]) -> None:
        for log in logs:
            await self.change("first_tail", log=log)
        await self.query("lock_tails")

    async def recount_log(self, log: str) -> None:
        await self.change("recount_tail", log=log)

    async def clamp_log(self, log: str) -> None:
        await self.change(f"clamp_tail_{log}")

    async def count_log(self, log: str, position: int, until: int, slot: Micros) -> list[CountedEntries]:
        return await self.fetch(CountedEntries, f"count_{log}", position=position, until=until, slot=slot)

    async def count_frequent(
        self, kinds: Sequence[CountedEntries], position: int, until: int, slot: Micros
    ) -> FrequentCounts:
        values: dict[str, int | str | None] = {"position": position, "until": until, "slot": slot}
        for place, suffix in enumerate(_PLACES):  # an unused place gets values that match no event
            kind = kinds[place] if place < len(kinds) else _NO_EVENTS
            values |= {f"lane_{suffix}": kind.lane, f"source_{suffix}": kind.source, f"event_{suffix}": kind.event}
        ((total, first, last, *numbers),) = await self.query("count_hot_events", **values)
        return FrequentCounts(total, first, last, numbers)

    async def events_of_worker(
        self, worker: str, position: int, until: int, slot: Micros, limit: int
    ) -> list[WorkerEvents]:
        await self.query("window_mode")
        values: dict[str, int | str] = {"worker": worker, "position": position, "until": until, "slot": slot}
        return await self.fetch(WorkerEvents, "events_of_worker", **values, limit=limit)

    async def count_uncounted(self, log: str, ids: Sequence[str], slot: Micros) -> list[CountedEntries]:
        return await self.fetch(CountedEntries, f"count_going_{log}", ids=json.dumps(list(ids)), slot=slot)

    async def add_counts(self, log: str, sums: Mapping[Key, int]) -> None:
        if sums:
            rows = [[*key, number] for key, number in sums.items()]
            await self.change("add_tallies", log=log, rows=json.dumps(rows))

    async def add_recent_counts(self, log: str, slots: Mapping[tuple[int, Key], int]) -> None:
        if slots:
            rows = [[slot, *key, number] for (slot, key), number in slots.items()]
            await self.change("add_tally_slots", log=log, rows=json.dumps(rows))

    async def event_totals(self) -> dict[tuple[str, Key], int]:
        return {(row[0], Key(*row[1:6])): row[6] for row in await self.query("tallies")}

    async def recent_counts(self, since: int) -> list[RecentCount]:
        rows = await self.query("tally_slots", since=since)
        return [RecentCount(row[0], row[1], Key(*row[2:7]), row[7]) for row in rows]

    async def drop_recent_counts(self, before: int) -> None:
        await self.change("drop_tally_slots", before=before)

    async def lane_groups(self) -> dict[int, Group]:
        return {row[0]: Group(*row[1:]) for row in await self.query("lane_groups")}

    async def party_tenants(self) -> dict[int, str]:
        return {row[0]: row[1] for row in await self.query("lane_parties")}

    async def time_events(self, position: int, until: int, slot: Micros) -> list[Timed]:
        return await self.fetch(Timed, "time_events", position=position, until=until, slot=slot)

    async def subject_ids(self, subjects: Iterable[Subject], at_most: Mapping[str, int]) -> dict[Subject, int]:
        wanted = set(subjects)
        ids = await self._find_subjects(wanted)
        if missing := sorted(wanted - ids.keys()):
            numbers = {row[0]: row[1] for row in await self.query("count_series_subjects")}
            added = []
            for subject in missing:
                numbers[subject.kind] = numbers.get(subject.kind, 0) + 1
                has_place = numbers[subject.kind] <= at_most[subject.kind]
                added.append(subject if has_place else Subject(subject.kind, ""))
            await self.change("add_series_subjects", rows=json.dumps(sorted(set(added))))
            ids |= await self._find_subjects(set(added))
            ids |= {subject: ids[stored] for subject, stored in zip(missing, added, strict=True)}
        return ids

    async def _find_subjects(self, subjects: Collection[Subject]) -> dict[Subject, int]:
        rows = await self.query("find_series_subjects", rows=json.dumps(list(subjects)))
        return {Subject(row[1], row[2]): row[0] for row in rows}

    async def add_slots(self, sums: Mapping[SlotKey, SlotSums]) -> None:
        if not sums:
            return
        stored = await self.query("series_slots", rows=json.dumps(list(sums)))
        merged = {SlotKey(*row[:3]): _slot_sums(row[3:]) for row in stored}
        for key, slot_sums in sums.items():
            merged.setdefault(key, SlotSums()).add(slot_sums)
        await self.change("put_series", rows=json.dumps([[*key, *_slot_values(new)] for key, new in merged.items()]))

    async def read_slots(self, width: int, first: int, last: int, kind: str, name: str | None) -> list[SubjectSlot]:
        values: dict[str, int | str] = {"width": width, "first": first, "last": last, "kind": kind}
        query = "series_by" if name is None else "series_of"
        rows = await self.query(query, **(values if name is None else {**values, "name": name}))
        return [SubjectSlot(row[0], row[1], _slot_sums(row[2:])) for row in rows]

    async def drop_slots(self, before: Mapping[int, int]) -> None:
        for width, slot in before.items():
            await self.change("drop_series", width=width, before=slot)
        await self.change("drop_series_subjects")

    async def list_alerts(self) -> list[Alert]:
        return await self.fetch(Alert, "alerts")

    async def add_alert(self, alert: Alert) -> bool:
        return await self.change("add_alert", **asdict(alert)) == 1

    async def change_alert(self, alert: Alert) -> bool:
        return await self.change("change_alert", **asdict(alert)) == 1

    async def drop_alert(self, alert: Alert) -> bool:
        return await self.change("drop_alert", rule=alert.rule, subject=alert.subject, version=alert.version) == 1

    async def add_delivery(self, delivery: Delivery) -> None:
        await self.change("add_delivery", **asdict(delivery))

    async def list_deliveries(self, limit: int) -> list[Delivery]:
        return await self.fetch(Delivery, "deliveries", limit=limit)

    async def due_deliveries(self, sinks: Sequence[str], limit: int) -> list[Delivery]:
        return await self.fetch(Delivery, "due_deliveries", sinks=json.dumps(sinks), now=self.now, limit=limit)

    async def take_delivery(self, delivery: Delivery, until: Micros) -> bool:
        return await self.change("take_delivery", id=delivery.id, attempts=delivery.attempts, until=until) == 1

    async def end_delivery(
        self, delivery: Delivery, due_at: Micros | None, delivered_at: Micros | None, error: str | None
    ) -> None:
        times = {"due_at": due_at, "delivered_at": delivered_at}
        await self.change("end_delivery", id=delivery.id, attempts=delivery.attempts, **times, last_error=error)

    async def drop_deliveries(self, before: Micros) -> None:
        await self.change("drop_deliveries", before=before)

    async def clear_bodies(self, sink: str) -> None:
        await self.change("clear_bodies", sink=sink)

    async def list_silences(self) -> list[Silence]:
        return await self.fetch(Silence, "silences")

    async def add_silence(self, silence: Silence) -> None:
        await self.change("add_silence", **asdict(silence))

    async def drop_silence(self, silence_id: str) -> bool:
        return await self.change("drop_silence", id=silence_id) == 1

    async def drop_silences(self, before: Micros) -> None:
        await self.change("drop_silences", before=before)

    async def list_webhooks(self) -> list[Webhook]:
        return await self.fetch(Webhook, "webhooks")

    async def put_webhook(self, webhook: Webhook) -> None:
        await self.change("put_webhook", **asdict(webhook))

    async def change_webhook(self, webhook: Webhook) -> None:
        names = ("id", "state", "failures", "failing_since", "retry_at", "last_error")
        await self.change("change_webhook", **{name: getattr(webhook, name) for name in names})

    async def move_webhook(self, webhook_id: str, position: str, expected: str = "") -> bool:
        return await self.change("move_webhook", id=webhook_id, position=position, expected=expected) == 1

    async def drop_webhook(self, webhook_id: str) -> None:
        await self.change("drop_webhook", id=webhook_id)
        await self.change("drop_deliveries_to", sink=webhook_id)

    async def queue_deliveries(self, deliveries: Sequence[Delivery]) -> None:
        rows = [[row.id, row.rule, row.subject, row.sink, row.body] for row in deliveries]
        if rows:
            await self.change("queue_deliveries", rows=json.dumps(rows), now=self.now)

    async def pending_deliveries(self, sinks: Sequence[str]) -> dict[str, int]:
        return {row[0]: row[1] for row in await self.query("pending_deliveries", sinks=json.dumps(sinks))}

    async def due_sinks(self, sinks: Sequence[str]) -> list[str]:
        return [row[0] for row in await self.query("due_sinks", sinks=json.dumps(sinks), now=self.now)]

    async def deliveries_to(self, sink: str, before: str | None, limit: int) -> list[Delivery]:
        last = _ABOVE_ALL_IDS if before is None else before
        return await self.fetch(Delivery, "deliveries_to", sink=sink, before=last, limit=limit)

    async def replay_deliveries(self, sink: str, since: Micros, delivery: str = "") -> int:
        return await self.change("replay_deliveries", sink=sink, since=since, delivery=delivery, now=self.now)

    async def make_due(self, sink: str) -> None:
        await self.change("make_due", sink=sink, now=self.now)

    async def drop_old_deliveries(self, sink: str, keep: int) -> None:
        await self.change("drop_old_deliveries", sink=sink, keep=keep)

    async def last_runs(self) -> dict[str, Micros]:
        return {row[0]: row[1] for row in await self.query("periodic_runs")}

    async def take_interval(self, name: str, latest: Micros) -> bool:
        await self.change("first_turn", name=name)
        return await self.change("take_turn", name=name, latest=latest, now=self.now) == 1


def _slot_sums(row: Sequence[Any]) -> SlotSums:
    submitted, succeeded, failed, retried, waited, ran, waits, runs = row
    return SlotSums(submitted, succeeded, failed, retried, waited, ran, _histogram(waits), _histogram(runs))


def _slot_values(sums: SlotSums) -> list[int | str]:
    numbers = [sums.submitted, sums.succeeded, sums.failed, sums.retried, sums.waited, sums.ran]
    return [*numbers, _histogram_text(sums.waits), _histogram_text(sums.runs)]


def _histogram(text: str) -> BucketCounts:
    pairs = (pair.partition(":") for pair in text.split())
    return {int(bucket): int(number) for bucket, _, number in pairs}


def _histogram_text(histogram: BucketCounts) -> str:
    return " ".join(f"{bucket}:{number}" for bucket, number in sorted(histogram.items()))
