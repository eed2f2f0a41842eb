"""A crowded database: a million jobs in 500 queues, 200 workers, time series, dead letters and an audit log.

The rows are copies of rows that the engine wrote, made by the database itself; a million take about a minute.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import psycopg
from playwright.sync_api import Browser

from dashboard.site import Site, page_paths, running_site
from support.servers.databases import house, newest
from support.waiting import until_now

JOBS, READY, HELD, DEAD_LETTERS, AUDIT_ENTRIES = 1_000_000, 100_000, 2_000, 100_000, 100_000
QUEUES, TYPES, WORKERS = 500, 40, 200
JOB_MS = 50
"""One job in 50 ms: a million are the jobs of 14 hours."""
_FAR = 100_000_000_000
"""Microseconds, about a day: leases and heartbeats of the copies last for the whole test."""
_SPREAD = "(lane & ~(CAST(16777215 AS bigint) << 31)) | ((CAST({first} AS bigint) + value % {queues}) << 31)"
"""The lane of a job in one of the new queues, see lanes.py."""
_SERIES = ((10, 120), (60, 65), (300, 78), (900, 104), (7_200, 372), (86_400, 31))
"""Width and number of slots of each queue and type, as engine/metrics/time_series.py keeps them."""


@contextmanager
def crowded_site(browser: Browser | None, folder: Path, store: str) -> Iterator[tuple[Site, dict[str, str]]]:
    """A server on a database with a million jobs in 500 queues, and the paths of all pages."""
    database = None if store == "sqlite" else house(newest()).database()
    with running_site(folder, browser, database and database.url) as site:
        paths, gate = page_paths(site), folder / "gate"
        samples = Samples(
            finished=str(site.wait_until_final(site.submit("mail", {"to": "x"}, queue="mail"))["id"]),
            ready=site.submit("nobody", queue="mail"),
            held=site.submit("gated", {"gate": str(gate)}, queue="gates"),
            dead_letter=paths["dead_letter"].rpartition("/")[2],
        )
        until_now(lambda: site.call("GET", f"jobs/{samples.held}")["phase"] == "leased")
        fill(site.database_url, samples)
        yield site, paths | {"crowded queue": "queue?name=queue-001", "crowded type": "type?name=type-01"}
        gate.touch()
    if database is not None:
        database.close()


@dataclass(frozen=True)
class Samples:
    """Ids of the rows to copy: a finished, a ready and a running job, and a dead letter."""

    finished: str
    ready: str
    held: str
    dead_letter: str


@dataclass
class Database:
    """What the two databases spell differently. Statements name tables as `detent.jobs`."""

    execute: Callable[[str], list[Any]]
    columns: Callable[[str], list[str]]
    numbers: str
    hexadecimal: str
    uuid: str

    def copies(self, number: int, insert: str) -> None:
        self.execute(self.numbers.format(number=number) + insert)

    def copy_id(self, job_id: str) -> str:
        """The id of a copy: as its original, but earlier, because an id begins with milliseconds."""
        milliseconds = int(job_id.replace("-", "")[:12], 16)
        digits = self.hexadecimal.format(value=f"({milliseconds} - value * {JOB_MS})")
        text = f"substr({digits}, 1, 8) || '-' || substr({digits}, 9, 4) || '{job_id[13:]}'"
        return self.uuid.format(value=text)

    def copy(self, table: str, number: int, key: str, original: str, **changed: str) -> None:
        """Copies of the rows of one original; changed: expressions for columns."""
        names = [name for name in self.columns(table) if name != "n"]
        values = ", ".join(changed.get(name, name) for name in names)
        self.copies(
            number,
            f"INSERT INTO detent.{table} ({', '.join(names)}) SELECT {values} FROM n, detent.{table}"
            f" WHERE {key} = '{original}'",
        )


@contextmanager
def opened(url: str) -> Iterator[Database]:
    if url.startswith("sqlite"):
        connection = apsw.Connection(url.removeprefix("sqlite:///"))
        connection.execute("PRAGMA synchronous = OFF; PRAGMA cache_size = -200000; PRAGMA busy_timeout = 60000")
        connection.transaction_mode = "IMMEDIATE"  # a read first, then a write that another process came before, fails
        try:
            with connection:
                yield Database(
                    lambda text: connection.execute(text.replace("detent.", "detent_")).fetchall(),
                    lambda table: [row[1] for row in connection.execute(f"PRAGMA table_info(detent_{table})")],
                    "WITH RECURSIVE n (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < {number}) ",
                    "printf('%012x', {value})",
                    "{value}",
                )
        finally:
            connection.close()
        return
    with psycopg.connect(url, autocommit=True) as server:

        def execute(text: str) -> list[Any]:
            cursor = server.execute(text)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

        names = "SELECT attname FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped AND attrelid ="
        yield Database(
            execute,
            lambda table: [row[0] for row in execute(f"{names} 'detent.{table}'::regclass ORDER BY attnum")],
            "WITH n (value) AS (SELECT * FROM generate_series(CAST(1 AS bigint), {number})) ",
            "lpad(to_hex(({value})::bigint), 12, '0')",
            "CAST({value} AS uuid)",
        )
        execute("VACUUM (ANALYZE)")


def fill(url: str, samples: Samples) -> None:
    """Most of the million jobs are finished, 100,000 are ready and 2,000 are running."""
    with opened(url) as database:
        on_postgres = url.startswith("postgres")
        first = 1 + database.execute("SELECT max(id) FROM detent.lane_groups")[0][0]
        overriding = "OVERRIDING SYSTEM VALUE " if on_postgres else ""
        queue, job_type = (
            "'queue-' || substr(CAST(1000 + value AS text), 2)",
            f"substr(CAST(100 + value % {TYPES} AS text), 2)",
        )
        database.copies(
            QUEUES,
            f"INSERT INTO detent.lane_groups (id, contract, queue, job_type) {overriding}SELECT {first} + value - 1,"
            f" 'standard', {queue}, 'type-' || {job_type} FROM n",
        )
        if on_postgres:
            sequence = "pg_get_serial_sequence('detent.lane_groups', 'id')"
            database.execute(f"SELECT setval({sequence}, max(id)) FROM detent.lane_groups")
        database.execute("UPDATE detent.lane_version SET value = value + 1")
        spread = _SPREAD.format(first=first, queues=QUEUES)
        kinds = ((samples.finished, JOBS - READY - HELD), (samples.ready, READY), (samples.held, HELD))
        for job_id, number in kinds:
            copy_id, earlier = database.copy_id(job_id), f" - value * {JOB_MS * 1000}"
            times = {name: name + earlier for name in ("created_at", "updated_at", "started_at", "finished_at")}
            lease = {"lease_until": f"lease_until + {_FAR}", "token": f"CAST({copy_id} AS text)"}
            database.copy("jobs", number, "id", job_id, id=copy_id, lane=spread, **times, **lease)
            database.copy("events", number, "job_id", job_id, job_id=copy_id, lane=spread, at=f"at{earlier}")
        if on_postgres:
            _fill_places(database, samples, spread)
        _fill_others(database, samples)
        fill_series(database)
        _count_nothing_before(database, on_postgres)


def _fill_places(database: Database, samples: Samples, spread: str) -> None:
    """Postgres keeps ready jobs in the queue, and running ones in claims of ten."""
    database.copy("queue", READY, "id", samples.ready, id=database.copy_id(samples.ready), lane=spread)
    copy_id = database.copy_id(samples.held)
    database.copies(
        HELD,
        f"INSERT INTO detent.claims (check_at, ids) SELECT c.check_at + {_FAR}, array_agg({copy_id})"
        f" FROM n, detent.claims c WHERE '{samples.held}'::uuid = ANY (c.ids) GROUP BY c.check_at, value / 10",
    )


def _fill_others(database: Database, samples: Samples) -> None:
    number = database.hexadecimal.format(value="value")
    database.copy("workers", WORKERS, "1", "1", id="'worker-' || value", seen_at=f"seen_at + {_FAR}",
                  job_types="""'["type-01", "type-02"]'""")  # fmt: skip
    dead_letter = {
        "id": f"substr(id, 1, length(id) - 12) || {number}",
        "job_id": database.copy_id(samples.finished),
        "created_at": "created_at - value * 1000",
        "error_group": "'group-' || value % 50",
        "error_code": "'CODE_' || value % 50",
    }
    database.copy("dead_letters", DEAD_LETTERS, "id", samples.dead_letter, **dead_letter)
    database.copies(
        AUDIT_ENTRIES,
        "INSERT INTO detent.audit (at, actor, act, subject) SELECT a.at, a.actor, a.act, a.subject FROM n,"
        " (SELECT * FROM detent.audit ORDER BY n LIMIT 1) a",
    )


def fill_series(database: Database) -> None:
    """Slots of every span that goes back from the present, with numbers that rise and fall every ten minutes.

    Each span has the same jobs per minute, and the queues together as many as all types, all tenants or the whole.
    """
    database.execute(
        "INSERT INTO detent.series_subjects (kind, name) SELECT 'queue', queue FROM detent.lane_groups"
        " UNION SELECT 'job_type', job_type FROM detent.lane_groups WHERE true ON CONFLICT DO NOTHING"
    )
    short, long = (" ".join(f"{bucket}:{bucket}" for bucket in range(first, first + 30, 2)) for first in (20, 30))
    kinds = "SELECT kind, count(*) FROM detent.series_subjects WHERE kind <> 'group' GROUP BY kind"
    numbers = dict(database.execute(kinds))
    shares = " ".join(f"WHEN '{kind}' THEN {max(numbers.values()) / number}" for kind, number in numbers.items())
    now = int(time.time())
    for width, slots in _SERIES:
        part = f"({now // width} - value) * {width} / 600"
        histogram = f"CASE {part} % 5 WHEN 0 THEN '{long}' ELSE '{short}' END"
        counts = (
            f"CAST(round(round(({count}) * CASE s.kind {shares} END) * {width} / 60.0) AS bigint)"
            for count in (f"9 + abs({part} % 24 - 12)", f"8 + abs({part} % 24 - 12)", f"{part} % 4")
        )
        database.copies(
            slots,
            f"INSERT INTO detent.series ({', '.join(database.columns('series'))}) SELECT {width}, s.id,"
            f" {now // width} - value, {', '.join(counts)}, 0, 1000000, 1000000, {histogram}, {histogram}"
            " FROM n, detent.series_subjects s WHERE s.kind <> 'group' ON CONFLICT DO NOTHING",
        )


def _count_nothing_before(database: Database, on_postgres: bool) -> None:
    """Whoever counts the log begins behind the copies, as if it had counted them while they were written."""
    for log, table in (("events", "events"), ("series", "events"), ("notes", "notes")):
        end = "pg_snapshot_xmin(pg_current_snapshot())::text::bigint" if on_postgres else "coalesce(max(n), 0)"
        source = "" if on_postgres else f" FROM detent.{table}"
        database.execute(
            f"INSERT INTO detent.tails AS tails (log, position, version) SELECT '{log}', {end}, 0{source} WHERE true"
            " ON CONFLICT (log) DO UPDATE SET position = excluded.position, version = tails.version + 1"
        )
