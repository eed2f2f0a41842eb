"""Webhooks, alerts, runs of schedules and workers in a browser: create, act, errors of the server, empty states."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from dashboard.site import (
    Site,
    assert_no_errors,
    running_site,
    second_worker,
    wait_until_drawn,
)
from dashboard.views import SETTINGS
from support.waiting import until_now
from support.webhook_receiver import Receiver

pytestmark = pytest.mark.drill


@pytest.fixture(scope="module")
def module_site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    (folder / "detent.toml").write_text(SETTINGS)
    with running_site(folder, browser) as started:
        yield started


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    started = Receiver()
    yield started
    started.close()


def row(page: Page, text: str) -> Locator:
    return page.locator("tbody tr", has_text=text)


def submit_dialog(page: Page, **values: str) -> None:
    for name, value in values.items():
        page.fill(f"dialog [name={name}]", value)
    page.click("dialog button[type=submit]")


def expect_refused(page: Page, code: str) -> None:
    """The dialog stays open with the error of the server."""
    expect(page.locator("dialog .foot > .error[role=alert]")).to_contain_text(code)
    expect(page.locator("dialog button[type=submit]")).to_be_enabled()


def test_a_webhook_is_added_delivers_is_paused_and_removed(site: Site, receiver: Receiver) -> None:
    page = site.sign_in("boss", "webhooks")
    expect(page.locator(".state")).to_contain_text("No webhooks")
    page.click("text=Add webhook")
    submit_dialog(page, name="shop", url="ftp://example.org/hook")
    expect_refused(page, "WEBHOOK_URL_INVALID")
    page.check("dialog [name=final]")
    submit_dialog(page, url=receiver.url, queue="hooked")
    expect(page.locator("#secret")).to_contain_text("whsec_")
    page.click("dialog >> text=Close")
    expect(row(page, "shop").locator("[data-label=Events]")).to_have_text("Finishedqueue hooked")

    page.click("text=Add webhook")
    submit_dialog(page, name="shop", url=receiver.url)
    expect_refused(page, "WEBHOOK_EXISTS")
    page.click("dialog >> text=Back")

    receiver.answers = [500]
    site.wait_until_final(site.submit("mail", {"to": "x"}, queue="hooked"))
    until_now(lambda: len(receiver.got) >= 2)  # it is retried
    row(page, "shop").locator(".actions button").first.click()
    expect(page.locator("dialog tbody tr")).to_have_count(1)
    expect(page.locator("dialog tbody a")).to_have_attribute("href", re.compile("/jobs/" + _last_job(site, "hooked")))
    page.click("dialog [data-action=replay]")
    until_now(lambda: len(receiver.got) >= 3)
    page.click("dialog >> text=Close")
    waiting = {**site.call("GET", "webhooks/shop/deliveries")["items"][0], "state": "due", "due_at": "2030-01-31T12:00"}
    page.route(
        "**/webhooks/*/deliveries?*", lambda route: route.fulfill(json={"items": [waiting], "next_cursor": None})
    )
    row(page, "shop").locator(".actions button").first.click()
    expect(page.locator("dialog tbody tr")).to_contain_text("next attempt Jan 31, 12:00:00")
    expect(page.locator("dialog [data-action=replay]")).to_have_text("Send now")
    page.click("dialog >> text=Close")

    row(page, "shop").locator("[data-action=pause]").click()
    expect(row(page, "shop").locator(".badge")).to_have_text("Paused")
    row(page, "shop").locator("[data-action=resume]").click()
    expect(row(page, "shop").locator(".badge")).to_have_text("Active")
    row(page, "shop").locator("[data-action=edit]").click()
    expect(page.locator("dialog [name=final]")).to_be_checked()
    submit_dialog(page, url="http://user@127.0.0.1:9/hook")
    expect_refused(page, "WEBHOOK_URL_INVALID")
    page.uncheck("dialog [name=final]")
    submit_dialog(page, url=receiver.url, queue="")
    expect(page.locator(".toast").last).to_contain_text("shop saved")
    expect(row(page, "shop")).to_contain_text("All events")
    row(page, "shop").locator("[data-action=edit]").click()
    page.check("dialog [name=new_secret]")
    submit_dialog(page)
    expect(page.locator("#secret")).to_contain_text("whsec_")
    expect(page.locator("dialog")).not_to_contain_text("digest")
    page.click("dialog >> text=Close")
    expect(row(page, "shop")).to_contain_text("The old secret also signs; it ends in")
    row(page, "shop").locator("[data-action=remove]").click()
    expect(page.locator("dialog button[type=submit]")).to_be_disabled()
    submit_dialog(page, confirmation="shop")
    expect(page.locator(".state")).to_contain_text("No webhooks")
    assert site.call("GET", "webhooks")["items"] == []
    assert_no_errors(page)


def _last_job(site: Site, queue: str) -> str:
    return str(site.call("GET", f"jobs?queue={queue}")["items"][0]["id"])


def test_an_operator_cannot_add_webhooks_and_a_viewer_has_no_page(site: Site) -> None:
    site.call("POST", "webhooks", {"name": "only", "url": "http://127.0.0.1:9/hook"})
    page = site.sign_in("ana", "webhooks")
    expect(row(page, "only").locator("[data-action=pause]")).to_be_visible()
    expect(page.locator("[data-action=edit], [data-action=remove], #page .toolbar button")).to_have_count(0)
    site.call("DELETE", "webhooks/only")
    row(page, "only").locator("[data-action=pause]").click()
    expect(page.locator(".toast.bad")).to_contain_text("WEBHOOK_NOT_FOUND")
    expect(page.locator(".state")).to_contain_text("No webhooks")
    viewer = site.sign_in("vic", "")
    expect(viewer.locator("#menu [data-name=webhooks]")).to_have_count(0)
    assert_no_errors(page, viewer)


def test_an_alert_is_acknowledged_silenced_and_leads_to_its_cause(site: Site) -> None:
    page = site.sign_in("ana", "alerts")
    expect(page.locator(".state")).to_contain_text("No alerts")
    for rule in ("no_worker", "dlq_arrivals", "error_rate"):
        expect(row(page, rule)).to_have_count(1)
    expect(row(page, "lease_losses").locator("[data-label=Threshold]")).to_have_text("10 jobs in 10 min")
    job = site.submit("nobody-handles-this", queue="alarm")
    alert = page.locator("tr[data-key^='no_worker/']")
    expect(alert.locator(".badge")).to_have_text("Firing")
    expect(alert).to_contain_text("job_type=nobody-handles-this")
    expect(page.locator("#menu [data-name=alerts] .count")).to_have_text("1")
    notification = page.locator("section", has_text="Notifications").locator("tbody tr", has_text="nobody-handles-this")
    expect(notification.locator(".badge")).to_have_text("Firing")
    alert.locator("[data-action=acknowledge]").click()
    expect(alert).to_contain_text("Acknowledged by ana")
    expect(alert.locator("[data-action=acknowledge]")).to_have_count(0)
    alert.locator("[data-action=silence]").click()
    page.fill("dialog [name=minutes]", "0")
    page.click("dialog button[type=submit]")
    expect(page.locator("dialog")).to_have_count(1)  # at least one minute
    submit_dialog(page, minutes="30", reason="being repaired")
    expect(page.locator(".toast").last).to_contain_text("Alert silenced.")
    expect(alert).to_contain_text("Silenced, ends in")
    silence = page.locator("section", has_text="Silences").locator("tbody tr")
    expect(silence.locator("[data-label=Actor]")).to_have_text("ana")
    expect(silence.locator("[data-label=Reason]")).to_have_text("being repaired")
    [stored] = site.call("GET", "alerts/silences")["items"]
    assert stored["subject"] and stored["rule"] == "no_worker"
    silence.locator("[data-action=end-silence]").click()
    expect(silence).to_be_hidden()
    alert.get_by_role("link", name="Show the cause").click()
    expect(page.locator("h1")).to_have_text("Job type nobody-handles-this")
    answer = {**site.call("GET", "alerts")["items"][0], "rule": "losses of acme", "kind": "dlq_arrivals", "value": 77}
    answer |= {"subject": "tenant=acme", "labels": {"tenant": "acme"}}
    page.route("**/api/v1/alerts", lambda route: route.fulfill(json={"items": [answer], "next_cursor": None}))
    failed = {**site.call("GET", "alerts/deliveries")["items"][0], "state": "given up", "last_error": "no route"}
    page.route("**/alerts/deliveries", lambda route: route.fulfill(json={"items": [failed], "next_cursor": None}))
    site.open(page, "alerts")
    expect(notification.locator("[data-label=Delivery]")).to_have_text("Given upno route")
    expect(row(page, "losses of acme")).to_contain_text("77 new dead letters (tenant=acme)")
    row(page, "losses of acme").get_by_role("link", name="Show the cause").click()
    expect(page.locator("#filter")).to_have_value("tenant:acme")
    answer |= {"kind": "schedule_missed", "labels": {"schedule": "acme/nightly report"}}
    site.open(page, "alerts")
    page.get_by_role("link", name="Show the cause").click()
    expect(page.locator("#filter")).to_have_value("nightly report")
    site.call("POST", f"jobs/{job}/cancel", {})
    assert_no_errors(page)


def test_an_alert_that_is_gone_is_reported(site: Site) -> None:
    job = site.submit("also-nobody", queue="alarm")
    page = site.sign_in("ana", "alerts")
    alert = page.locator("tr", has_text="also-nobody").first
    expect(alert.locator(".badge")).to_have_text("Firing")
    page.route(
        "**/alerts/acknowledge", lambda route: route.continue_(post_data='{"rule": "no_worker", "subject": "?"}')
    )
    alert.locator("[data-action=acknowledge]").click()
    expect(page.locator(".toast.bad")).to_contain_text("ALERT_NOT_FOUND")
    site.call("POST", f"jobs/{job}/cancel", {})
    assert_no_errors(page)


def test_a_schedule_is_run_now(site: Site) -> None:
    page = site.sign_in("ana", "schedules")
    expect(page.locator(".state")).to_contain_text("No schedules yet")
    site.call("POST", "schedules", {"name": "yearly", "job_type": "mail", "cron": "0 0 1 1 *", "payload": {"to": "a"}})
    site.call("POST", "schedules/yearly/pause", {})
    page.reload()
    schedule = row(page, "yearly")
    schedule.locator("[data-action=run-now]").click()
    submit_dialog(page, reason="tested")
    expect(page.locator(".toast")).to_contain_text("Run of yearly created.")
    page.click(".toast a")
    expect(page.locator("h1")).to_have_text("mail")
    expect(page.locator("#page .badge").first).to_have_text("succeeded")
    entry = site.call("GET", "audit?limit=5")["items"]
    assert ("schedule.run", "ana", "tested") in [(one["act"], one["actor"], one["reason"]) for one in entry]
    site.open(page, "schedules")
    site.call("DELETE", "schedules/yearly")
    row(page, "yearly").locator("[data-action=run-now]").click()
    submit_dialog(page)
    expect_refused(page, "SCHEDULE_NOT_FOUND")
    assert_no_errors(page)


def test_workers_are_listed_stopped_and_vanish(site: Site) -> None:
    with second_worker(site) as worker:
        page = site.sign_in("ana", "workers")
        expect(page.locator("tbody tr")).to_have_count(2)
        second = row(page, "second")
        expect(second.locator(".badge")).to_have_text("Online")
        second.locator("[data-action=stop]").click()
        submit_dialog(page, reason="a new release")
        assert worker.wait(30) == 0
        expect(second).to_have_count(0)
        viewer = site.sign_in("vic", "workers")
        expect(viewer.locator("tbody tr").first).to_be_visible()
        expect(viewer.locator("[data-action]")).to_have_count(0)
    assert_no_errors(page, viewer)


def test_a_worker_over_http_is_drained(site: Site) -> None:
    job = site.submit("remote", queue="remote")
    claim = {"worker": "node-1", "job_types": ["remote"], "limit": 1}
    [claimed] = site.call("POST", "worker/claim", claim)["jobs"]
    page = site.sign_in("ana", "workers")
    remote = row(page, "node-1")
    expect(remote).to_contain_text("1 / 1")
    remote.locator("[data-action=drain]").click()
    submit_dialog(page, reason="a new release")
    expect(remote).to_contain_text("Drain · ana")
    site.submit("remote", queue="remote")
    assert site.call("POST", "worker/claim", claim)["jobs"] == []
    heartbeat = site.call("POST", "worker/heartbeat", {"worker": "node-1", "held": {job: claimed["token"]}})
    assert heartbeat["command"] == "drain"
    expect(remote).to_contain_text("1 / 1")
    assert_no_errors(page)


def test_a_page_without_its_data_says_so_and_tries_again(site: Site) -> None:
    for path in ("webhooks", "alerts", "schedules", "workers"):
        page = site.sign_in("boss", "contracts")
        page.route(
            f"**/api/v1/{path}*", lambda route: route.fulfill(status=503, json={"code": "STORE_DOWN", "detail": "x"})
        )
        page.clock.install()
        page.goto(f"{site.root_url}/{path}")
        expect(page.locator(".error-state")).to_contain_text("STORE_DOWN")
        page.clock.pause_at(
            page.evaluate("Date.now()") / 1000 + 60
        )  # the page must not reload by itself before the click
        expect(page.locator(".error-state")).to_contain_text("STORE_DOWN")
        page.unroute(f"**/api/v1/{path}*")
        page.click(".error-state button")
        expect(page.locator("#page .skeleton")).to_be_visible()
        page.clock.resume()
        wait_until_drawn(page)
        expect(page.locator("#page .skeleton, .error-state")).to_have_count(0)
        page.route(f"**/api/v1/{path}*", lambda route: route.abort())
        expect(page.locator(".banner.disconnected")).to_be_visible()  # what was drawn stays
        assert_no_errors(page)
