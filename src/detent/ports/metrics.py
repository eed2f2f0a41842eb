"""Event counts, time series, alerts and their deliveries, as a transaction stores them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from detent.core.alerts import Alert, Delivery, Silence
from detent.core.job import Micros
from detent.core.webhooks.subscription import Webhook


class Group(NamedTuple):
    """Jobs of one contract, queue and job type."""

    contract: str
    queue: str
    job_type: str


class Key(NamedTuple):
    """One edge taken by jobs of one group. party: the tenant's number for FAIL edges, else 0."""

    lane_group: int
    party: int
    source: str
    event: str
    target: str


class LogPosition(NamedTuple):
    """Up to where a log is counted. version: raised when pruning has counted entries after the position."""

    position: int = 0
    version: int = 0


class CountedEntries(NamedTuple):
    """Log entries of one kind in one time slot."""

    lane: int | None
    lane_group: int
    party: int
    source: str
    event: str
    target: str
    slot: int
    number: int


class WorkerEvents(NamedTuple):
    """Events of one worker by contract, kind and slot; slot None: those of all others, without a kind."""

    contract: str
    source: str
    event: str
    target: str
    slot: int | None
    number: int
    first_at: Micros


class FrequentCounts(NamedTuple):
    """The events of a range: all of them, the first and last slot, and the number of each frequent kind."""

    total: int
    first: int | None
    last: int | None
    numbers: Sequence[int]


class RecentCount(NamedTuple):
    slot: int
    log: str
    key: Key
    number: int


class Timed(NamedTuple):
    """Events of one kind in one slot.

    bucket: of the time that each of their jobs spent in the source status since it was due there, see
    engine/metrics/buckets.py; None for a job's first event. took: the sum of these times.
    """

    lane_group: int
    tenant: str
    source: str
    event: str
    target: str
    slot: int
    bucket: int | None
    number: int
    took: Micros


class Subject(NamedTuple):
    """What a time series is about. kind: all, queue, job_type, tenant, or group (of jobs, by its number)."""

    kind: str
    name: str


class SlotKey(NamedTuple):
    """A slot of `width` seconds in the series of one subject. Width 0, slot 0: since the beginning."""

    width: int
    subject: int
    slot: int


BucketCounts = dict[int, int]
"""bucket -> number"""


@dataclass(slots=True)
class SlotSums:
    """What happened in a time slot.

    waits, runs: how long jobs waited for a claim, and how long executions took. waited, ran: the sums of these times.
    """

    submitted: int = 0
    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    waited: Micros = 0
    ran: Micros = 0
    waits: BucketCounts = field(default_factory=dict)
    runs: BucketCounts = field(default_factory=dict)

    def add(self, other: "SlotSums") -> None:
        self.submitted += other.submitted
        self.succeeded += other.succeeded
        self.failed += other.failed
        self.retried += other.retried
        self.waited += other.waited
        self.ran += other.ran
        for own, more in ((self.waits, other.waits), (self.runs, other.runs)):
            for bucket, number in more.items():
                own[bucket] = own.get(bucket, 0) + number


class SubjectSlot(NamedTuple):
    """One slot of the series of a subject."""

    name: str
    slot: int
    sums: SlotSums


class LogPositionTable(Protocol):
    """Up to where each log ("events", "notes", "series") is counted."""

    async def log_position(self, log: str) -> LogPosition: ...

    async def log_end(self, log: str) -> int:
        """The end of the events or the notes. Prepares the transaction for reading a range before it."""
        ...

    async def advance_log(self, log: str, since: LogPosition, until: int) -> bool:
        """Compare and set; False if another process has counted this range, or it must be counted again."""
        ...

    async def lock_logs(self, logs: Sequence[str]) -> None: ...

    async def recount_log(self, log: str) -> None:
        """A process that is counting must start again."""
        ...

    async def clamp_log(self, log: str) -> None:
        """Move the position back to the end of the log if it is beyond it."""
        ...


class EventCountTable(Protocol):
    async def count_log(self, log: str, position: int, until: int, slot: Micros) -> list[CountedEntries]: ...

    async def count_frequent(
        self, kinds: Sequence[CountedEntries], position: int, until: int, slot: Micros
    ) -> FrequentCounts:
        """Count at most eight kinds of events in one pass, without sorting."""
        ...

    async def events_of_worker(
        self, worker: str, position: int, until: int, slot: Micros, limit: int
    ) -> list[WorkerEvents]:
        """The events of a part of the log; if there are more than `limit`, any of them."""
        ...

    async def count_uncounted(self, log: str, ids: Sequence[str], slot: Micros) -> list[CountedEntries]:
        """Entries of these jobs after the log's position."""
        ...

    async def add_counts(self, log: str, sums: Mapping[Key, int]) -> None: ...
    async def add_recent_counts(self, log: str, slots: Mapping[tuple[int, Key], int]) -> None: ...

    async def event_totals(self) -> dict[tuple[str, Key], int]:
        """(log, key) -> number of entries."""
        ...

    async def recent_counts(self, since: int) -> list[RecentCount]: ...
    async def drop_recent_counts(self, before: int) -> None: ...
    async def lane_groups(self) -> dict[int, Group]: ...
    async def party_tenants(self) -> dict[int, str]: ...


class SeriesTable(Protocol):
    async def time_events(self, position: int, until: int, slot: Micros) -> list[Timed]: ...

    async def subject_ids(self, subjects: Iterable[Subject], at_most: Mapping[str, int]) -> dict[Subject, int]:
        """The numbers of these subjects, new ones included. at_most: kind -> the most subjects of it; beyond it, new
        subjects get the number of the one with the name ''."""
        ...

    async def add_slots(self, sums: Mapping[SlotKey, SlotSums]) -> None:
        """Add to the stored slots. The caller has advanced the log's position in this transaction, which makes it the
        only one that adds."""
        ...

    async def read_slots(self, width: int, first: int, last: int, kind: str, name: str | None) -> list[SubjectSlot]:
        """The slots from `first` to before `last` of one subject, or of all of a kind."""
        ...

    async def drop_slots(self, before: Mapping[int, int]) -> None:
        """Delete old slots (width -> the first one to keep), and the subjects that have none left."""
        ...


class AlertTable(Protocol):
    """Alerts; changes are compare-and-set on the version. Deliveries: on the number of attempts."""

    async def list_alerts(self) -> list[Alert]: ...
    async def add_alert(self, alert: Alert) -> bool: ...
    async def change_alert(self, alert: Alert) -> bool: ...
    async def drop_alert(self, alert: Alert) -> bool: ...
    async def add_delivery(self, delivery: Delivery) -> None: ...
    async def list_deliveries(self, limit: int) -> list[Delivery]: ...

    async def due_deliveries(self, sinks: Sequence[str], limit: int) -> list[Delivery]:
        """Due deliveries to these sinks; of several about one subject to one sink, the first."""
        ...

    async def take_delivery(self, delivery: Delivery, until: Micros) -> bool: ...

    async def end_delivery(
        self, delivery: Delivery, due_at: Micros | None, delivered_at: Micros | None, error: str | None
    ) -> None: ...

    async def drop_deliveries(self, before: Micros) -> None: ...

    async def clear_bodies(self, sink: str) -> None:
        """Replace the bodies of all deliveries to this sink by null."""
        ...


class SilenceTable(Protocol):
    """Times during which sinks are not notified of some alerts."""

    async def list_silences(self) -> list[Silence]: ...
    async def add_silence(self, silence: Silence) -> None: ...
    async def drop_silence(self, silence_id: str) -> bool: ...
    async def drop_silences(self, before: Micros) -> None: ...


class WebhookTable(Protocol):
    """Subscriptions to events, and the deliveries to them; their `sink` is the id of the webhook."""

    async def list_webhooks(self) -> list[Webhook]: ...

    async def put_webhook(self, webhook: Webhook) -> None:
        """Add it, or change what a person may edit of it: not its state, failures and position."""
        ...

    async def change_webhook(self, webhook: Webhook) -> None:
        """Store its state and its failures; not its position."""
        ...

    async def move_webhook(self, webhook_id: str, position: str, expected: str = "") -> bool:
        """Set the position; with `expected` only if that is the present one."""
        ...

    async def drop_webhook(self, webhook_id: str) -> None: ...

    async def queue_deliveries(self, deliveries: Sequence[Delivery]) -> None:
        """Add deliveries that are due now; one that exists is sent again."""
        ...

    async def pending_deliveries(self, sinks: Sequence[str]) -> dict[str, int]: ...

    async def due_sinks(self, sinks: Sequence[str]) -> list[str]:
        """Those of these sinks that have a due delivery."""
        ...

    async def deliveries_to(self, sink: str, before: str | None, limit: int) -> list[Delivery]:
        """Newest first."""
        ...

    async def replay_deliveries(self, sink: str, since: Micros, delivery: str = "") -> int:
        """Make deliveries that were created since then due again, or only the one with this id; returns how many."""
        ...

    async def make_due(self, sink: str) -> None:
        """Pending deliveries do not wait for their next attempt any longer."""
        ...

    async def drop_old_deliveries(self, sink: str, keep: int) -> None:
        """Delete ended deliveries, but for the newest `keep`."""
        ...


class IntervalTable(Protocol):
    """When periodic tasks ran last; one process runs each."""

    async def last_runs(self) -> dict[str, Micros]: ...

    async def take_interval(self, name: str, latest: Micros) -> bool:
        """True if the last run was at `latest` or before; then the current time is recorded."""
        ...
