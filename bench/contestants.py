"""Who competes, in which settings, and what each row includes: history kept, fsync, handler calls."""

import sys
from dataclasses import dataclass

from . import homes

ALL = 10**9
DURABLE_PG = "fsync, synchronous commit"
MEMORY = "none: memory only"
EACH = "one a job"


@dataclass(frozen=True, slots=True)
class Contestant:
    """One row of the table. `short`: it takes part in the short form, if it is installed."""

    name: str
    store: str
    """sqlite, postgres or redis."""
    script: str
    """Module of bench.peers, or a Node script there."""
    settings: str
    history: str
    fsync: str
    handler: str = EACH
    home: str | None = None
    """The peer's environment; None: our own interpreter."""
    variant: str = ""
    short: bool = False
    most: int = ALL
    """No more jobs than this in one drain: the slow ones would take all day."""
    callers: bool = True
    """False: measuring concurrent callers makes no sense for it."""
    here: bool = False
    """True: can be measured with its worker in the client's process."""
    grows: bool = False
    """True: also measured as backlog and history grow."""
    log: str | None = None
    """The other store it needs: where its log is kept."""
    measures: frozenset[str] | None = None
    """None: all that make sense; else these only."""

    @property
    def calls_handlers(self) -> bool:
        return not self.handler.startswith("none")

    @property
    def ours(self) -> bool:
        return self.home is None

    def command(self) -> list[str]:
        if self.home is None:
            return [sys.executable, "-m", "bench.peers", self.script]
        if self.script.endswith(".mjs"):
            return [homes.program(self.home), str(homes.folder(self.home) / self.script)]
        return [homes.program(self.home), "-m", "bench.peers", self.script]

    def missing(self) -> str | None:
        """Why it cannot run here, or None."""
        if self.home is None or homes.installed(self.home):
            return None
        return f"not installed: python -m bench --install {self.home}"

    def includes(self) -> str:
        return f"history: {self.history}; fsync: {self.fsync}; handler calls: {self.handler}"


def _peer(home: str, store: str, settings: str, history: str, fsync: str, **options: object) -> Contestant:
    script = f"{home}.mjs" if homes.HOMES[home].kind == "npm" else home.replace("-", "_")
    told = {"name": home, "script": script, "home": home} | options
    return Contestant(store=store, settings=settings, history=history, fsync=fsync, **told)  # type: ignore[arg-type]


_NONE_RAW = "none (bare loop)"
_FULL = "every event, row kept"

CONTESTANTS = (
    Contestant(
        "detent-postgres", "postgres", "detent", "public API, 500 slots, worker process of its own",
        _FULL, DURABLE_PG, short=True, here=True, grows=True,
    ),
    Contestant(
        "raw-postgres", "postgres", "raw_postgres", "Detent's tables and statements, asyncpg, batch 100",
        _FULL, DURABLE_PG, _NONE_RAW, short=True, grows=True,
    ),
    Contestant(
        "raw-postgres-200", "postgres", "raw_postgres", "as raw-postgres, batch 200: about one cycle of Detent",
        _FULL, DURABLE_PG, _NONE_RAW, variant="200", short=True, measures=frozenset({"drain"}),
    ),
    Contestant(
        "minimal-postgres", "postgres", "minimal_postgres", "a small row, fused statement, asyncpg, batch 100",
        "three events, row kept", DURABLE_PG, _NONE_RAW, short=True,
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
        "none, row deleted", DURABLE_PG, short=True, grows=True,
    ),
    _peer(
        "pgqueuer", "postgres", "batch 1,000 (pickup 100), uvloop", "one log row, job deleted", DURABLE_PG,
        short=True, variant="uvloop", most=40_000, grows=True,
    ),
    _peer(
        "pg-boss", "postgres", "whole batches of 10,000, polled twice a second", "row kept", DURABLE_PG,
        handler="one per 10,000 jobs", most=40_000,
    ),
    _peer(
        "procrastinate", "postgres", "concurrency 10, pool of 20", "row and events kept", DURABLE_PG,
        most=3_000,
    ),
    _peer("dbos", "postgres", "queue polled every 20 ms", "workflow row kept", DURABLE_PG, most=2_000),
    Contestant(
        "detent-sqlite", "sqlite", "detent", "public API, 500 slots, worker process of its own", _FULL,
        "every commit (WAL, FULL)", short=True, here=True, grows=True,
    ),
    Contestant(
        "raw-sqlite", "sqlite", "raw_sqlite", "Detent's tables and statements, apsw, batch 100", _FULL,
        "every commit (WAL, FULL)", _NONE_RAW, short=True, callers=False, grows=True,
    ),
    Contestant(
        "raw-sqlite-200", "sqlite", "raw_sqlite", "as raw-sqlite, batch 200: about one cycle of Detent", _FULL,
        "every commit (WAL, FULL)", _NONE_RAW, variant="200", short=True, measures=frozenset({"drain"}),
    ),
    Contestant(
        "minimal-sqlite", "sqlite", "minimal_sqlite", "a small row, apsw, batch 100", "three events, row kept",
        "every commit (WAL, FULL)", _NONE_RAW, short=True, callers=False,
    ),
    Contestant(
        "detent-sqlite-limited", "sqlite", "detent", "as detent-sqlite, three limits and a weight in use", _FULL,
        "every commit (WAL, FULL)", variant="limited", measures=frozenset({"drain"}),
    ),
    _peer(
        "plainjob", "sqlite", "as documented, pickup polled every 10 ms", "row kept", "not at a commit (WAL, NORMAL)",
        most=20_000,
    ),
    _peer(
        "plainjob", "sqlite", "synchronous FULL, pickup polled every 10 ms", "row kept", "every commit (WAL, FULL)",
        name="plainjob-full", variant="full", most=6_000,
    ),
    _peer(
        "huey", "sqlite", "one thread, polled every 10 ms; at most once", "none", "not at a commit (WAL, NORMAL)",
        most=8_000,
    ),
    _peer(
        "huey", "sqlite", "as huey, fsync=True", "none", "every commit (WAL, FULL)",
        name="huey-fsync", variant="fsync", most=8_000,
    ),
    _peer(
        "persist-queue", "sqlite", "SQLiteAckQueue, our loop: get, handler, ack; polled every 5 ms", "row kept",
        "as its default", most=3_000, callers=False,
    ),
    Contestant(
        "detent-streams", "redis", "detent_streams", "Redis Streams, log on Postgres, 300 slots, relayed before",
        _FULL, f"{DURABLE_PG}; the stream none", log="postgres",
    ),
    _peer("bullmq", "redis", "concurrency 100", "completed kept in memory", MEMORY, most=40_000),
    _peer("taskiq", "redis", "streams, 100 tasks at once, 100 messages a read", "none", MEMORY, most=8_000),
    _peer("saq", "redis", "concurrency 100, uvloop", "result for a while", MEMORY, variant="uvloop", most=6_000),
    _peer("arq", "redis", "100 jobs at once, polled every 10 ms", "result for an hour", MEMORY, most=4_000),
    _peer("dramatiq", "redis", "one process, eight threads", "none", MEMORY, most=8_000),
    _peer("celery", "redis", "prefork 2, prefetch 128, results ignored", "none", MEMORY, most=5_000),
    _peer("rq", "redis", "SimpleWorker", "result for a while", MEMORY, most=1_500),
)  # fmt: skip
BY_NAME = {contestant.name: contestant for contestant in CONTESTANTS}
RAW = {"sqlite": "raw-sqlite", "postgres": "raw-postgres"}
"""What a rate is divided by, in the same store."""
OURS = {"sqlite": "detent-sqlite", "postgres": "detent-postgres", "redis": "detent-streams"}
"""Whom the others are compared with."""


def chosen(names: list[str] | None, *, full: bool) -> list[Contestant]:
    """Those asked for, else the short form or all of them."""
    if names:
        unknown = [name for name in names if name not in BY_NAME]
        if unknown:
            raise SystemExit(f"unknown: {', '.join(unknown)}; see python -m bench --list")
        return [BY_NAME[name] for name in names]
    return [contestant for contestant in CONTESTANTS if full or contestant.short]
