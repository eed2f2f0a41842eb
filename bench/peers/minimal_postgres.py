"""A minimal Postgres queue as a baseline: a small row and three events per job, one statement to settle and claim."""

from typing import Any

import asyncpg

from .counting import handled
from .protocol import URL, Peer, wait_for_signal

CALLERS = 16
CLAIMED_AT_ONCE = 100
SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, task text NOT NULL, payload text NOT NULL,
  state smallint NOT NULL DEFAULT 0, due_at timestamptz NOT NULL DEFAULT now(), attempt integer NOT NULL DEFAULT 0,
  worker text, lease_until timestamptz, finished_at timestamptz);
CREATE INDEX IF NOT EXISTS jobs_ready ON jobs (due_at, id) WHERE state = 0;
CREATE TABLE IF NOT EXISTS events (
  job_id bigint NOT NULL, seq integer NOT NULL, event text NOT NULL, at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (job_id, seq));
"""
ENQUEUE = """
WITH made AS (INSERT INTO jobs (task, payload) SELECT 'noop', p FROM unnest($1::text[]) p RETURNING id)
INSERT INTO events (job_id, seq, event) SELECT id, 1, 'made' FROM made"""
SETTLE_AND_CLAIM = """
WITH held AS MATERIALIZED (
  SELECT j.ctid AS at FROM unnest($1::bigint[]) i (id) CROSS JOIN LATERAL (
    SELECT ctid FROM jobs WHERE id = i.id OFFSET 0 FOR UPDATE SKIP LOCKED) j
), ended AS (
  UPDATE jobs j SET state = 2, finished_at = now(), lease_until = NULL FROM held h WHERE j.ctid = h.at RETURNING j.id
), picked AS MATERIALIZED (
  SELECT ctid AS at FROM jobs WHERE state = 0 AND due_at <= now() ORDER BY due_at, id LIMIT $2 FOR UPDATE SKIP LOCKED
), claimed AS (
  UPDATE jobs j SET state = 1, attempt = attempt + 1, worker = 'raw', lease_until = now() + interval '30 s'
  FROM picked p WHERE j.ctid = p.at RETURNING j.id, j.task, j.payload, j.attempt
), logged AS (
  INSERT INTO events (job_id, seq, event)
  SELECT id, 3, 'ended' FROM ended UNION ALL SELECT id, 2, 'claimed' FROM claimed
)
SELECT * FROM claimed"""
SETTINGS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}
"""The settings Detent uses: the planner chooses index scans whatever the statistics are."""


class MinimalPostgres(Peer):
    """A baseline for Detent's tables: the same commits with much smaller rows."""

    bulk = True

    async def open(self) -> None:
        self.connections = [await asyncpg.connect(URL) for _ in range(CALLERS)]
        await self.connections[0].execute(SCHEMA)

    async def reset(self) -> None:
        await self.connections[0].execute("TRUNCATE jobs, events RESTART IDENTITY")

    async def enqueue(self, caller: int) -> None:
        await self.connections[caller].execute(ENQUEUE, ["{}"])

    async def enqueue_batch(self, jobs: int) -> None:
        await self.connections[0].execute(ENQUEUE, ["{}"] * jobs)

    async def remaining(self) -> int:
        return int(await self.connections[0].fetchval("SELECT count(*) FROM jobs WHERE state < 2"))

    async def close(self) -> None:
        for connection in self.connections:
            await connection.close()

    async def work(self) -> None:
        connection: Any = await asyncpg.connect(URL, server_settings=SETTINGS)
        settle_and_claim = await connection.prepare(SETTLE_AND_CLAIM)
        rows = await settle_and_claim.fetch([], CLAIMED_AT_ONCE)
        while rows:
            ids = sorted(row[0] for row in rows)
            handled(len(ids))
            rows = await settle_and_claim.fetch(ids, CLAIMED_AT_ONCE)
        await connection.close()
        wait_for_signal()


PEER = MinimalPostgres
