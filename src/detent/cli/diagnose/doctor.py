"""`detent doctor`: looks for what is wrong, and says for each finding what to do. Changes nothing."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.text import Text

from detent.cli.connection import on_engine
from detent.cli.options import AsJson, Url
from detent.cli.output import FINE, NO, counted, say_json, show_table
from detent.client.connect import default_url, store_from
from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.io import contract_to
from detent.core.contract.model import Phase
from detent.core.errors import DetentError
from detent.core.job import Job, Micros
from detent.core.times import SECOND, iso
from detent.engine import Engine
from detent.engine.reads.stats import Stats, read_stats
from detent.engine.reads.why import handles, is_live, serves, span
from detent.ports.listing import Filter, WorkerRow
from detent.ports.tx import Tx
from detent.stores.sqlite.store import SqliteStore

from . import doctor_monitoring, doctor_sqlite
from .database import Database, describe, shown_url
from .finding import Finding
from .stream_health import check_streams

_LOOK_AT = 1_000
_CLOCKS_APART: Micros = 2 * SECOND


@dataclass(frozen=True, slots=True)
class Chart:
    """What the doctor looks at, read from the database."""

    pulse: Stats
    expired: list[Job]
    newest: Job | None
    changed: list[str]

    @property
    def live(self) -> list[WorkerRow]:
        return [worker for worker in self.pulse.workers if is_live(worker, self.pulse.now)]


def doctor(url: Url = None, as_json: AsJson = False) -> int:
    """Check the database, the workers, the leases and the clock; exits with 1 when something is wrong."""
    target = url or default_url()
    findings = list(examine(target))
    ok = all(finding.ok for finding in findings)
    if as_json:
        rows = [{"check": f.check, "ok": f.ok, "says": f.says, "do": f.do or None} for f in findings]
        say_json({"ok": ok, "url": shown_url(target), "checks": rows})
    else:
        show_table(
            ("check", "", "finding"),
            [
                [f.check, Text("ok", "green") if f.ok else Text("wrong", "bold red"), f"{f.says}{_then(f)}"]
                for f in findings
            ],
        )
    return FINE if ok else NO


def _then(finding: Finding) -> str:
    return f"\n-> {finding.do}" if finding.do else ""


def examine(url: str) -> Iterator[Finding]:
    database = describe(url)
    yield _file(database)
    yield _schema(database)
    yield _durability(database)
    if database.problem or database.schema != database.newest:
        return
    try:
        chart = on_engine(url, _read)
    except DetentError as error:
        yield Finding("open", False, f"the database does not open: {error}", "stop what blocks it, then ask again")
        return
    yield _contracts(chart)
    yield _workers(chart)
    yield from _types(chart)
    yield _leases(chart)
    yield _clock(chart)
    yield from check_streams(url)
    yield from _database(url)
    yield from on_engine(url, doctor_monitoring.findings)


def _database(url: str) -> Iterator[Finding]:
    store = store_from(url)
    if isinstance(store, SqliteStore):
        yield from doctor_sqlite.findings(store.path)
        return
    from . import doctor_postgres  # asyncpg is an extra

    yield from doctor_postgres.findings(url)


async def _read(engine: Engine) -> Chart:
    async def look(tx: Tx) -> tuple[list[Job], list[Job]]:
        return await tx.expired(_LOOK_AT, list(engine.contracts)), await tx.jobs(Filter(limit=1))

    pulse = await read_stats(engine)
    expired, newest = await engine.store.read(look)
    changed = [name for name, own in CONTRACTS.items() if contract_to(engine.contracts[name]) != contract_to(own)]
    return Chart(pulse, expired, newest[0] if newest else None, changed)


def _file(database: Database) -> Finding:
    kind = database.kind
    if database.problem:
        return Finding(kind, False, database.problem, f"fix that, or name another {kind} with --url")
    if not database.exists:
        says = f"{database.where} does not exist"
        return Finding(kind, False, says, "run `detent migrate` to make it, or name the right file with --url")
    return Finding(kind, True, f"{database.where} can be read and written ({database.engine})")


def _schema(database: Database) -> Finding:
    have, newest = database.schema, database.newest
    if have == newest:
        return Finding("schema", True, f"version {have}")
    if have is None:
        return Finding("schema", False, "there is none yet", "run `detent migrate`")
    if have > newest:
        return Finding("schema", False, f"version {have}, this Detent knows {newest}", "upgrade this Detent")
    return Finding("schema", False, f"version {have}, this Detent needs {newest}", "run `detent migrate`")


def _durability(database: Database) -> Finding:
    cure = {"file": "open the store with synchronous=FULL", "server": "set fsync, full_page_writes, synchronous_commit"}
    do = "" if database.durable else cure[database.kind]
    return Finding("durability", database.durable, database.durability, do)


def _contracts(chart: Chart) -> Finding:
    used = sorted({contract for contract, *_ in chart.pulse.counts})
    says = f"jobs live under {', '.join(used)}" if used else "no job yet"
    note = f"; set otherwise than Detent carries them: {', '.join(chart.changed)}" if chart.changed else ""
    return Finding("contracts", True, says + note)


def _workers(chart: Chart) -> Finding:
    """No worker is wrong only while there is something to do."""
    live, gone = chart.live, len(chart.pulse.workers) - len(chart.live)
    left = sum(number for _, _, phase, number in chart.pulse.counts if phase != Phase.FINAL)
    silent = f", {gone} not seen for three leases" if gone else ""
    says = f"{counted(len(live), 'live worker')}{silent}; {counted(left, 'job')} unfinished"
    if not live and left:
        return Finding("workers", False, says, "start one with `detent worker APP`")
    return Finding("workers", True, says)


def _types(chart: Chart) -> Iterator[Finding]:
    """Jobs that are due and that no live worker would take."""
    alone = [
        row
        for row in chart.pulse.backlog
        if row.due and not any(handles(w, row.job_type) and serves(w, row.queue) for w in chart.live)
    ]
    for row in alone:
        jobs = f"{counted(row.due, 'job')} of type {row.job_type} due in queue {row.queue}"
        yield Finding(
            "types",
            False,
            f"{jobs} and no live worker takes them",
            f"start a worker that declares {row.job_type} and serves {row.queue}",
        )
    if not alone:
        yield Finding("types", True, "every type with due jobs has a live worker")


def _leases(chart: Chart) -> Finding:
    """A sweeper may rightly wait one lease before it takes a job away."""
    patience = max((worker.lease for worker in chart.live), default=0)
    late = [job for job in chart.expired if (job.lease_until or 0) + patience <= chart.pulse.now]
    if not late:
        return Finding("leases", True, "none ran out unnoticed")
    oldest = min(job.lease_until or 0 for job in late)
    number = f"{len(late)}{'+' if len(late) == _LOOK_AT else ''}"
    says = f"{number} ran out and nobody swept them, the oldest {span(chart.pulse.now - oldest)} ago"
    return Finding("leases", False, says, "start a worker: each one sweeps; if one is up, see its log")


def _clock(chart: Chart) -> Finding:
    now = chart.pulse.now
    marks = [chart.newest.updated_at] if chart.newest else []
    marks += [worker.seen_at for worker in chart.pulse.workers]
    ahead = max(marks, default=now) - now
    if ahead > _CLOCKS_APART:
        says = f"the database holds moments {span(ahead)} ahead of this machine's clock ({iso(now)})"
        return Finding("clock", False, says, "let all machines follow one time server")
    return Finding("clock", True, f"{iso(now)}, not behind what is stored")
