"""What pages tell an operator is true: reasons, times, filters, refusals; and pages open for those who may use them."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Page, expect

from dashboard.site import Site, assert_no_errors


def test_why_a_job_for_later_waits(site: Site) -> None:
    job = site.submit("mail", {"to": "ann"}, scheduled_at="2099-01-31T12:00:00Z")
    page = site.sign_in("vic", f"jobs/{job}")
    expect(page.locator("#why")).to_contain_text("Scheduled: it is due in")
    assert_no_errors(page)


def test_why_a_job_waits_whose_workers_are_draining(site: Site) -> None:
    claim = {"worker": "node-1", "job_types": ["remote"], "queues": ["remote"]}
    site.call("POST", "worker/claim", claim)
    site.call("POST", "workers/boss%2Fnode-1/drain", {})
    site.call("POST", "worker/heartbeat", {"worker": "node-1", "held": {}})
    page = site.sign_in("vic", f"jobs/{site.submit('remote', queue='remote')}")
    expect(page.locator("#why")).to_contain_text("draining or stopping. Start another one. They are: boss/node-1.")
    site.open(page, "queue?name=remote")
    expect(page.locator("#page .badge").first).to_have_text("Draining")
    assert_no_errors(page)


def test_a_queue_whose_ready_jobs_belong_to_a_paused_tenant_is_not_called_active(site: Site) -> None:
    site.call("POST", "queues/acme/pause?kind=tenant", {})
    site.submit("mail", {"to": "ann"}, queue="shared", tenant_id="acme")
    page = site.sign_in("vic", "queue?name=shared")
    expect(page.locator("#page .toolbar").first).to_contain_text("Paused1 ready job of a paused tenant")
    for path in ("queues", ""):
        site.open(page, path)
        row = page.locator("tr", has_text="shared")
        expect(row).to_contain_text("Paused1 ready job of a paused tenant")
    site.call("POST", "queues/acme/resume?kind=tenant")
    assert_no_errors(page)


def test_a_run_in_40_hours_is_not_called_tomorrow(site: Site) -> None:
    at = (datetime.now(UTC) + timedelta(hours=40)).isoformat(timespec="seconds")
    site.call("POST", "schedules", {"name": "later", "job_type": "mail", "payload": {"to": "ann"}, "at": at})
    page = site.sign_in("vic", "schedules")
    expect(page.locator("tbody tr", has_text="later").locator("time").first).to_have_text("in 2 days")


def test_a_schedule_that_a_quota_holds_back_says_so(site: Site) -> None:
    site.call("PUT", "tenants/full", {"max_backlog": 0})
    schedule = {"name": "stuck", "job_type": "mail", "payload": {"to": "ann"}, "every": "1s", "tenant_id": "full"}
    site.call("POST", "schedules", schedule)
    page = site.sign_in("vic", "schedules")
    row = page.locator("tbody tr", has_text="stuck")
    expect(row).to_contain_text("Held backThe backlog quota of its tenant is full.")
    expect(row.locator(".plain time")).to_contain_text(re.compile("in|now"))
    expect(row).to_contain_text(re.compile("due .*(ago|now)"))
    site.call("DELETE", "schedules/stuck")
    assert_no_errors(page)


def filter_by(page: Page, text: str) -> None:
    page.fill("#filter", text)
    page.keyboard.press("Enter")


def test_milliseconds_and_repeated_keys_in_the_filter(site: Site) -> None:
    job = site.wait_until_final(site.submit("mail", {"to": "ann"}, queue="quick"))["id"]
    page = site.sign_in("vic", "jobs?q=queue:quick")
    row = page.locator(f"tr[data-key='{job}']")
    filter_by(page, "queue:quick longer:600000ms")
    expect(page.locator(".state")).to_contain_text("No matching jobs")
    filter_by(page, "queue:quick shorter:600000ms")
    expect(row).to_be_visible()
    expect(page.locator("#filter-error")).to_be_hidden()
    filter_by(page, "queue:quick queue:quick")
    expect(page.locator("#filter-error")).to_be_hidden()
    filter_by(page, "queue:quick queue:other")
    expect(page.locator("#filter-error")).to_have_text("Left out, because it is not valid: queue:other")
    assert_no_errors(page)


def test_a_bookmarked_filter_that_is_refused_can_be_corrected(site: Site) -> None:
    job = site.submit("mail", {"to": "ann"})
    page = site.sign_in("vic", "jobs?q=status:nonsense")
    expect(page.locator(".error-state")).to_contain_text("nonsense")
    filter_by(page, "")
    expect(page.locator(f"tr[data-key='{job}']")).to_be_visible()
    expect(page.locator(".error-state")).to_be_hidden()


def test_why_dead_letters_and_jobs_were_refused(site: Site) -> None:
    """Those of a tenant whose backlog is full."""
    for number in range(2):
        tenant = f"full-{number}"
        job = site.submit("charge", {"card": "bad"}, contract="gate-b2", queue="refused", tenant_id=tenant)
        site.wait_until_final(job)
    site.call("PUT", "tenants/full-0", {"max_backlog": 0})
    try:
        page = site.sign_in("ana", "dead-letters?q=queue:refused")
        page.click("[data-action=requeue-group]")
        page.click("dialog button[type=submit]")
        toast = page.locator(".toast").last
        expect(toast).to_contain_text("1 dead letter requeued as a new job. 1 was refused.")
        expect(toast.locator("code")).to_have_text("TENANT_BACKLOG_FULL")
        site.open(page, "jobs?q=queue:refused%20tenant:full-0")
        page.click("[data-action=bulk-requeue]")
        page.click("dialog button[type=submit]")
        expect(page.locator(".toast").last.locator("code")).to_have_text("TENANT_BACKLOG_FULL")
        assert_no_errors(page)
    finally:
        site.call("DELETE", "tenants/full-0")


def test_somebody_of_one_queue_begins_with_the_jobs(site: Site) -> None:
    """The menu has only pages that this person may open."""
    site.tokens["queue"] = site.call("POST", "tokens", {"name": "q", "role": "operator", "queues": ["mail"]})["token"]
    site.submit("mail", {"to": "ann"}, queue="mail")
    page = site.sign_in("queue", "")
    expect(page.locator("h1")).to_have_text("Jobs")
    expect(page.locator("tbody tr").first).to_be_visible()
    names = [link.get_attribute("data-name") for link in page.locator("#menu a[data-name]").all()]
    assert names == ["jobs", "approvals", "dead_letters", "schedules", "contracts"]
    assert_no_errors(page)


@pytest.mark.parametrize(("kind", "name"), [("Queue", "gates"), ("Job type", "gated")])
def test_the_palette_opens_the_page_of_a_queue_and_of_a_type(site: Site, kind: str, name: str) -> None:
    gate = site.folder / "palette"
    gate.touch()
    site.submit("gated", {"gate": str(gate)}, queue="gates")
    page = site.sign_in("vic", "contracts")
    page.keyboard.press("Control+k")
    page.fill("#palette-input", name)
    tag = page.locator(".tag", has_text=re.compile(f"^{kind}$"))
    page.locator("#palette-options li", has=tag).filter(has_text=name).click()
    expect(page.locator("h1")).to_have_text(f"{kind} {name}")
    assert_no_errors(page)
