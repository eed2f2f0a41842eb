"""What operators do to many things at once, to schedules and to workers, done in a browser."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

from playwright.sync_api import Locator, Page, expect

from dashboard.site import SIDE_HANDLERS, Site, environment, untroubled


def confirm(page: Page, **filled: str) -> None:
    """Fill the open dialog and say yes."""
    for name, value in filled.items():
        page.fill(f"dialog [name={name}]", value)
    page.click("dialog button[type=submit]")


def said(page: Page) -> Locator:
    return page.locator(".toast").last


def row(page: Page, text: str) -> Locator:
    return page.locator("tbody tr", has_text=text)


def schedule(here: Site, name: str) -> dict[str, Any]:
    found: dict[str, Any] = here.call("GET", f"schedules/{name}")
    return found


def test_a_schedule_is_added_edited_paused_and_removed(here: Site) -> None:
    page = here.signed_in("ana", "schedules", timezone_id="Asia/Shanghai")
    page.click("text=Add a schedule")
    page.fill("dialog [name=name]", "digest")
    page.fill("dialog [name=job_type]", "mail")
    page.fill("dialog [name=value]", "not a cron line")
    page.locator("dialog [name=value]").blur()
    expect(page.locator("dialog [role=status]").first).to_contain_text("cron")
    page.click("dialog button[type=submit]")
    expect(page.locator("dialog .trouble[role=alert]")).to_contain_text("SCHEDULE_INVALID")
    page.fill("dialog [name=value]", "0 3 * * *")
    page.locator("dialog [name=value]").blur()
    expect(page.locator("dialog [role=status]").first).to_contain_text("03:00:00")
    page.fill("dialog textarea.json", '{"to": "everyone"}')
    page.click("dialog button[type=submit]")
    expect(said(page)).to_have_text("digest is added.×")
    mine = row(page, "digest")
    expect(mine).to_contain_text("0 3 * * *")
    made = schedule(here, "digest")
    assert (made["timezone"], made["payload"]) == ("Asia/Shanghai", {"to": "everyone"})

    mine.locator("[data-act=edit]").click()
    expect(page.locator("dialog textarea.json")).to_have_value('{\n  "to": "everyone"\n}')
    page.select_option("dialog [name=kind]", "every")
    page.fill("dialog textarea.json", '{"to": "nobody"}')
    confirm(page, value="90m", queue="post", reason="more often")
    expect(mine).to_contain_text("post")
    changed = schedule(here, "digest")
    assert (changed["schedule_type"], changed["payload"], changed["queue"]) == ("every", {"to": "nobody"}, "post")
    assert changed["next_fire_at"] != made["next_fire_at"]

    mine.locator("[data-act=pause]").click()
    confirm(page, reason="holidays")
    expect(mine).to_contain_text("paused")
    assert schedule(here, "digest")["paused"]
    mine.locator("[data-act=resume]").click()
    expect(mine).to_contain_text("active")
    mine.locator("button.plain").click()
    expect(page.locator("dialog ol li")).to_have_count(20)
    page.click("dialog >> text=Close")
    mine.locator("[data-act=remove]").click()
    confirm(page, typed="digest")
    expect(mine).to_have_count(0)
    audit = here.call("GET", "audit?limit=20")["items"]
    acts = [(one["act"], one["actor"], one["reason"]) for one in audit if one["subject"] == made["id"]]
    assert acts == [
        ("schedule.remove", "ana", None),
        ("schedule.resume", "ana", None),
        ("schedule.pause", "ana", "holidays"),
        ("schedule.edit", "ana", "more often"),
        ("schedule.add", "ana", None),
    ]
    untroubled(page)


def test_what_somebody_else_changed_meanwhile_is_not_written_over(here: Site) -> None:
    here.call("POST", "schedules", {"name": "twice", "job_type": "mail", "every": "1h"})
    page = here.signed_in("ana", "schedules")
    row(page, "twice").locator("[data-act=edit]").click()
    here.call("PATCH", "schedules/twice", {"every": "2h"})
    confirm(page, value="3h")
    expect(page.locator("dialog .trouble[role=alert]")).to_contain_text("VERSION_CONFLICT")
    assert schedule(here, "twice")["expression"] == "2h"


def test_a_backfill_says_how_many_before_it_makes_them(here: Site) -> None:
    plan = {"name": "hourly", "job_type": "mail", "cron": "0 * * * *", "payload": {"to": "x"}, "queue": "past"}
    here.call("POST", "schedules", plan)
    page = here.signed_in("ana", "schedules", timezone_id="Asia/Shanghai")
    end = (datetime.now(UTC) - timedelta(days=1)).replace(minute=30)
    local = [(end + timedelta(hours=8) - timedelta(hours=back)).strftime("%Y-%m-%dT%H:%M") for back in (5, 0)]
    mine = row(page, "hourly")
    mine.locator("[data-act=backfill]").click()
    confirm(page, first=local[1], last=local[0])
    expect(page.locator("dialog .trouble[role=alert]")).to_contain_text("earlier moment to a later one")
    confirm(page, first=local[0], last=local[1])
    expect(page.locator("dialog h2")).to_have_text("Make 5 jobs for hourly?")
    assert here.call("GET", "jobs?queue=past")["jobs"] == []
    confirm(page, reason="the outage")
    expect(said(page)).to_contain_text("5 jobs made.")
    assert len(here.call("GET", "jobs?queue=past")["jobs"]) == 5
    mine.locator("[data-act=backfill]").click()
    confirm(page, first=local[0], last=local[1])
    expect(said(page)).to_contain_text("Nothing to make up for")
    expect(page.locator("dialog")).to_have_count(0)
    untroubled(page)


def failed(here: Site, number: int, queue: str, **more: Any) -> list[str]:
    jobs = [{"job_type": "charge", "payload": {"card": "bad"}, "queue": queue, **more} for _ in range(number)]
    ids = [one["job"]["id"] for one in here.call("POST", "jobs/bulk", {"jobs": jobs})["items"]]
    return [here.ended(one)["id"] for one in ids]


def test_dead_letters_by_the_dozen(here: Site) -> None:
    failed(here, 2, "two-eyes", contract="streams", max_retries=0)
    failed(here, 1, "two-eyes", contract="gate-b2")
    page = here.signed_in("ana", "dead-letters?q=queue:two-eyes")
    expect(page.locator("tbody tr")).to_have_count(3)
    page.click("[data-act=discard-all]")
    expect(page.locator("dialog h2")).to_have_text("Discard 2 dead letters")
    expect(page.locator("dialog p").first).to_contain_text("One more asks for two people")
    page.click("dialog button[type=submit]")
    expect(page.locator("dialog")).to_have_count(1)  # a reason is needed
    confirm(page, reason="test cards")
    expect(said(page)).to_contain_text("2 done.")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.click("[data-act=discard-all]")
    expect(said(page)).to_contain_text("None of these can be done at once.")
    page.click("[data-act=requeue-all]")
    expect(page.locator("dialog h2")).to_have_text("Requeue one dead letter")
    confirm(page, reason="once more")
    expect(said(page)).to_contain_text("1 done.")
    dead_letters = here.call("GET", "dlq/items?queue=two-eyes")["items"]
    fates = sorted(one["status"] for one in dead_letters)
    assert fates.count("discarded") == 2 and fates.count("requeued") == 1
    page.click("[data-fate=discarded]")
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.locator("[data-act=discard-all]")).not_to_be_visible()
    untroubled(page)


def test_many_are_requeued_after_the_number_is_typed(here: Site) -> None:
    here.call("POST", "queues/tide/pause", {})
    jobs = [{"job_type": "mail", "payload": {"to": str(n)}, "queue": "tide"} for n in range(1002)]
    for start in (0, 1000):
        here.call("POST", "jobs/bulk", {"jobs": jobs[start : start + 1000]})
    body: dict[str, Any] = {"queue": "tide", "dry_run": False}
    while body.get("cursor") or "cursor" not in body:
        body["cursor"] = here.call("POST", "bulk/cancel", body)["next_cursor"]
    page = here.signed_in("ana", "jobs?q=queue:tide phase:final")
    page.locator("tbody input[type=checkbox]").nth(0).check()
    page.locator("tbody input[type=checkbox]").nth(1).check()
    page.click(".selection >> text=Requeue")
    expect(page.locator("dialog h2")).to_have_text("Requeue 2 jobs")
    expect(page.locator("dialog [name=typed]")).to_have_count(0)
    confirm(page)
    expect(said(page)).to_contain_text("2 requeued as new jobs.")
    page.click(".selection >> text=Requeue")
    expect(page.locator("dialog h2")).to_have_text("Requeue 1,002 jobs")
    button = page.locator("dialog button[type=submit]")
    page.fill("dialog [name=typed]", "1,002")
    expect(button).to_be_disabled()
    confirm(page, typed="1002")
    expect(said(page)).to_contain_text("1,002 requeued as new jobs.")
    found = here.call("POST", "bulk/cancel", {"queue": "tide", "phase": "claimable", "dry_run": True})
    assert found["matched"] == 1004
    page.click(".selection >> text=Cancel")
    expect(said(page)).to_contain_text("None of these 1,002 can be cancelled")
    untroubled(page)


def test_a_worker_is_drained(here: Site) -> None:
    """It is told while it holds a job, ends that one, and then itself."""
    door = here.folder / "drained"
    command = [sys.executable, "-m", "detent", "worker", f"{SIDE_HANDLERS}:app", "--url", here.url]
    command += ["--lease-seconds", "4"]  # it looks for orders as often as it extends its leases
    job = here.submit("aside", {"door": str(door)}, queue="aside")
    with (here.folder / "worker.log").open("w") as log:
        worker = subprocess.Popen(command, cwd=here.folder, env=environment(), stdout=log, stderr=log)
    try:
        page = here.signed_in("ana", "workers")
        mine = row(page, "aside")
        expect(mine).to_contain_text("1 / ")
        expect(mine.locator(".badge")).to_have_text("working")
        mine.locator("[data-act=drain]").click()
        confirm(page, reason="a new release")
        expect(said(page)).to_contain_text("has been told")
        expect(mine).to_contain_text("ana")
        expect(mine.locator("[data-act]")).to_have_count(0)
        expect(mine.locator(".badge")).to_have_text("draining")
        assert worker.poll() is None and here.call("GET", f"jobs/{job}")["phase"] == "leased"
        door.touch()
        assert worker.wait(30) == 0
        assert here.call("GET", f"jobs/{job}")["result"] == "passed"
        expect(row(page, "1 / ")).to_have_count(0)
    finally:
        worker.kill()
        worker.wait(30)
    untroubled(page)
