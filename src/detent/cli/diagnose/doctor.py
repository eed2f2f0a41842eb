"""`detent doctor`: checks an installation and says for each problem what to do. Changes nothing."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.text import Text

from detent.cli.option_groups import ConnectionOptions
from detent.cli.output import EXIT_NO, EXIT_OK, Cell, pluralize
from detent.client.connect import default_url, shown_url, store_from
from detent.core.access import Token
from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.io import contract_to
from detent.core.contract.model import Phase
from detent.core.errors import DetentError, SchemaMismatch
from detent.core.job import Job, Micros
from detent.core.times import SECOND, iso
from detent.engine import Engine
from detent.engine.reads.stats import Stats
from detent.engine.reads.why import LiveWorker, live_workers, span
from detent.ports.listing import Filter
from detent.ports.tx import Tx
from detent.stores.sqlite.store import SqliteStore
from detent.system.clock import SystemClock

from . import doctor_monitoring, doctor_sqlite
from .database import Database, Finding, describe
from .stats import check_streams

_MAX_EXPIRED = 1_000
_MAX_CLOCK_SKEW: Micros = 2 * SECOND


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the checks need to know, read from the database."""

    stats: Stats
    expired: list[Job]
    newest: Job | None
    changed: list[str]
    tokens: list[Token]

    @property
    def live(self) -> list[LiveWorker]:
        return live_workers(self.stats.workers, self.stats.now)


def doctor(connection: ConnectionOptions) -> int:
    """Check the database, workers, leases, clocks, alerts and settings; exits with 1 if a check fails."""
    target = connection.url or default_url()
    findings = list(run_checks(target))
    ok = all(finding.ok for finding in findings)
    views = [{"check": f.check, "ok": f.ok, "says": f.message, "do": f.advice or None} for f in findings]
    view = {"ok": ok, "url": shown_url(target), "checks": views}
    connection.print_list(view, ("check", "", "result"), map(_row, findings))
    return EXIT_OK if ok else EXIT_NO


def _row(finding: Finding) -> list[Cell]:
    result = Text("ok", "green") if finding.ok else Text("FAIL", "bold red")
    return [finding.check, result, f"{finding.message}\n-> {finding.advice}" if finding.advice else finding.message]


def run_checks(url: str) -> Iterator[Finding]:
    database = describe(url)
    yield _location(database)
    yield _schema(database)
    yield _durability(database)
    if database.problem or (database.schema or 0) < database.newest:
        return
    try:
        snapshot = ConnectionOptions(url).run(_read_snapshot)
    except DetentError as error:
        blocked = not isinstance(error, SchemaMismatch)
        advice = "stop the process that blocks it, then run doctor again" if blocked else ""
        yield Finding("open", False, f"cannot open the database: {error}", advice)
        return
    yield _contracts(snapshot)
    yield _workers(snapshot)
    yield from _types(snapshot)
    yield _leases(snapshot)
    yield from _tokens(snapshot)
    store = store_from(url)
    yield _clock(snapshot, SystemClock().now() if isinstance(store, SqliteStore) else snapshot.stats.now)
    yield from check_streams(url)
    if isinstance(store, SqliteStore):
        yield from doctor_sqlite.findings(store.path)
    else:
        from . import doctor_postgres  # asyncpg is an extra

        yield from doctor_postgres.findings(url)
    yield from ConnectionOptions(url).run(doctor_monitoring.findings)


async def _read_snapshot(engine: Engine) -> Snapshot:
    async def read(tx: Tx) -> tuple[list[Job], list[Job]]:
        return await tx.claims.expired(_MAX_EXPIRED, list(engine.contracts)), await tx.jobs.list_jobs(Filter(limit=1))

    stats = await engine.stats.read()
    expired, newest = await engine.store.read(read)
    changed = [
        name for name, builtin in CONTRACTS.items() if contract_to(engine.contracts[name]) != contract_to(builtin)
    ]
    return Snapshot(stats, expired, newest[0] if newest else None, changed, await engine.tokens.list())


def _location(database: Database) -> Finding:
    kind = database.kind
    if database.problem:
        return Finding(kind, False, database.problem, f"fix this, or choose another {kind} with --url")
    if not database.exists:
        message = f"{database.location} does not exist"
        return Finding(kind, False, message, "run `detent migrate` to create it, or set the right file with --url")
    return Finding(kind, True, f"{database.location} is readable and writable ({database.engine})")


def _schema(database: Database) -> Finding:
    version, newest = database.schema, database.newest
    if version == newest:
        return Finding("schema", True, f"version {version}")
    if version is None:
        return Finding("schema", False, "the database has no schema yet", "run `detent migrate`")
    if version > newest:
        message = f"version {version}, made by a newer Detent; this one was made for {newest}"
        return Finding("schema", True, message, "upgrade this Detent")
    return Finding("schema", False, f"version {version}, this Detent needs {newest}", "run `detent migrate`")


def _durability(database: Database) -> Finding:
    advice = "set fsync, full_page_writes and synchronous_commit to on"
    if database.kind == "file":
        advice = "open the store with synchronous=FULL"
    return Finding("durability", database.durable, database.durability, "" if database.durable else advice)


def _contracts(snapshot: Snapshot) -> Finding:
    used = sorted({contract for contract, *_ in snapshot.stats.counts})
    message = f"used by jobs: {', '.join(used)}" if used else "no jobs yet"
    note = f"; changed from the built-in version: {', '.join(snapshot.changed)}" if snapshot.changed else ""
    return Finding("contracts", True, message + note)


def _workers(snapshot: Snapshot) -> Finding:
    """Fails without a live worker only if jobs are unfinished."""
    live, lost = snapshot.live, len(snapshot.stats.workers) - len(snapshot.live)
    unfinished = sum(number for _, _, phase, number in snapshot.stats.counts if phase != Phase.FINAL)
    lost_note = f", {lost} without a heartbeat for three leases" if lost else ""
    message = f"{pluralize(len(live), 'live worker')}{lost_note}; {pluralize(unfinished, 'unfinished job')}"
    advice = "start one with `detent worker APP`" if not live and unfinished else ""
    return Finding("workers", not advice, message, advice)


def _types(snapshot: Snapshot) -> Iterator[Finding]:
    """Finds due jobs whose type and queue no live worker serves."""
    due, live = [row for row in snapshot.stats.backlog if row.due], snapshot.live
    unserved = [row for row in due if not any(worker.can_run(row.queue, row.job_type) for worker in live)]
    for row in unserved:
        jobs = f"{pluralize(row.due, 'job')} of type {row.job_type} due in queue {row.queue}"
        advice = f"start a worker that handles {row.job_type} and serves queue {row.queue}"
        yield Finding("types", False, f"{jobs}, but no live worker runs them", advice)
    if not unserved:
        yield Finding("types", True, "every job type with due jobs has a live worker")


def _leases(snapshot: Snapshot) -> Finding:
    """Finds expired leases that were not reclaimed. A sweeper may wait one lease before it reclaims a job."""
    grace = max((worker.row.lease for worker in snapshot.live), default=0)
    late = [job for job in snapshot.expired if (job.lease_until or 0) + grace <= snapshot.stats.now]
    if not late:
        return Finding("leases", True, "no expired lease is waiting to be reclaimed")
    oldest = min(job.lease_until or 0 for job in late)
    number = f"{len(late)}{'+' if len(late) == _MAX_EXPIRED else ''}"
    message = f"{number} expired and not reclaimed, the oldest {span(snapshot.stats.now - oldest)} ago"
    advice = "start a worker: every worker reclaims expired leases; if one is running, check its log"
    return Finding("leases", False, message, advice)


def _tokens(snapshot: Snapshot) -> Iterator[Finding]:
    """Finds tokens that expire within 14 days."""
    now = snapshot.stats.now
    soon = sorted({t.person for t in snapshot.tokens if t.expires_soon(now)})
    if soon:
        advice = "create new ones with `detent token create` before, see `detent token list`"
        yield Finding("tokens", False, f"tokens of {', '.join(soon)} expire within 14 days", advice)
    elif snapshot.tokens:
        yield Finding("tokens", True, "no token expires within 14 days")


def _clock(snapshot: Snapshot, now: Micros) -> Finding:
    times = [snapshot.newest.updated_at] if snapshot.newest else []
    times += [worker.seen_at for worker in snapshot.stats.workers]
    ahead = max(times, default=now) - now
    if ahead > _MAX_CLOCK_SKEW:
        message = f"the database contains times {span(ahead)} ahead of this machine's clock ({iso(now)})"
        return Finding("clock", False, message, "synchronise the clocks of all machines (NTP)")
    return Finding("clock", True, f"{iso(now)}, not behind the stored times")
