"""Compares three index designs for claims in eight scenarios on two databases; see docs/adr/0003-claim-order.md.

lanes index (lane, due_at, id) on ready rows; a claim skips from lane to lane, future rows are in a second index
flat  index (queue, priority desc, due_at, id) on claimable rows, other job types filtered out
type  index (queue, job_type, priority desc, due_at, id), one probe for each (queue, type) the worker runs

Each transaction settles the last 100 jobs and claims 100 more; no event rows. The designs alternate batch by batch;
median of three rounds. The result is CPU time (of the client and its Postgres backend): waiting for the disk is the
same for all, and other load on the machine hardly affects it. The worker runs 20 job types of one queue.
Run with: python -m bench.claim_order [--quick]
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any, NamedTuple

import apsw
import asyncpg

BATCH, ROUNDS, NOW, AGO, SOON = 100, 3, 10**15, 10**15 - 10**10, 10**15 + 10**12
GROUPS = list(range(10, 210, 10))  # interned (queue, type) pairs that this worker runs; 5 and 7 are not among them
TOKEN = "00000000-0000-7000-8000-000000000001"


class Fill(NamedTuple):
    count: int
    group: int = 10
    party: str = "1"  # an SQL expression over i, the number of the job in its fill
    priority: int = 50
    due: int = AGO
    queue: str = "main"


class Scenario(NamedTuple):
    name: str
    fills: list[Fill]
    now: int = NOW


def scenarios(noise: int, future: int) -> list[Scenario]:
    ours, old = Fill(20_000), AGO - 10**9
    retries = [Fill(future - future // 3, due=SOON), Fill(future // 3, priority=60, due=SOON)]
    late = Fill(1, party="20000", due=NOW - 10)  # the last job, of another tenant
    quiet = Fill(10_000, party="i + 10", priority=60, due=SOON)
    return [
        Scenario("S0 plain backlog, one lane", [ours]),
        Scenario(f"S1 + {noise:,} of a type without a worker", [Fill(noise, 5, due=old), ours]),
        Scenario(f"S2 + {noise:,} in a paused queue", [Fill(noise, 7, due=old, queue="paused"), ours]),
        Scenario(f"S3 + {future:,} future retries", [*retries, ours]),
        Scenario(f"S4 10,000 tenants, one has {noise:,}", [Fill(noise, due=old), Fill(10_000, party="i + 10"), late]),
        Scenario("S5 + 10,000 tenants, future only", [quiet, ours]),
        Scenario("S7 20,000 future jobs, now due", [Fill(20_000, due=SOON)], now=SOON + 10**9),
    ]


INDEXES = {
    "lanes": "CREATE INDEX jobs_ready ON jobs (lane, due_at, id) WHERE ready; CREATE INDEX jobs_later ON jobs"
    " (phase, due_at) WHERE NOT ready AND due_at IS NOT NULL AND phase IN ('claimable', 'blocked')",
    "flat": "CREATE INDEX jobs_flat ON jobs (queue, priority DESC, due_at, id) WHERE phase = 'claimable'",
    "type": "CREATE INDEX jobs_type ON jobs (queue, job_type, priority DESC, due_at, id) WHERE phase = 'claimable'",
}
TABLE = """CREATE TABLE jobs (id {uuid} PRIMARY KEY, queue text NOT NULL, job_type text NOT NULL, tenant text NOT NULL,
 priority int NOT NULL, lane bigint NOT NULL, ready boolean NOT NULL, due_at bigint, phase text NOT NULL,
 status text NOT NULL, version int NOT NULL, token {uuid}, lease_until bigint, payload text NOT NULL)"""
FILL = """INSERT INTO jobs SELECT {id}, '{f.queue}', 't{f.group}', 't' || ({f.party}), {f.priority},
 (cast({rank} AS bigint) << 55) | (cast({f.group} AS bigint) << 31) | ({f.party}), {ready}, {f.due} + i, 'claimable',
 'queued', 1, NULL, NULL, '{{"order_id": 1234567, "amount": 100, "note": "hundred bytes of payload"}}' FROM {series}"""

# Postgres: one statement, one round trip. $1 ids to settle, $2 token, $3 now, $4 batch size, $5 groups this worker runs
# that are not paused (sorted), $6 cursors (one lane for each rank), $7 $8 $9 floors (lane, due_at, id).
# The walk is a state machine with one index probe per step. lap 0: find the next rank with jobs; 1: from that rank's
# cursor (turn) to its end; 2: from its start to the cursor; 9: end. It skips groups that this worker does not run.
PG_SETTLE = """WITH RECURSIVE settled AS (
  UPDATE jobs j SET phase = 'final', status = 'succeeded', version = version + 1, token = NULL, lease_until = NULL
  FROM unnest($1::uuid[]) u(id) WHERE j.id = u.id AND j.token = $2::uuid RETURNING 1
), """
PG_CLAIM = """, claimed AS (
  UPDATE jobs j SET phase = 'leased', status = 'running', ready = false, version = version + 1, token = $2::uuid,
    lease_until = $3::bigint + 30000000
  FROM picked p WHERE j.id = p.id RETURNING j.id, j.lane, j.due_at, p.step
) SELECT id, lane, due_at, step FROM claimed"""
PG_PROMOTE = """promoted AS (
  UPDATE jobs j SET ready = true FROM (
    SELECT id FROM jobs WHERE NOT ready AND phase = 'claimable' AND due_at <= $3::bigint
    ORDER BY due_at LIMIT $4::int FOR UPDATE SKIP LOCKED) d
  WHERE j.id = d.id RETURNING 1
), """
PG_WALK = """floors AS MATERIALIZED (
  SELECT * FROM unnest($7::bigint[], $8::bigint[], $9::uuid[]) f(lane, due_at, id)
), walk(pos, stop, turn, rank, lap, lane, found, step) AS (
  SELECT -1::bigint, 9223372036854775807, -1::bigint, 0::bigint, 0, NULL::bigint, 0, 0
  UNION ALL
  SELECT n.pos, n.stop, n.turn, n.rank, n.lap, n.lane, w.found + (n.lane IS NOT NULL)::int, w.step + 1
  FROM walk w
  LEFT JOIN LATERAL (SELECT * FROM floors f WHERE f.lane > w.pos AND f.lane <= w.stop ORDER BY lane LIMIT 1) f ON true
  LEFT JOIN LATERAL (SELECT j.lane FROM jobs j WHERE j.ready AND j.lane > w.pos
    AND j.lane <= coalesce(f.lane - 1, w.stop) ORDER BY j.lane LIMIT 1) a ON true
  LEFT JOIN LATERAL (SELECT j.lane FROM jobs j WHERE a.lane IS NULL AND j.ready AND j.lane = f.lane
    AND (j.due_at, j.id) >= (f.due_at, f.id) ORDER BY j.due_at, j.id LIMIT 1) b ON true
  CROSS JOIN LATERAL (SELECT coalesce(a.lane, b.lane) AS lane, coalesce(a.lane, b.lane) >> 55 AS rank,
    (coalesce(a.lane, b.lane) >> 31) & 16777215 AS grp OFFSET 0) h
  LEFT JOIN LATERAL (SELECT coalesce((SELECT max(c) FROM unnest($6::bigint[]) c WHERE c >> 55 = h.rank),
    (h.rank << 55) - 1) AS pos WHERE w.lap = 0 AND h.lane IS NOT NULL OFFSET 0) t ON true
  CROSS JOIN LATERAL (
    SELECT t.pos, (h.rank << 55) | 36028797018963967, t.pos, h.rank, 1, NULL::bigint
      WHERE h.lane IS NOT NULL AND w.lap = 0
    UNION ALL SELECT h.lane, w.stop, w.turn, w.rank, w.lap, h.lane
      WHERE h.lane IS NOT NULL AND w.lap > 0 AND h.grp = ANY ($5::bigint[])
    UNION ALL SELECT coalesce(((SELECT min(g) FROM unnest($5::bigint[]) g WHERE g > h.grp) << 31 | (w.rank << 55)) - 1,
      w.stop), w.stop, w.turn, w.rank, w.lap, NULL WHERE w.lap > 0 AND h.grp <> ALL ($5::bigint[])
    UNION ALL SELECT f.lane, w.stop, w.turn, w.rank, w.lap, NULL WHERE h.lane IS NULL AND f.lane IS NOT NULL
    UNION ALL SELECT CASE w.lap WHEN 1 THEN (w.rank << 55) - 1 ELSE (w.rank << 55) | 36028797018963967 END,
      CASE w.lap WHEN 1 THEN w.turn ELSE 9223372036854775807 END, w.turn, w.rank,
      CASE w.lap WHEN 0 THEN 9 WHEN 1 THEN 2 ELSE 0 END, NULL WHERE h.lane IS NULL AND f.lane IS NULL
  ) n(pos, stop, turn, rank, lap, lane)
  WHERE w.lap < 9 AND w.found < $4::int AND w.step < 10000
), lanes AS MATERIALIZED (
  SELECT w.lane, w.rank, w.step, f.due_at, f.id, count(*) OVER (PARTITION BY w.rank)::int AS n
  FROM walk w LEFT JOIN floors f USING (lane) WHERE w.lane IS NOT NULL
), picked AS MATERIALIZED (
  SELECT k.id, l.step FROM (
    SELECT *, ($4::int + n - 1) / n AS quota FROM lanes CROSS JOIN (VALUES (1), (2)) v(pass) WHERE pass = 1 OR n > 1
    ORDER BY rank, pass, step) l
  CROSS JOIN LATERAL (
    SELECT j.id FROM jobs j WHERE j.ready AND j.lane = l.lane
      AND (j.due_at, j.id) >= (coalesce(l.due_at, -1), coalesce(l.id, '00000000-0000-0000-0000-000000000000'))
    ORDER BY j.due_at, j.id LIMIT CASE l.pass WHEN 1 THEN l.quota ELSE $4::int END
    OFFSET CASE l.pass WHEN 1 THEN 0 ELSE l.quota END FOR UPDATE SKIP LOCKED) k
  LIMIT $4::int
)"""
PG_PICK = """picked AS MATERIALIZED (SELECT k.id, 0 AS step FROM unnest($5::text[]) q(queue)
  {types} CROSS JOIN LATERAL (
    SELECT j.id, j.priority, j.due_at FROM jobs j WHERE j.phase = 'claimable' AND j.queue = q.queue
    AND j.job_type = {this} AND j.tenant <> ALL ($7::text[]) AND j.due_at <= $3::bigint
    ORDER BY j.priority DESC, j.due_at, j.id LIMIT $4::int FOR UPDATE SKIP LOCKED) k
  ORDER BY k.priority DESC, k.due_at, k.id LIMIT $4::int)"""
# The planner misestimates a table that was vacuumed while empty (scans) or is small (hash joins), and keeps that plan.
PG_SETTINGS = """SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_bitmapscan = off;
 SET enable_sort = off; SET enable_hashjoin = off; SET enable_mergejoin = off"""

# SQLite: settle, promote, walk, take. A walk returns the lanes of one rank: the first with jobs above :pos. If a take
# returns too few, the same lanes are read again without a quota, then the next rank. In SQLite, LIMIT cannot use a
# column, so walk and take are two statements.
LITE_PROBE = "(SELECT j.lane FROM jobs j WHERE j.ready = 1 AND j.lane > {} AND j.lane <= {} ORDER BY j.lane LIMIT 1)"
LITE_RUNS = "w.lane >> 31 & 16777215 IN (SELECT value FROM json_each(:groups))"
LITE_NEXT = f"""CASE WHEN {LITE_RUNS} THEN w.lane ELSE coalesce((
    (SELECT min(value) FROM json_each(:groups) WHERE value > w.lane >> 31 & 16777215) << 31 | (w.lane >> 55 << 55)) - 1,
    w.lane | 36028797018963967) END"""
LITE_WALK = f"""WITH RECURSIVE first(lane) AS (
  SELECT {LITE_PROBE.format(":pos", "9223372036854775807")}
  UNION ALL SELECT {LITE_PROBE.format(LITE_NEXT, "9223372036854775807")}
  FROM first w WHERE w.lane IS NOT NULL AND NOT {LITE_RUNS}
), top(start, turn) AS MATERIALIZED (
  SELECT (w.lane >> 55 << 55) - 1, coalesce((SELECT max(value) FROM json_each(:cursors)
    WHERE value >> 55 = w.lane >> 55), (w.lane >> 55 << 55) - 1) FROM first w WHERE {LITE_RUNS}
), lap1(lane) AS (
  SELECT {LITE_PROBE.format("t.turn", "t.start + 36028797018963968")} FROM top t
  UNION ALL SELECT {LITE_PROBE.format(LITE_NEXT, "w.lane | 36028797018963967")} FROM lap1 w WHERE w.lane IS NOT NULL
), lap2(lane) AS (
  SELECT {LITE_PROBE.format("t.start", "t.turn")} FROM top t
  UNION ALL SELECT {LITE_PROBE.format(LITE_NEXT, "(SELECT t.turn FROM top t)")} FROM lap2 w WHERE w.lane IS NOT NULL
) SELECT w.lane FROM (SELECT lane FROM lap1 UNION ALL SELECT lane FROM lap2) w WHERE {LITE_RUNS} LIMIT :wanted"""
LITE_SET = """UPDATE jobs SET phase = 'leased', status = 'running', ready = 0, version = version + 1, token = :token,
 lease_until = :now + 30000000 WHERE rowid IN ({}) RETURNING id, lane, due_at"""
LITE_TAKE = LITE_SET.format("""SELECT k.rowid FROM json_each(:lanes) l CROSS JOIN jobs k WHERE k.rowid IN (
 SELECT j.rowid FROM jobs j WHERE j.ready = 1 AND j.lane = l.value ORDER BY j.due_at, j.id LIMIT :quota)
 LIMIT :wanted""")
LITE_PROMOTE = """UPDATE jobs SET ready = 1 WHERE rowid IN (SELECT rowid FROM jobs WHERE ready = 0
 AND phase = 'claimable' AND phase IN ('claimable', 'blocked') AND due_at <= :now LIMIT :wanted)"""
LITE_SETTLE = """UPDATE jobs SET phase = 'final', status = 'succeeded', version = version + 1, token = NULL,
 lease_until = NULL WHERE id IN (SELECT value FROM json_each(:ids)) AND token = :token"""
LITE_PICK = {
    "flat": LITE_SET.format("""SELECT j.rowid FROM jobs j WHERE j.phase = 'claimable' AND j.queue = :queue
 AND j.job_type IN (SELECT value FROM json_each(:types)) AND j.tenant NOT IN (SELECT value FROM json_each(:paused))
 AND j.due_at <= :now ORDER BY j.priority DESC, j.due_at, j.id LIMIT :wanted"""),
    "type": LITE_SET.format("""SELECT k.rowid FROM json_each(:types) t CROSS JOIN jobs k WHERE k.rowid IN (
 SELECT j.rowid FROM jobs j WHERE j.phase = 'claimable' AND j.queue = :queue AND j.job_type = t.value
 AND j.tenant NOT IN (SELECT value FROM json_each(:paused)) AND j.due_at <= :now
 ORDER BY j.priority DESC, j.due_at, j.id LIMIT :wanted) ORDER BY k.priority DESC, k.due_at, k.id LIMIT :wanted"""),
}
PG = {
    "lanes": PG_PROMOTE + PG_WALK,
    "flat": PG_PICK.format(types="", this="ANY ($6::text[])"),
    "type": PG_PICK.format(types="CROSS JOIN unnest($6::text[]) t(job_type)", this="t.job_type"),
}


class SqliteDesign:
    """One design in one SQLite file."""

    def __init__(self, design: str, folder: str) -> None:
        self.design, self.db = design, apsw.Connection(os.path.join(folder, f"{design}.db"))
        # Without it, SQLite recompiles a statement if a bound value could change its plan: 0.35 ms per walk.
        self.db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        self.db.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -65536")

    def clock(self) -> int:
        return time.process_time_ns()

    async def load(self, scenario: Scenario) -> None:
        self.ids, self.cursors, start = [], {}, 0
        self.db.execute("DROP TABLE IF EXISTS jobs;" + TABLE.format(uuid="text") + "; BEGIN")
        for f in scenario.fills:
            count = f"WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s LIMIT {f.count})"
            key, rank, ready = f"printf('%032x', i + {start})", 100 - f.priority, int(f.due < NOW)
            self.db.execute(FILL.format(f=f, id=key, rank=rank, ready=ready, series=f"({count} SELECT i FROM s)"))
            start += f.count
        index = INDEXES[self.design].replace("NOT ready", "ready = 0").replace("WHERE ready;", "WHERE ready = 1;")
        self.db.execute(index + "; COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")

    async def settle_and_claim(self, now: int) -> list[Any]:
        p = {"now": now, "token": TOKEN, "ids": json.dumps(self.ids), "wanted": BATCH, "queue": "main"}
        self.db.execute("BEGIN IMMEDIATE")
        if self.ids:
            self.db.execute(LITE_SETTLE, p)
        if self.design in LITE_PICK:
            p |= {"types": json.dumps([f"t{g}" for g in GROUPS]), "paused": "[]"}
            rows = self.db.execute(LITE_PICK[self.design], p).fetchall()
        else:
            self.db.execute(LITE_PROMOTE, p)
            rows = self.claim(p)
        self.db.execute("COMMIT")
        self.ids = [row[0] for row in rows]
        return rows

    def claim(self, p: dict[str, Any]) -> list[Any]:
        rows: list[Any] = []
        p |= {"groups": json.dumps(GROUPS), "cursors": json.dumps(list(self.cursors.values())), "pos": -1}
        while len(rows) < BATCH:
            p["wanted"] = BATCH - len(rows)
            lanes = [lane for (lane,) in self.db.execute(LITE_WALK, p)]
            if not lanes:
                break
            p |= {"lanes": json.dumps(lanes), "pos": lanes[0] | (1 << 55) - 1}
            for quota in (-(-p["wanted"] // len(lanes)), BATCH)[
                : len(lanes)
            ]:  # second pass if some lanes had fewer jobs than the quota
                p |= {"quota": quota, "wanted": BATCH - len(rows)}
                rows += self.db.execute(LITE_TAKE, p).fetchall() if p["wanted"] else []
            served = {
                row[1] for row in rows
            }  # a full batch may end before the last lane; the next claim starts after the last one served
            self.cursors[lanes[0] >> 55] = [lane for lane in lanes if lane in served][-1]
        return rows


class PostgresDesign:
    """One design in one Postgres schema."""

    def __init__(self, design: str, con: asyncpg.Connection) -> None:
        self.design, self.con, self.floors = design, con, None
        self.sql = PG_SETTLE + PG[design] + PG_CLAIM
        self.stat = f"/proc/{con.get_server_pid()}/schedstat"

    def clock(self) -> int:
        with open(self.stat) as file:
            return time.process_time_ns() + int(file.read().split()[0])

    async def load(self, scenario: Scenario) -> None:
        self.ids, self.cursors, start = [], {}, 0
        await self.con.execute(f"CREATE SCHEMA IF NOT EXISTS {self.design}; SET search_path = {self.design}")
        await self.con.execute(f"{PG_SETTINGS}; DROP TABLE IF EXISTS jobs;" + TABLE.format(uuid="uuid"))
        for f in scenario.fills:
            key, series = f"lpad(to_hex(i + {start}), 32, '0')::uuid", f"generate_series(1, {f.count}) i"
            await self.con.execute(FILL.format(f=f, id=key, rank=100 - f.priority, ready=f.due < NOW, series=series))
            start += f.count
        await self.con.execute(INDEXES[self.design])
        await self.con.execute("VACUUM ANALYZE jobs")

    async def settle_and_claim(self, now: int) -> list[Any]:
        rest: list[Any] = [["main"], [f"t{g}" for g in GROUPS], []]
        if self.design == "lanes":
            held = [(lane, *floor) for lane, floor in (self.floors or {}).items()]
            rest = [GROUPS, list(self.cursors.values()), *([f[n] for f in held] for n in range(3))]
        records = await self.con.fetch(self.sql, self.ids, TOKEN, now, BATCH, *rest)
        rows = sorted((tuple(record) for record in records), key=lambda row: (row[3], row[2], row[0]))
        self.ids = [row[0] for row in rows]
        self.cursors |= {row[1] >> 55: row[1] for row in rows}
        if self.floors is not None:  # the lowest (due_at, id) of the last batch
            self.floors |= {row[1]: (row[2], row[0]) for row in reversed(rows)}
        return rows


async def measure(contestants: list[Any], scenario: Scenario, batches: int) -> tuple[dict[str, float], dict[str, int]]:
    """CPU microseconds per job for each design, and after how many batches the scenario's last job is claimed."""
    took: dict[str, list[float]] = {c.design: [] for c in contestants}
    total = sum(f.count for f in scenario.fills)
    late = {c.design: -(-total // BATCH) for c in contestants}  # flat and type claim it last
    for c in contestants:
        await c.load(scenario)
    for number in range(ROUNDS + 1):  # the first is a warm-up
        spent: dict[str, list[float]] = {c.design: [] for c in contestants}
        for c in contestants * (batches if number else 3):  # the designs alternate batch by batch
            begin, jobs = c.clock(), len(await c.settle_and_claim(scenario.now))
            spent[c.design].append((c.clock() - begin) / 1000 / max(jobs, 1))
        for design, times in spent.items():
            took[design].append(statistics.median(times))
    if "S4" in scenario.name:
        await contestants[0].load(scenario)
        late["lanes"] = 0
        while f"{total:032x}" not in {str(i).replace("-", "") for i in contestants[0].ids}:
            late["lanes"] += bool(await contestants[0].settle_and_claim(scenario.now))
    return {design: statistics.median(times[1:]) for design, times in took.items()}, late


async def snapshot(con: asyncpg.Connection, other: asyncpg.Connection, count: int) -> None:
    """S6: one lane is drained while another session holds a snapshot, so dead index entries cannot be removed."""
    print(f"\nS6 Postgres, {count:,} jobs of one lane drained, CPU µs per job: all, last tenth")
    for name, held, floor in (("no snapshot", 0, 0), ("snapshot", 1, 0), ("snapshot, floors", 1, 1)):
        post = PostgresDesign("lanes", con)
        await post.load(Scenario("", [Fill(count)]))
        await other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM pg_class" if held else "BEGIN")
        marks, floors_cleared = [post.clock()], time.monotonic()
        post.floors = {} if floor else None
        while await post.settle_and_claim(NOW):
            marks.append(post.clock())
            if floor and time.monotonic() - floors_cleared > 1:  # a job may be committed late, below the floor
                post.floors, floors_cleared = {}, time.monotonic()
        await other.execute("ROLLBACK")
        done, tenth = len(marks) - 1, len(marks) // 10
        costs = [(marks[-1] - marks[-1 - n]) / 1000 / n / BATCH for n in (done, tenth)]
        print(f"  {name:20}{costs[0]:9.1f}{costs[1]:9.1f}   ({done * BATCH:,} jobs)", flush=True)


async def plans(con: asyncpg.Connection, lite: SqliteDesign, full: Scenario) -> None:
    """Print plan nodes of the lanes design that are not index probes, for different states of the table statistics."""
    print("\nPlan nodes that are not index probes, lanes design, generic plans")
    post = PostgresDesign("lanes", con)
    bad = re.compile(r"Seq Scan on jobs|Bitmap Heap|Sort Key: jobs|Sort Key: j_\d|(?:Hash|Merge) Join")
    fresh = "DROP TABLE jobs;" + TABLE.format(uuid="uuid") + ";" + INDEXES["lanes"]
    states = (("empty, vacuumed", Scenario("", []), ""), ("empty, new", Scenario("", []), fresh), ("full", full, ""))
    for state, scenario, after in states:
        await post.load(scenario)
        await con.execute(after or "SELECT 1")
        for name, setup in (("settings", ""), ("defaults", "RESET ALL; SET search_path = lanes;")):
            types = "uuid[], uuid, bigint, int, bigint[], bigint[], bigint[], bigint[], uuid[]"
            await con.execute(f"{setup} SET plan_cache_mode = force_generic_plan; PREPARE q({types}) AS {post.sql}")
            args = f"'{{}}', '{TOKEN}', {NOW}, 100, '{{10}}', '{{}}', '{{}}', '{{}}', '{{}}'"
            nodes = bad.findall("\n".join(row[0] for row in await con.fetch(f"EXPLAIN EXECUTE q({args})")))
            await con.execute("DEALLOCATE q")
            print(f"  Postgres  {state:18}{name:12}{', '.join(sorted(set(nodes))) or 'none'}")
    for state, scenario, after in (("empty", Scenario("", []), ""), ("full", full, ""), ("analyzed", full, "ANALYZE")):
        await lite.load(scenario)
        lite.db.execute(after)
        nodes = []
        for sql in (LITE_PROMOTE, LITE_WALK, LITE_TAKE, LITE_SETTLE):
            lines = lite.db.execute("EXPLAIN QUERY PLAN " + sql, dict.fromkeys(re.findall(r":(\w+)", sql), "[]"))
            nodes += [row[3] for row in lines if re.match(r"SCAN (j|k|jobs)\b|USE TEMP", row[3])]
        print(f"  SQLite    {state:30}{', '.join(nodes) or 'none'}")


async def table(title: str, contestants: list[Any], quick: bool) -> None:
    all_scenarios = scenarios(30_000, 30_000) if quick else scenarios(300_000, 1_000_000)
    base, _ = await measure(contestants, all_scenarios[0], 10)  # warm-up
    print(f"\n{title}: CPU µs per job (times S0 of the same design)")
    print(f"  {'':40}" + "".join(f"{design:>18}" for design in base))
    for scenario in all_scenarios:
        took, late = await measure(contestants, scenario, 10 if quick else 30)
        base = took if scenario is all_scenarios[0] else base
        cells = "".join(f"{f'{t:,.1f} ({t / base[d]:,.2f})':>18}" for d, t in took.items())
        print(f"  {scenario.name:40}{cells}", flush=True)
        if "S4" in scenario.name:
            print(f"  {'   batches until the late job':40}" + "".join(f"{n:>18,}" for n in late.values()))


def tool(folder: str, name: str, *args: str) -> None:
    """Run a Postgres program; as user nobody if this is root, because Postgres refuses to run as root."""
    user: dict[str, Any] = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.getuid() == 0 else {}
    path = os.path.join(os.path.dirname(os.path.realpath(shutil.which("initdb") or "initdb")), name)
    if args[-1] != "stop" or os.path.exists(os.path.join(folder, "pg", "postmaster.pid")):
        subprocess.run([path, "-D", "pg", *args], cwd=folder, stdout=subprocess.DEVNULL, check=True, **user)


async def main(quick: bool) -> None:
    begin, folder = time.perf_counter(), tempfile.mkdtemp(prefix="detent-")
    shutil.chown(folder, "nobody" if os.getuid() == 0 else os.getuid())
    settings = "-c shared_buffers=512MB -c max_wal_size=8GB -c autovacuum=off -c jit=off -c listen_addresses=''"
    try:
        lites = [SqliteDesign(design, folder) for design in INDEXES]
        await table("SQLite", lites, quick)
        tool(folder, "initdb", "-A", "trust", "-U", "bench")
        tool(folder, "pg_ctl", "-l", "log", "-o", f"-k {folder} {settings}", "start")
        cons = [await asyncpg.connect(host=folder, user="bench", database="postgres") for _ in INDEXES]
        await table("Postgres", [PostgresDesign(d, con) for d, con in zip(INDEXES, cons, strict=True)], quick)
        await snapshot(cons[0], cons[1], 20_000 if quick else 100_000)
        await plans(
            cons[0], lites[0], Scenario("", [Fill(50_000), Fill(5_000, party="i + 10"), Fill(50_000, due=SOON)])
        )
    finally:
        tool(folder, "pg_ctl", "-m", "immediate", "stop")
        shutil.rmtree(folder)
    print(f"\n{time.perf_counter() - begin:.0f} s in all")


if __name__ == "__main__":
    asyncio.run(main(quick="--quick" in sys.argv[1:]))  # a tenth of the data, ten batches a round
