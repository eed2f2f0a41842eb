"""Bulk actions, schedules and workers, operated in a browser."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from dashboard.site import Site, assert_no_errors, second_worker

IN_VIEW = """node => {
  const {left, top, width, height} = node.getBoundingClientRect();
  return node.contains(document.elementFromPoint(left + width / 2, top + height / 2));
}"""
"""Whether the middle of the element is on the screen, and nothing covers it."""


def submit_dialog(page: Page, **values: str) -> None:
    """Fill the fields of the open dialog and submit it."""
    for name, value in values.items():
        page.fill(f"dialog [name={name}]", value)
    page.click("dialog button[type=submit]")


def last_toast(page: Page) -> Locator:
    return page.locator(".toast").last


def row(page: Page, text: str) -> Locator:
    return page.locator("tbody tr", has_text=text)


def schedule(site: Site, name: str) -> dict[str, Any]:
    answer: dict[str, Any] = site.call("GET", f"schedules/{name}")
    return answer


def test_another_type_of_a_schedule_keeps_the_digits_of_its_payload(site: Site) -> None:
    payload = {"id": 2**63 - 1}
    site.call("POST", "schedules", {"name": "digits", "job_type": "one", "cron": "0 3 * * *", "payload": payload})
    page = site.sign_in("ana", "schedules?q=digits")
    page.click("[data-action=edit]")
    page.fill("dialog [name=job_type]", "mail")
    page.press("dialog [name=job_type]", "Tab")
    expect(page.locator("dialog [name=queue]")).to_have_attribute("placeholder", "mail")
    expect(page.locator('dialog [data-path="*"]')).to_have_value(re.compile(str(2**63 - 1)))
    assert_no_errors(page)


@pytest.mark.long
def test_the_payload_of_a_schedule_has_the_fields_of_its_type(site: Site) -> None:
    page = site.sign_in("ana", "schedules")
    page.click("text=Add a schedule")
    page.fill("dialog [name=name]", "reorder")
    page.fill("dialog [name=value]", "0 3 * * *")
    page.fill("dialog [name=job_type]", "purchase")
    page.locator("dialog [name=job_type]").press("Tab")
    customer = page.locator('dialog [data-path="customer"]')
    expect(customer).to_be_visible()
    page.click("dialog button[type=submit]")
    expect(page.locator("dialog .schema-field:has([data-path=customer]) > .error")).to_have_text("Enter a value.")
    expect(customer).to_be_focused()
    customer.fill("Ann")
    page.locator('dialog [data-path="due"]').fill("2030-01-31")
    page.click("dialog >> text=Add to lines")
    page.locator('dialog [data-path="lines.0.product"]').fill("ink")
    page.locator('dialog [data-path="lines.0.pieces"]').fill("3")
    page.click("dialog button[type=submit]")
    expect(last_toast(page)).to_have_text("reorder added.×")
    payload = schedule(site, "reorder")["payload"]
    assert (payload["customer"], payload["lines"]) == ("Ann", [{"product": "ink", "pieces": 3}])

    row(page, "reorder").locator("[data-action=edit]").click()
    expect(customer).to_have_value("Ann")
    submit_dialog(page, value="0 4 * * *")
    expect(row(page, "reorder")).to_contain_text("0 4 * * *")
    assert schedule(site, "reorder")["payload"] == payload, "a payload that nobody edits stays as it is"
    row(page, "reorder").locator("[data-action=edit]").click()
    customer.fill("Bob")
    page.click("dialog [data-view=json]")
    expect(page.locator("dialog textarea.json")).to_have_value(re.compile('"customer": "Bob"'))
    page.click("dialog button[type=submit]")
    expect(page.locator("dialog")).to_have_count(0)
    assert schedule(site, "reorder")["payload"] == {**payload, "customer": "Bob"}
    assert_no_errors(page)


def test_what_a_tall_dialog_refuses_is_in_view(site: Site) -> None:
    page = site.sign_in("ana", "schedules", viewport={"width": 360, "height": 740})
    page.click("text=Add a schedule")
    expect(page.locator("dialog .card")).to_contain_text("Choose a job type")
    page.fill("dialog [name=name]", "tall")
    page.fill("dialog [name=value]", "0 3 * * *")
    page.fill("dialog [name=job_type]", "purchase")
    page.locator("dialog [name=job_type]").press("Tab")
    customer = page.locator('dialog [data-path="customer"]')
    expect(customer).to_be_visible()
    expect(page.locator("dialog .preview li")).to_have_count(3)
    page.click("dialog button[type=submit]")
    error = page.locator("dialog .error[role=alert]", has_text="Not sent: see the marked fields.")
    expect(error).to_be_visible()
    expect(customer).to_be_focused()
    assert customer.evaluate(IN_VIEW)
    assert error.evaluate(IN_VIEW)
    assert_no_errors(page)


def test_a_dialog_with_a_long_list_begins_at_its_top(site: Site) -> None:
    site.call("POST", "schedules", {"name": "often", "job_type": "mail", "every": "90m", "payload": {"to": "all"}})
    page = site.sign_in("ana", "schedules?q=often", viewport={"width": 390, "height": 780})
    row(page, "often").locator("td button.plain").click()
    expect(page.locator("dialog li")).to_have_count(20)
    assert page.locator("dialog h2").evaluate(IN_VIEW)
    assert_no_errors(page)


def test_a_schedule_is_added_edited_paused_and_removed(site: Site) -> None:
    page = site.sign_in("ana", "schedules", timezone_id="Asia/Shanghai")
    page.click("text=Add a schedule")
    expect(page.locator("dialog .field:has(> .required)")).to_have_text(["Name *", "Job type *", "Timing *"])
    page.fill("dialog [name=name]", "digest")
    page.fill("dialog [name=job_type]", "mail")
    page.fill("dialog [name=value]", "not a cron line")
    page.locator("dialog [name=value]").blur()
    expect(page.locator("dialog label:has([name=value][aria-invalid=true]) + .error")).to_contain_text(
        "not a cron line"
    )
    page.click("dialog [data-view=json]")
    page.fill("dialog textarea.json", '{"to": "everyone"}')
    page.click("dialog button[type=submit]")
    expect(page.locator("dialog .foot > .error[role=alert]")).to_have_text("Not sent: see the marked fields.")
    expect(page.locator("dialog", has_text="not a cron line").locator(".error:not(:empty)")).to_have_count(2)
    expect(page.locator("dialog [name=value]")).to_be_focused()
    page.fill("dialog [name=value]", "0 3 * * *")
    page.locator("dialog [name=value]").blur()
    expect(page.locator("dialog .preview")).to_contain_text("03:00:00")
    page.click("dialog button[type=submit]")
    expect(last_toast(page)).to_have_text("digest added.×")
    schedule_row = row(page, "digest")
    expect(schedule_row).to_contain_text("0 3 * * *")
    created = schedule(site, "digest")
    assert (created["timezone"], created["payload"]) == ("Asia/Shanghai", {"to": "everyone"})

    schedule_row.locator("[data-action=edit]").click()
    page.click("dialog [data-view=json]")
    expect(page.locator("dialog textarea.json")).to_have_value('{\n  "to": "everyone"\n}')
    page.select_option("dialog [name=kind]", "every")
    page.fill("dialog textarea.json", '{"to": "nobody"}')
    submit_dialog(page, value="90m", queue="post", reason="more often")
    expect(schedule_row).to_contain_text("post")
    changed = schedule(site, "digest")
    assert (changed["schedule_type"], changed["payload"], changed["queue"]) == ("every", {"to": "nobody"}, "post")
    assert changed["next_fire_at"] != created["next_fire_at"]

    schedule_row.locator("[data-action=pause]").click()
    submit_dialog(page, reason="holidays")
    expect(schedule_row).to_contain_text("Paused")
    assert schedule(site, "digest")["paused"]
    schedule_row.locator("button.plain").click()
    expect(page.locator("dialog")).to_contain_text("Paused: none of these runs happens until it is resumed.")
    page.click("dialog >> text=Close")
    schedule_row.locator("[data-action=resume]").click()
    expect(schedule_row).to_contain_text("Active")
    schedule_row.locator("button.plain").click()
    expect(page.locator("dialog ol li")).to_have_count(20)
    page.click("dialog >> text=Close")
    schedule_row.locator("[data-action=remove]").click()
    submit_dialog(page, confirmation="digest")
    expect(schedule_row).to_have_count(0)
    audit = site.call("GET", "audit?limit=20")["items"]
    entries = [(entry["act"], entry["actor"], entry["reason"]) for entry in audit if entry["subject"] == created["id"]]
    assert entries == [
        ("schedule.remove", "ana", None),
        ("schedule.resume", "ana", None),
        ("schedule.pause", "ana", "holidays"),
        ("schedule.edit", "ana", "more often"),
        ("schedule.add", "ana", None),
    ]
    assert_no_errors(page)


def test_a_concurrent_change_of_a_schedule_is_not_overwritten(site: Site) -> None:
    hourly = {"every": "1h", "starts_at": "2026-01-01T00:17:23Z"}
    site.call("POST", "schedules", {"name": "twice", "job_type": "mail", "payload": {"to": "x"}} | hourly)
    page = site.sign_in("ana", "schedules")
    row(page, "twice").locator("[data-action=edit]").click()
    expect(page.locator("dialog .preview li")).to_have_text([re.compile(":17:23")] * 3)
    page.fill("dialog [name=value]", "2h")
    page.locator("dialog [name=value]").blur()
    expect(page.locator("dialog .preview li").first).not_to_contain_text(":17:23")
    site.call("PATCH", "schedules/twice", {"every": "2h"})
    submit_dialog(page, value="3h")
    expect(page.locator("dialog .foot > .error[role=alert]")).to_contain_text("VERSION_CONFLICT")
    assert schedule(site, "twice")["expression"] == "2h"


def test_a_backfill_counts_the_jobs_before_it_creates_them(site: Site) -> None:
    hourly = {"name": "hourly", "job_type": "mail", "cron": "0 * * * *", "payload": {"to": "x"}, "queue": "past"}
    site.call("POST", "schedules", hourly)
    page = site.sign_in("ana", "schedules", timezone_id="Asia/Shanghai")
    end = (datetime.now(UTC) - timedelta(days=1)).replace(minute=30)
    local = [(end + timedelta(hours=8) - timedelta(hours=back)).strftime("%Y-%m-%dT%H:%M") for back in (5, 0)]
    schedule_row = row(page, "hourly")
    schedule_row.locator("[data-action=backfill]").click()
    submit_dialog(page, first=local[1], last=local[0])
    expect(page.locator("dialog .foot > .error[role=alert]")).to_contain_text("must not be before")
    submit_dialog(page, first=local[0], last=local[1])
    expect(page.locator("dialog h2")).to_have_text("Create 5 jobs for hourly?")
    assert site.call("GET", "jobs?queue=past")["items"] == []
    submit_dialog(page, reason="the outage")
    expect(last_toast(page)).to_contain_text("5 jobs created.")
    assert len(site.call("GET", "jobs?queue=past")["items"]) == 5
    schedule_row.locator("[data-action=backfill]").click()
    submit_dialog(page, first=local[0], last=local[1])
    expect(last_toast(page)).to_contain_text("Nothing to backfill")
    expect(page.locator("dialog")).to_have_count(0)
    assert_no_errors(page)


def submit_failing(site: Site, number: int, queue: str, **fields: Any) -> None:
    """Submit jobs that fail permanently, and wait until they have ended."""
    jobs = [{"job_type": "charge", "payload": {"card": "bad"}, "queue": queue, **fields} for _ in range(number)]
    for item in site.call("POST", "jobs/bulk", {"jobs": jobs})["items"]:
        site.wait_until_final(item["job"]["id"])


def test_bulk_actions_on_dead_letters(site: Site) -> None:
    submit_failing(site, 2, "two-people", contract="streams", max_retries=0)
    submit_failing(site, 1, "two-people", contract="gate-b2")
    page = site.sign_in("ana", "dead-letters?view=list&q=queue:two-people")
    expect(page.locator("tbody tr")).to_have_count(3)
    page.click("[data-action=discard-all]")
    expect(page.locator("dialog h2")).to_have_text("Discard 3 dead letters")
    expect(page.locator("dialog p").first).to_contain_text("1 of them needs two people")
    page.click("dialog button[type=submit]")
    expect(page.locator("dialog")).to_have_count(1)  # a reason is required
    submit_dialog(page, reason="test cards")
    expect(last_toast(page)).to_contain_text("2 dead letters discarded. 1 proposed to be discarded")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_contain_text("ana proposed to discard it")
    page.click("[data-action=discard-all]")
    submit_dialog(page, reason="my own proposal")
    expect(last_toast(page)).to_contain_text("1 was refused.")
    page.click("[data-action=requeue-all]")
    expect(page.locator("dialog h2")).to_have_text("Requeue 1 dead letter")
    submit_dialog(page, reason="once more")
    expect(last_toast(page)).to_contain_text("1 dead letter requeued")
    dead_letters = site.call("GET", "dlq/items?queue=two-people")["items"]
    statuses = [dead_letter["status"] for dead_letter in dead_letters]
    assert statuses.count("discarded") == 2 and statuses.count("requeued") == 1
    page.click("[data-value=discarded]")
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.locator("[data-action=discard-all]")).not_to_be_visible()
    assert_no_errors(page)


def test_many_jobs_are_requeued_after_the_number_is_typed(site: Site) -> None:
    site.call("POST", "queues/many/pause", {})
    jobs = [{"job_type": "mail", "payload": {"to": str(n)}, "queue": "many"} for n in range(1002)]
    for start in (0, 1000):
        site.call("POST", "jobs/bulk", {"jobs": jobs[start : start + 1000]})
    body: dict[str, Any] = {"queue": "many", "dry_run": False}
    while body.get("cursor") or "cursor" not in body:
        body["cursor"] = site.call("POST", "bulk/cancel", body)["next_cursor"]
    page = site.sign_in("ana", "jobs?q=queue:many phase:final")
    page.locator("tbody input[type=checkbox]").nth(0).check()
    page.locator("tbody input[type=checkbox]").nth(1).check()
    page.click(".selection >> text=Requeue")
    expect(page.locator("dialog h2")).to_have_text("Requeue 2 jobs")
    expect(page.locator("dialog [name=confirmation]")).to_have_count(0)
    submit_dialog(page)
    expect(last_toast(page)).to_contain_text("2 jobs requeued as new jobs.")
    page.click(".selection >> text=Requeue")
    expect(page.locator("dialog h2")).to_have_text("Requeue 1,002 jobs")
    button = page.locator("dialog button[type=submit]")
    page.fill("dialog [name=confirmation]", "1,002")
    expect(button).to_be_disabled()
    submit_dialog(page, confirmation="1002")
    expect(last_toast(page)).to_contain_text("1,002 jobs requeued as new jobs.")
    count = site.call("POST", "bulk/cancel", {"queue": "many", "phase": "claimable", "dry_run": True})
    assert count["matched"] == 1004
    page.click(".selection >> text=Cancel")
    expect(last_toast(page)).to_contain_text("None of these 1,002 jobs can be cancelled")
    assert_no_errors(page)


@pytest.mark.long
def test_a_worker_is_drained(site: Site) -> None:
    """A drained worker finishes the job it runs, then exits."""
    gate = site.folder / "drained"
    job = site.submit("second", {"gate": str(gate)}, queue="second")
    with second_worker(site) as worker:
        page = site.sign_in("ana", "workers")
        worker_row = row(page, "second")
        expect(worker_row).to_contain_text("1 / ")
        expect(worker_row.locator(".badge")).to_have_text("Online")
        queues = site.sign_in("ana", "queues")
        expect(row(queues, "second").locator(".badge")).to_have_text("Active")
        worker_row.locator("[data-action=drain]").click()
        submit_dialog(page, reason="a new release")
        expect(last_toast(page)).to_contain_text("Command sent")
        expect(worker_row).to_contain_text("ana")
        expect(worker_row.locator("[data-action]")).to_have_count(0)
        expect(worker_row.locator(".badge")).to_have_text("Draining")
        expect(row(queues, "second").locator(".badge")).to_have_text("Draining")
        assert worker.poll() is None and site.call("GET", f"jobs/{job}")["phase"] == "leased"
        gate.touch()
        assert worker.wait(30) == 0
        assert site.call("GET", f"jobs/{job}")["result"] == "finished"
        expect(row(page, "1 / ")).to_have_count(0)
    assert_no_errors(page)


def test_a_schedule_has_the_declared_options_of_its_type(site: Site) -> None:
    page = site.sign_in("ana", "schedules")
    page.click("text=Add a schedule")
    page.fill("dialog [name=job_type]", "charge")
    page.locator("dialog [name=job_type]").blur()
    expect(page.locator("dialog [name=queue]")).to_have_attribute("placeholder", "billing")
    page.click("dialog [data-view=json]")
    page.fill("dialog textarea.json", '{"card": "good"}')
    submit_dialog(page, name="charges", value="0 3 * * *")
    expect(row(page, "charges")).to_contain_text("billing")
    created = schedule(site, "charges")
    assert (created["queue"], created["contract"]) == ("billing", "gate-b2")
    assert_no_errors(page)


@pytest.mark.long
def test_every_schedule_and_approval_can_be_reached(site: Site) -> None:
    for number in range(51):
        daily = {"name": f"report {number:02}", "job_type": "mail", "cron": "0 3 * * *", "payload": {"to": "all"}}
        site.call("POST", "schedules", {**daily, "paused": True})
        site.submit("mail", {"to": str(number)}, queue="held", hold=True)
    page = site.sign_in("ana", "schedules")
    expect(row(page, "report 50")).to_be_visible()
    expect(row(page, "report 00")).to_have_count(0)
    page.click("text=Older →")
    expect(row(page, "report 00")).to_be_visible()
    page.fill("#filter", "report 07")
    expect(page.locator("tbody tr")).to_have_count(1)
    site.open(page, "")
    page.keyboard.press("Control+k")
    page.fill("#palette-input", "report 00")
    page.locator("#palette-options li", has_text="Schedule").click()
    expect(page.locator("tbody tr strong")).to_have_text("report 00")
    page.fill("#filter", "no such name")
    expect(page.locator("#page")).to_contain_text("No matching schedules")
    site.open(page, "approvals")
    expect(page.locator("tbody tr")).to_have_count(50)
    page.click("text=Newer →")
    expect(page.locator("tbody tr")).to_have_count(1)
    assert_no_errors(page)


def test_a_viewer_is_not_told_to_add_schedules_and_jobs(site: Site) -> None:
    page = site.sign_in("vic")
    page.route("**/api/v1/schedules?*", lambda route: route.fulfill(json={"items": [], "next_cursor": None}))
    site.open(page, "schedules")
    expect(page.locator("#page")).to_contain_text("Operators add them here")
    for person, hint in (
        ("vic", "Create a job with “detent enqueue"),
        ("ana", "Create a job with “Enqueue job” above"),
    ):
        page = site.sign_in(person)
        page.route("**/api/v1/jobs?*", lambda route: route.fulfill(json={"items": [], "next_cursor": None}))
        site.open(page, "jobs")
        expect(page.locator("#page")).to_contain_text(hint)
    assert_no_errors(page)


@pytest.mark.long
def test_a_schedule_without_a_next_run_is_finished(site: Site) -> None:
    soon = (datetime.now(UTC) + timedelta(seconds=0.5)).isoformat()
    site.call("POST", "schedules", {"name": "only once", "job_type": "mail", "at": soon, "payload": {"to": "x"}})
    page = site.sign_in("vic", "schedules")
    page.fill("#filter", "only once")
    expect(row(page, "only once").locator(".badge")).to_have_text("Finished")
    assert_no_errors(page)
