"""The contestants and their settings, and what each row includes: history kept, fsync, handler calls."""

import sys
from dataclasses import dataclass

from . import homes

UNLIMITED = 10**9
DURABLE_PG = "fsync, synchronous commit"
MEMORY = "none: memory only"
PER_JOB = "one a job"


@dataclass(frozen=True, slots=True)
class Contestant:
    """One row of the table."""

    name: str
    store: str
    """sqlite, postgres or redis."""
    script: str
    """A module of bench.peers, or a Node script in that folder."""
    settings: str
    history: str
    fsync: str
    handler: str = PER_JOB
    home: str | None = None
    """Name of the peer's environment; None: the interpreter that runs the benchmark."""
    variant: str = ""
    in_short_form: bool = False
    max_jobs: int = UNLIMITED
    """Maximum of jobs in one drain, so that slow contestants do not take hours."""
    concurrent_callers: bool = True
    """False: it is not measured with concurrent callers."""
    in_process: bool = False
    """True: it can also be measured with its worker in the client's process."""
    measure_growth: bool = False
    """True: it is also measured with growing backlog and history."""
    log_store: str | None = None
    """The second store it needs, for its log."""
    measures: frozenset[str] | None = None
    """Only these measures; None: all that apply."""

    @property
    def calls_handlers(self) -> bool:
        return not self.handler.startswith("none")

    @property
    def ours(self) -> bool:
        """It runs in the interpreter that runs the benchmark."""
        return self.home is None

    def command(self) -> list[str]:
        if self.home is None:
            return [sys.executable, "-m", "bench.peers", self.script]
        if self.script.endswith(".mjs"):
            return [homes.program(self.home), str(homes.folder(self.home) / self.script)]
        return [homes.program(self.home), "-m", "bench.peers", self.script]

    def missing(self) -> str | None:
        """The reason why it cannot run on this machine, or None."""
        if self.home is None or homes.installed(self.home):
            return None
        return f"not installed: python -m bench --install {self.home}"

    def includes(self) -> str:
        return f"history: {self.history}; fsync: {self.fsync}; handler calls: {self.handler}"


def _peer(home: str, store: str, settings: str, history: str, fsync: str, **options: object) -> Contestant:
    script = f"{home}.mjs" if homes.HOMES[home].kind == "npm" else home.replace("-", "_")
    fields = {"name": home, "script": script, "home": home} | options
    return Contestant(store=store, settings=settings, history=history, fsync=fsync, **fields)  # type: ignore[arg-type]


_NONE_RAW = "none (bare loop)"
_FULL = "every event, row kept"

CONTESTANTS = (
    Contestant(
        "detent-postgres", "postgres", "detent", "public API, 1,000 slots, separate worker process",
        _FULL, DURABLE_PG, in_short_form=True, in_process=True, measure_growth=True,
    ),
    Contestant(
        "raw-postgres", "postgres", "raw_postgres", "Detent's tables and statements, asyncpg, batch 100",
        _FULL, DURABLE_PG, _NONE_RAW, in_short_form=True, measure_growth=True,
    ),
    Contestant(
        "raw-postgres-200", "postgres", "raw_postgres", "as raw-postgres, batch 200, about that of a Detent worker",
        _FULL, DURABLE_PG, _NONE_RAW, variant="200", in_short_form=True, measures=frozenset({"drain"}),
    ),
    Contestant(
        "minimal-postgres", "postgres", "minimal_postgres", "a small row, fused statement, asyncpg, batch 100",
        "three events, row kept", DURABLE_PG, _NONE_RAW, in_short_form=True,
    ),
    Contestant(
        "detent-postgres-uvloop", "postgres", "detent", "as detent-postgres, on uvloop", _FULL, DURABLE_PG,
        variant="uvloop",
    ),
    Contestant(
        "detent-postgres-limited", "postgres", "detent", "as detent-postgres, three limits and a weight in use", _FULL,
        DURABLE_PG, variant="limited", measures=frozenset({"drain"}),
    ),
    _peer(
        "graphile-worker", "postgres", "concurrency 24, local queue 500, completions batched without delay",
        "none, row deleted", DURABLE_PG, in_short_form=True, measure_growth=True,
    ),
    _peer(
        "pgqueuer", "postgres", "batch 1,000 (pickup 100), uvloop", "one log row, job deleted", DURABLE_PG,
        in_short_form=True, variant="uvloop", max_jobs=40_000, measure_growth=True,
    ),
    _peer(
        "pg-boss", "postgres", "whole batches of 10,000, polled twice a second", "row kept", DURABLE_PG,
        handler="one per 10,000 jobs", max_jobs=40_000,
    ),
    _peer(
        "procrastinate", "postgres", "concurrency 10, pool of 20", "row and events kept", DURABLE_PG,
        max_jobs=3_000,
    ),
    _peer("dbos", "postgres", "queue polled every 20 ms", "workflow row kept", DURABLE_PG, max_jobs=2_000),
    Contestant(
        "detent-sqlite", "sqlite", "detent", "public API, 1,000 slots, separate worker process", _FULL,
        "every commit (WAL, FULL)", in_short_form=True, in_process=True, measure_growth=True,
    ),
    Contestant(
        "raw-sqlite", "sqlite", "raw_sqlite", "Detent's tables and statements, apsw, batch 100", _FULL,
        "every commit (WAL, FULL)", _NONE_RAW, in_short_form=True, concurrent_callers=False, measure_growth=True,
    ),
    Contestant(
        "raw-sqlite-200", "sqlite", "raw_sqlite", "as raw-sqlite, batch 200, about that of a Detent worker", _FULL,
        "every commit (WAL, FULL)", _NONE_RAW, variant="200", in_short_form=True, measures=frozenset({"drain"}),
    ),
    Contestant(
        "minimal-sqlite", "sqlite", "minimal_sqlite", "a small row, apsw, batch 100", "three events, row kept",
        "every commit (WAL, FULL)", _NONE_RAW, in_short_form=True, concurrent_callers=False,
    ),
    Contestant(
        "detent-sqlite-limited", "sqlite", "detent", "as detent-sqlite, three limits and a weight in use", _FULL,
        "every commit (WAL, FULL)", variant="limited", measures=frozenset({"drain"}),
    ),
    _peer(
        "plainjob", "sqlite", "as documented, pickup polled every 10 ms", "row kept", "not at a commit (WAL, NORMAL)",
        max_jobs=20_000,
    ),
    _peer(
        "plainjob", "sqlite", "synchronous FULL, pickup polled every 10 ms", "row kept", "every commit (WAL, FULL)",
        name="plainjob-full", variant="full", max_jobs=6_000,
    ),
    _peer(
        "huey", "sqlite", "one thread, polled every 10 ms; at most once", "none", "not at a commit (WAL, NORMAL)",
        max_jobs=8_000,
    ),
    _peer(
        "huey", "sqlite", "as huey, fsync=True", "none", "every commit (WAL, FULL)",
        name="huey-fsync", variant="fsync", max_jobs=8_000,
    ),
    _peer(
        "persist-queue", "sqlite", "SQLiteAckQueue, our loop: get, handler, ack; polled every 5 ms", "row kept",
        "as its default", max_jobs=3_000, concurrent_callers=False,
    ),
    Contestant(
        "detent-streams", "redis", "detent_streams", "Redis Streams, log on Postgres, 300 slots, published first",
        _FULL, f"{DURABLE_PG}; the stream none", log_store="postgres",
    ),
    _peer("bullmq", "redis", "concurrency 100", "completed kept in memory", MEMORY, max_jobs=40_000),
    _peer("taskiq", "redis", "streams, 100 tasks at once, 100 messages a read", "none", MEMORY, max_jobs=8_000),
    _peer("saq", "redis", "concurrency 100, uvloop", "result for a while", MEMORY, variant="uvloop", max_jobs=6_000),
    _peer("arq", "redis", "100 jobs at once, polled every 10 ms", "result for an hour", MEMORY, max_jobs=4_000),
    _peer("dramatiq", "redis", "one process, eight threads", "none", MEMORY, max_jobs=8_000),
    _peer("celery", "redis", "prefork 2, prefetch 128, results ignored", "none", MEMORY, max_jobs=5_000),
    _peer("rq", "redis", "SimpleWorker", "result for a while", MEMORY, max_jobs=1_500),
)  # fmt: skip
BY_NAME = {contestant.name: contestant for contestant in CONTESTANTS}
RAW = {"sqlite": "raw-sqlite", "postgres": "raw-postgres"}
"""The baseline of each store, for the ratio `of_raw`."""
OURS = {"sqlite": "detent-sqlite", "postgres": "detent-postgres", "redis": "detent-streams"}
"""The Detent contestant that the others of a store are compared with."""


def select(names: list[str] | None, *, full: bool) -> list[Contestant]:
    """The named contestants; without names, those of the short form, or all."""
    if names:
        unknown = [name for name in names if name not in BY_NAME]
        if unknown:
            raise SystemExit(f"unknown contestants: {', '.join(unknown)}; see python -m bench --list")
        return [BY_NAME[name] for name in names]
    return [contestant for contestant in CONTESTANTS if full or contestant.in_short_form]
