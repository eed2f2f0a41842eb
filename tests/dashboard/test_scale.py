"""Drills: a million jobs behind every page, a hundred thousand events before one that stays open."""

import json
import time
from pathlib import Path
from typing import Any

import apsw
import pytest
from playwright.sync_api import Browser, Page, expect

from dashboard.site import Site, addresses, settled, site

pytestmark = pytest.mark.drill
JOBS = 1_000_000
BATCH = 1_000
EVENTS = 100_000
SLOWEST_MS = 300.0


def fill(path: Path, job: dict[str, Any], jobs: int) -> None:
    """Copies of one finished job with its events, past the engine: a million of them in a minute."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA synchronous = OFF; PRAGMA cache_size = -200000")
    columns = [row[1] for row in connection.execute("PRAGMA table_info(jobs)")]
    others = ", ".join(name for name in columns if name not in ("id", "created_at", "updated_at"))
    made = "substr('0000000' || printf('%x', value), -8) || substr(:id, 9)"
    numbers = "WITH RECURSIVE n (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < :jobs)"
    with connection:
        connection.execute(
            f"{numbers} INSERT INTO jobs (id, created_at, updated_at, {others}) SELECT {made},"
            f" created_at - value * 100, updated_at - value * 100, {others} FROM n, jobs WHERE jobs.id = :id",
            {"id": job["id"], "jobs": jobs},
        )
        connection.execute(
            f"{numbers} INSERT INTO events (job_id, seq, event, source, target, at, actor, execution_no, retries, lane)"
            f" SELECT {made}, seq, event, source, target, at - value * 100, actor, execution_no, retries, lane"
            " FROM n, events WHERE events.job_id = :id",
            {"id": job["id"], "jobs": jobs},
        )
    connection.close()


def answers(page: Page) -> list[dict[str, Any]]:
    """Everything the page asked the server for, and how long each answer took; the stream is no answer."""
    timed: list[dict[str, Any]] = json.loads(
        page.evaluate(
            """() => JSON.stringify(["navigation", "resource"].flatMap((kind) => performance.getEntriesByType(kind))
              .filter((one) => !one.name.includes("/events/stream"))
              .map((one) => ({name: one.name, ms: one.responseEnd - one.requestStart})))"""
        )
    )
    return timed


def test_every_page_answers_at_once_with_a_million_jobs(browser: Browser, tmp_path: Path) -> None:
    with site(tmp_path, browser) as running:
        job = running.ended(running.submit("mail", {"to": "x"}, queue="mail"))
        paths = addresses(running)
        fill(tmp_path / "pages.db", job, JOBS)
        paths["filtered"] = "jobs?q=phase%3Aleased"
        paths["by status"] = "jobs?q=queue%3Aorders%20status%3Aqueued"
        page = running.signed_in("boss", "")
        expect(page.locator(".tile b").first).not_to_have_text("…", timeout=120_000)
        slow = {}
        for name, path in paths.items():
            best: dict[str, float] = {}
            for _ in range(3):
                page.goto(f"{running.at}/{path}")
                settled(page)
                for one in answers(page):
                    best[one["name"]] = min(best.get(one["name"], 1e9), one["ms"])
            slow |= {f"{name}: {at}": ms for at, ms in best.items() if ms >= SLOWEST_MS}
        assert slow == {}


def test_memory_is_flat_over_a_hundred_thousand_events(browser: Browser, tmp_path: Path) -> None:
    with site(tmp_path, browser) as running:
        page = running.signed_in("boss", "jobs")
        session = page.context.new_cdp_session(page)
        submitted = _flood(running, EVENTS // 10)
        first = _heap(session, page, submitted)
        submitted += _flood(running, EVENTS - submitted * 2)
        last = _heap(session, page, submitted)
        assert last < first * 1.2 + 1_000_000, (first, last)


def _flood(running: Site, events: int) -> int:
    """So many events: each job is created and cancelled."""
    made = 0
    running.call("POST", "queues/flood/pause", {})
    while made * 2 < events:
        jobs = [{"job_type": "nobody", "queue": "flood"}] * BATCH
        running.call("POST", "jobs/bulk", {"jobs": jobs})
        made += BATCH
    cursor = None
    while True:
        told = running.call("POST", "bulk/cancel", {"queue": "flood", "dry_run": False, "cursor": cursor})
        cursor = told["next_cursor"]
        if cursor is None:
            return made


def _heap(session: Any, page: Page, _: int) -> float:
    """Used bytes after the page has seen everything and garbage was collected."""
    deadline = time.monotonic() + 60
    while page.evaluate("document.querySelectorAll('tbody tr').length") == 0 and time.monotonic() < deadline:
        page.wait_for_timeout(100)
    page.wait_for_timeout(3000)
    session.send("HeapProfiler.collectGarbage")
    return float(session.send("Runtime.getHeapUsage")["usedSize"])
