"""The raw limit on SQLite: Detent's own tables and SQL in a bare loop, no engine, no handler."""

import json
import time
from pathlib import Path

import apsw

from detent.core.contracts import CONTRACTS
from detent.core.times import SECOND
from detent.ids import RandomIds
from detent.stores.sqlite.migrate import ensure_schema, register
from detent.stores.sqlite.session import connect
from detent.stores.sqlite.tx import SQL

from .harness import Readings

NAME = "raw SQL"
INCLUDES = "the same tables, SQL and fsync, two events a job; no engine, no handler call"


def prepare(path: Path) -> apsw.Connection:
    connection = connect(str(path), "FULL")
    ensure_schema(connection, may_migrate=True)
    register(connection, {}, CONTRACTS)
    return connection


def drain(path: Path, jobs: int, batch: int, readings: Readings) -> None:
    """Claim and finish `jobs` jobs that are already there, fused: finish k and claim k+1 in one transaction."""
    connection = prepare(path)
    contract = CONTRACTS["standard"]
    lane = connection.execute(SQL["walk_lanes"], {"from": 0, "hops": 1}).fetchall()[0][0]
    claim = next(e for e in contract.edges if e.event == "job.claimed")
    succeed = next(e for e in contract.edges if e.event == "job.succeeded")
    held: dict[str, str] = {}
    done = 0
    started = time.perf_counter()
    while True:
        now = time.time_ns() // 1_000
        connection.execute("BEGIN IMMEDIATE")
        if held:
            told = {"held": json.dumps(held), "source": succeed.source, "contract": contract.name, "now": now}
            told |= {"target": succeed.target, "event": succeed.event}
            connection.execute(SQL["succeed_events"], told)
            connection.execute(SQL["succeed_jobs"], told)
            done += len(held)
        ids = [row[0] for row in connection.execute(SQL["pick_lane"], (lane, batch)).fetchall()]
        if ids:
            told = {"ids": json.dumps(ids), "event": claim.event, "target": claim.target, "now": now}
            told |= {"worker": "raw", "token": f"t{done}", "lease": 30 * SECOND}
            connection.execute(SQL["claim_events"], told)
            connection.execute(SQL["claim_jobs"], told)
        connection.execute("COMMIT")
        held = dict.fromkeys(ids, f"t{done}")
        if not ids:
            break
    assert done == jobs, (done, jobs)
    readings.add("drain", NAME, done / (time.perf_counter() - started))
    connection.close()


def enqueue(path: Path, seconds: float, readings: Readings) -> None:
    """One row and one event a commit, fsync on."""
    connection = prepare(path)
    ids = RandomIds()
    columns = "id, contract, job_type, queue, tenant_id, status, phase, version, payload, created_at, updated_at, "
    columns += "due_at, ready, priority, limit_key, max_retries, execution_no, failures, retries, interruptions, "
    columns += "wait_parked, lane"
    insert = f"INSERT INTO jobs ({columns}) VALUES ({', '.join('?' * 22)})"
    status = CONTRACTS["standard"].edges[0].target
    count = 0
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        job_id, now = ids.job(), time.time_ns() // 1_000
        connection.execute("BEGIN IMMEDIATE")
        row = (job_id, "standard", "noop", "default", "default", status, "claimable", 1, "{}", now, now)
        connection.execute(insert, (*row, now, 1, 0, "", 3, 0, 0, 0, 0, 0, 1))
        event = (job_id, 1, "job.created", None, status, now, None, 0, 0, None)
        connection.execute(SQL["insert_event"], event)
        connection.execute("COMMIT")
        count += 1
    readings.add("enqueue one by one", NAME, count / (time.perf_counter() - started))
    connection.close()
