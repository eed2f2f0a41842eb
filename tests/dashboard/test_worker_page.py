"""The page of one worker: what it runs, its load, what it has done, drain; workers over HTTP; a worker that is gone."""

import re
from urllib.parse import quote

import pytest
from playwright.sync_api import Route, expect

from dashboard.site import Site, assert_no_errors, wait_until_drawn

pytestmark = pytest.mark.long


def test_what_a_worker_runs_and_has_done(site: Site) -> None:
    gate = site.folder / "worker-gate"
    job = site.submit("count", {"gate": str(gate)})
    site.wait_until_final(site.submit("mail", {"to": "ann"}))
    site.create_dead_letter()
    page = site.sign_in("vic", "workers")
    page.route("**/api/v1/workers", without_heartbeat)
    page.reload()
    expect(page.locator("tbody [data-label=Load]")).to_contain_text(re.compile(r"^[1-9]\d* / 64"))
    worker = page.locator("tbody tr td a").first
    name = worker.inner_text()
    worker.click()
    wait_until_drawn(page)
    expect(page.locator("h1")).to_have_text(f"Worker {name}")
    running = page.locator("#running tbody tr", has=page.locator(f'a[href$="{job}"]'))
    expect(running).to_contain_text("4,000 of 10,000 rows")
    expect(running.locator("progress")).to_have_attribute("value", "40")
    expect(page.locator(".tile", has_text="Succeeded").locator("b")).to_have_text("1")
    expect(page.locator(".tile", has_text="Failed").locator("b")).to_have_text("1")
    expect(page.locator(".details-list")).to_contain_text("all queues")
    expect(page.locator('.details-list a[href$="type?name=count"]')).to_be_visible()
    expect(page.get_by_role("button", name="Drain")).to_have_count(0)
    gate.touch()
    expect(page.locator("#running")).to_contain_text("It runs no job now.")
    expect(page.locator(".tile", has_text="Succeeded").locator("b")).to_have_text("2")
    assert_no_errors(page)


def without_heartbeat(route: Route) -> None:
    """The workers as they are before their first heartbeat reports the jobs that they have claimed."""
    answer = route.fetch().json()
    route.fulfill(json={**answer, "items": [{**worker, "busy": 0} for worker in answer["items"]]})


def test_a_worker_over_http_is_drained_and_gone(site: Site) -> None:
    site.submit("remote", {})
    claim = {
        "worker": "node-1",
        "job_types": ["remote"],
        "queues": ["default"],
        "slots": 4,
        "host": "edge-7",
        "pid": 42,
    }
    (held,) = site.call("POST", "worker/claim", claim)["jobs"]
    report = {"job_id": held["id"], "token": held["token"], "share": 0.25, "message": "a quarter"}
    site.call("POST", "worker/progress", report)
    page = site.sign_in("ana", f"worker?name={quote('boss/node-1', safe='')}")
    expect(page.locator("#running tbody tr")).to_contain_text("25% · a quarter")
    expect(page.locator(".tile", has_text="Running / slots").locator("b")).to_have_text("1 / 4")
    expect(page.locator(".details-list")).to_contain_text("edge-7")
    page.get_by_role("button", name="Drain").click()
    page.get_by_label("Reason").fill("new version")
    page.locator("dialog").get_by_role("button", name="Drain").click()
    expect(page.locator("#page .badge").first).to_have_text("Online")
    expect(page.locator("#page")).to_contain_text("Drain · ana")
    beat = {"worker": "node-1", "held": {held["id"]: held["token"]}}
    assert site.call("POST", "worker/heartbeat", beat)["command"] == "drain"
    expect(page.locator("#page .badge").first).to_have_text("Draining")
    site.call("POST", "worker/settle", {"job_id": held["id"], "token": held["token"], "outcome": "succeed"})
    expect(page.locator(".tile", has_text="Succeeded").locator("b")).to_have_text("1")
    site.call("POST", "worker/deregister", {"worker": "node-1"})
    expect(page.locator(".state")).to_contain_text("This worker is gone")
    page.get_by_role("link", name="All jobs of this worker").click()
    wait_until_drawn(page)
    expect(page.locator("tbody tr")).to_have_count(1)
    assert_no_errors(page)
