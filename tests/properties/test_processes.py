"""Two processes on one SQLite file: both work, none waits in vain, no job is held twice."""

import asyncio
import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import apsw
import pytest

import detent
from detent.engine import Engine, Submission
from detent.stores.sqlite.store import SqliteStore

SHARE = 20_000
NAMES = ("left", "right")
CLAIMER = Path(__file__).with_name("claimer.py")
SECONDS = 120


@pytest.mark.long
def test_two_processes_share_one_file(tmp_path: Path) -> None:
    path = str(tmp_path / "jobs.db")
    asyncio.run(submit(path, SHARE * len(NAMES)))
    claimers = {name: start(path, name) for name in NAMES}
    try:
        for claimer in claimers.values():
            assert claimer.stdout and claimer.stdout.readline() == "ready\n", claimer.communicate()
        for claimer in claimers.values():
            assert claimer.stdin
            claimer.stdin.write("go\n")
            claimer.stdin.flush()
        reports = {name: finish(claimer) for name, claimer in claimers.items()}
    finally:
        for claimer in claimers.values():
            claimer.kill()
            claimer.wait()
    check_told(reports)
    check_log(path)


async def submit(path: str, count: int) -> None:
    engine = Engine(SqliteStore(path, inline=True))
    await engine.open()
    for _ in range(count // 1_000):
        await engine.jobs.submit_many([Submission("noop") for _ in range(1_000)])
    await engine.close()


def start(path: str, name: str) -> "subprocess.Popen[str]":
    source = str(Path(detent.__file__ or "").parent.parent)
    return subprocess.Popen(
        [sys.executable, str(CLAIMER), path, name, str(SHARE)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
    )


def finish(claimer: "subprocess.Popen[str]") -> dict[str, Any]:
    out, err = claimer.communicate(timeout=SECONDS)
    assert "locked" not in out.lower() + err.lower(), err
    assert claimer.returncode == 0, err
    report: dict[str, Any] = json.loads(out)
    return report


def check_told(reports: dict[str, dict[str, Any]]) -> None:
    jobs = {name: {job_id for job_id, _ in report["claims"]} for name, report in reports.items()}
    tokens = {name: {token for _, token in report["claims"]} for name, report in reports.items()}
    left, right = NAMES
    assert [len(jobs[name]) for name in NAMES] == [len(reports[name]["claims"]) for name in NAMES] == [SHARE, SHARE]
    assert not jobs[left] & jobs[right], "a job was handed to both"
    assert not tokens[left] & tokens[right]
    assert [report["refused"] for report in reports.values()] == [0, 0]


def check_log(path: str) -> None:
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    select = connection.execute
    total = SHARE * len(NAMES)
    by_event = "SELECT event, count(*), count(DISTINCT job_id) FROM detent_event_list GROUP BY event ORDER BY event"
    assert select(by_event).fetchall() == [
        ("job.claimed", total, total),
        ("job.created", total, total),
        ("job.succeeded", total, total),
    ]
    assert select("SELECT status, version, count(*) FROM detent_job_list GROUP BY 1, 2").fetchall() == [
        ("succeeded", 3, total)
    ]
    another = """SELECT count(*) FROM detent_event_list c JOIN detent_event_list s USING (job_id)
      WHERE c.event = 'job.claimed' AND s.event = 'job.succeeded' AND c.actor <> s.actor"""
    assert select(another).get == 0, "settled by another than its holder"
    order = [row[0] for row in select("SELECT actor FROM detent_event_list WHERE event = 'job.claimed' ORDER BY n")]
    turns = sum(one != other for one, other in pairwise(order))
    assert set(order) == set(NAMES) and turns > 20, f"they hardly met: {turns} turns"
    assert select("SELECT count(*) FROM detent_notes").get == 0
    connection.close()
