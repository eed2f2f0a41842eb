"""Queues, job types and the overview in a browser: true states, percentiles, what runs now, a tenant's own view."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from dashboard.site import Site, assert_no_errors

CHART = """async () => {
  const script = document.querySelector("script[src$='/pages/overview.js']").src;
  const {lineChart} = await import(new URL("../charts/line_chart.js", script));
  const {formatTick} = await import(new URL("../core/time.js", script));
  const series = [{name: "p50", tone: "good", value: (point) => point.value}];
  const chart = lineChart({label: "chart", format: formatTick, series});
  const draw = (top) => {
    chart.show([{at: -60, value: top}, {at: 50, value: top}, {at: 130, value: top}], 0, 100);
    return [...chart.node.querySelectorAll("text")].slice(0, 3).map((text) => text.textContent);
  };
  const labels = [22, 1, 0].map(draw), axis = chart.node.querySelector(".axis");
  const xs = chart.node.querySelector(".line").getAttribute("d").match(/[\\d.]+(?=,)/g).map(Number);
  return {labels, ends: [Math.min(...xs), Math.max(...xs)], axis: ["x1", "x2"].map((name) => +axis.getAttribute(name))};
}"""


def row(page: Page, name: str) -> str:
    """Selector of the row with this key."""
    return f"tbody tr[data-key='{name}']"


def test_a_queue_without_workers_says_so_on_both_pages(site: Site) -> None:
    for number in range(14):
        site.submit(f"nobody-{number}", queue="lonely")
    page = site.sign_in("ana", "queues")
    lonely = page.locator(row(page, "lonely"))
    expect(lonely).to_contain_text("No worker for 14 types")
    expect(lonely).not_to_contain_text("Active")
    site.open(page, "")
    expect(page.locator(row(page, "lonely"))).to_contain_text("No worker for 14 types")
    page.locator(row(page, "lonely")).get_by_role("link", name="lonely").click()
    expect(page.locator("h1")).to_have_text("Queue lonely")
    for number in range(14):
        expect(page.get_by_role("link", name=f"nobody-{number}", exact=True)).to_be_visible()
    assert_no_errors(page)


@pytest.mark.long
def test_a_paused_a_limited_and_an_idle_queue(site: Site) -> None:
    gate = site.folder / "limit-gate"
    site.call("PUT", "limits", {"queue": "gates", "concurrency": 1})
    for _ in range(2):
        site.submit("gated", {"gate": str(gate)}, queue="gates")
    site.wait_until_final(site.submit("mail", {"to": "x"}, queue="mail"))
    page = site.sign_in("ana", "queues")
    expect(page.locator(row(page, "gates"))).to_contain_text("At its limit")
    expect(page.locator(row(page, "mail"))).to_contain_text("Idle")
    page.locator(row(page, "gates")).get_by_role("link", name="gates", exact=True).click()
    page.click("[data-action=pause]")
    page.click("dialog button[type=submit]")
    badge = page.locator("#page .badge").first
    expect(badge).to_have_text("Paused")
    expect(page.locator("td[data-label=Contract]").first).to_be_visible()
    expect(page.locator("td[data-label=Queue]")).to_have_count(0)
    queues = site.sign_in("ana", "queues")
    expect(queues.locator(row(queues, "gates")).locator("[data-label=State]")).to_have_text("Pausedby ana")
    page.click("[data-action=resume]")
    expect(badge).to_have_text("At its limit")
    site.call("POST", "queues/gated/pause?kind=job_type", {"reason": "a new release"})
    expect(badge).to_have_text("Paused")  # all its types are paused
    site.call("POST", "queues/gated/resume?kind=job_type", {})
    expect(badge).to_have_text("At its limit")
    site.call("POST", "limits/remove", {"queue": "gates"})
    gate.touch()
    expect(badge).to_have_text("Idle")
    assert_no_errors(page, queues)


def test_a_waiting_job_is_not_scheduled(site: Site) -> None:
    job = site.submit("order", {"number": 1}, queue="waits")
    page = site.sign_in("ana", f"jobs/{job}")
    expect(page.locator("#why")).to_contain_text("confirmed")
    site.open(page, "queue?name=waits")
    expect(page.locator(".tile", has_text="Scheduled").locator("b")).to_have_text("0")


@pytest.mark.long
def test_percentiles_of_a_type_and_throughput_of_a_queue_take_at_most_three_clicks(site: Site) -> None:
    for number in range(5):
        site.wait_until_final(site.submit("mail", {"to": f"p{number}"}, queue="mail"))
    page = site.sign_in("vic", "types")
    mail = page.locator(row(page, "mail"))
    page.click("[data-span='30d']")
    expect(mail.locator("td[data-label='Running p95']")).to_contain_text("ms")
    expect(mail.locator("svg.sparkline")).to_have_count(1)
    mail.get_by_role("link", name="mail", exact=True).click()
    expect(page.locator("[data-total=run]")).to_contain_text("p95")
    expect(page.locator("[data-total=run]")).not_to_contain_text("p95 –")
    expect(page.locator("#series svg.chart")).to_have_count(3)
    site.open(page, "queues")
    page.locator(row(page, "mail")).get_by_role("link", name="mail", exact=True).first.click()
    expect(page.locator(".tile", has_text="Finished")).to_contain_text("/min")
    assert_no_errors(page)


@pytest.mark.long
def test_what_runs_now_has_elapsed_time_progress_and_workers(site: Site, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = site.submit("count", {"gate": str(gate)}, queue="gates")
    page = site.sign_in("ana", "queue?name=gates")
    running = page.locator(row(page, job))
    expect(running.locator("progress")).to_have_attribute("value", "40")
    expect(running).to_contain_text("40%")
    expect(running).to_contain_text("4,000 of 10,000 rows")
    expect(running.locator("time[data-elapsed]")).to_contain_text("s")
    expect(page.locator("section", has_text="Workers").locator("tbody tr")).not_to_have_count(0)
    jobs = site.sign_in("ana", "jobs?q=queue:gates")
    expect(jobs.locator(row(jobs, job)).locator("progress")).to_have_attribute("value", "40")
    gate.touch()
    expect(running).to_have_count(0)
    assert_no_errors(page, jobs)


def test_a_tenant_has_an_overview_and_a_menu_of_its_own(site: Site) -> None:
    site.submit("nobody", queue="secret-queue", tenant_id="b")
    site.submit("nobody", queue="tenant-a", tenant_id="a")
    page = site.sign_in("tina", "")
    expect(page.locator("#page")).to_contain_text("Jobs of tenant a.")
    mine = site.call("GET", "overview", person="tina")
    assert mine["jobs"] >= 1 and mine["queues"] == [] and mine["workers"] is None
    expect(page.locator(".tile", has_text="Queued").locator("b")).to_have_text(str(mine["phases"]["claimable"]))
    expect(page.locator("#series svg.chart")).to_have_count(3)
    assert "secret-queue" not in page.content()
    menu = [link.get_attribute("data-name") for link in page.locator("#menu a[data-name]").all()]
    assert menu == ["overview", "jobs", "approvals", "dead_letters", "schedules", "contracts", "webhooks"]
    page.goto(f"{site.root_url}/queues")
    expect(page.locator("main")).to_contain_text("Not for this token")
    assert_no_errors(page)


def test_the_menu_counts_stand_on_every_page(site: Site) -> None:
    site.create_dead_letter()
    site.submit("mail", {"to": "held"}, queue="mail", hold=True)
    page = site.sign_in("boss", "contracts")
    for path in ("contracts", "queues", "tokens"):
        site.open(page, path)
        expect(page.locator("#menu [data-name=approvals] .count")).to_be_visible()
        expect(page.locator("#menu [data-name=dead_letters] .count")).to_be_visible()
    site.open(page, "dead-letters")
    entry = page.locator("#menu [data-name=dead_letters]")
    expect(entry.locator(".count")).to_be_visible()
    entry.locator(".count").evaluate("count => { count.textContent = '1,234'; }")
    other_height = page.locator("#menu [data-name=jobs]").evaluate("entry => entry.offsetHeight")
    assert entry.evaluate("entry => entry.offsetHeight") == other_height, "the name stays in one line"
    assert_no_errors(page)


@pytest.mark.long
@pytest.mark.parametrize(
    ("path", "code", "missing", "list_name", "list_path"),
    [
        ("queue?name=a%2Fb%20%3Ci%3E", "QUEUE_NOT_FOUND", "Queue 'a/b <i>' does not exist", "Queues", "queues"),
        ("type?name=%E5%8F%91%E9%80%81", "JOB_TYPE_NOT_FOUND", "Job type '发送' does not exist", "Job types", "types"),
        ("worker?name=w%2F1", "WORKER_NOT_FOUND", "This worker is gone", "Workers", "workers"),
        ("jobs/nope", "JOB_NOT_FOUND", "Job 'nope' does not exist", "Jobs", "jobs"),
        ("jobs/100%", "JOB_NOT_FOUND", "Job '100%' does not exist", "Jobs", "jobs"),
    ],
)
def test_a_page_says_what_does_not_exist(
    site: Site, path: str, code: str, missing: str, list_name: str, list_path: str
) -> None:
    page = site.sign_in("vic", path)
    state = page.locator("#page .state")
    expect(state).to_contain_text(missing)
    expect(state.locator("code")).to_have_text(code)
    state.get_by_role("link", name=f"Back to {list_name}").click()
    expect(page).to_have_url(f"{site.root_url}/{list_path}")


@pytest.mark.long
def test_the_overview_has_metrics_by_tenant(site: Site) -> None:
    for tenant in ("north", "south"):
        site.wait_until_final(site.submit("mail", {"to": tenant}, queue="mail", tenant_id=tenant))
    page = site.sign_in("vic")
    tenants = page.get_by_role("region", name="Tenants")
    north = tenants.locator(row(page, "north"))
    expect(north.locator("td[data-label='Running p95']")).to_contain_text("ms")
    north.get_by_role("link", name="north").click()
    expect(page.locator("#filter")).to_have_value("tenant:north")
    assert_no_errors(page)


def test_lines_stay_in_their_chart_and_labels_are_exact(site: Site) -> None:
    page = site.sign_in("ana", "")
    chart = page.evaluate(CHART)
    assert chart["ends"] == chart["axis"]  # the first and the last interval lie partly outside of the span
    assert chart["labels"] == [["0", "15 ms", "30 ms"], ["0", "0.5 ms", "1 ms"], ["0", "0.5 ms", "1 ms"]]
    page.locator("svg.chart").first.press("ArrowLeft")
    expect(page.locator(".legend").first).to_have_text(re.compile(r"[A-Z][a-z]{2} \d+, \d\d:\d\d:\d\d$"))
    assert_no_errors(page)
