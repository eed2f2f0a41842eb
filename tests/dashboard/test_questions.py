"""Questions of operators, each answered from the overview in at most three clicks."""

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Locator, Page, expect

from dashboard.site import Site, assert_no_errors
from support.waiting import until_now

pytestmark = pytest.mark.long
MOST_CLICKS = 3


@dataclass
class Visitor:
    """Somebody who starts at the overview. Choosing from a list counts as two clicks."""

    page: Page
    clicks: int = 0

    def click(self, target: str | Locator) -> None:
        self.clicks += 1
        (self.page.locator(target) if isinstance(target, str) else target).first.click()

    def choose(self, selector: str, value: str) -> None:
        self.clicks += 2
        self.page.select_option(selector, value)

    def menu(self, name: str) -> None:
        self.click(f"#menu a[data-name={name}]")
        expect(self.page.locator(f"#menu a[data-name={name}]")).to_have_attribute("aria-current", "page")

    def leave(self) -> None:
        assert self.clicks <= MOST_CLICKS
        assert_no_errors(self.page)


def visit(site: Site, person: str = "ana") -> Visitor:
    return Visitor(site.sign_in(person, "", timezone_id="UTC"))


def submit_many(site: Site, job_type: str, payload: dict[str, object], number: int, **fields: object) -> None:
    site.call("POST", "jobs/bulk", {"jobs": [{"job_type": job_type, "payload": payload, **fields}] * number})


def open_groups(site: Site, status: str = "open") -> dict[str, int]:
    groups = site.call("GET", f"dlq/groups?status={status}")["items"]
    return {group["error_code"]: group["count"] for group in groups}


def test_requeue_the_290_of_500_failures_with_one_error(site: Site) -> None:
    submit_many(site, "charge", {"card": "x"}, 290, queue="failing", contract="standard", max_retries=0)
    submit_many(site, "part", {"number": 7}, 210, queue="failing", max_retries=0)
    until_now(lambda: open_groups(site) == {"CARD_DECLINED": 290, "PART_BROKEN": 210}, 60)
    visitor = visit(site)
    visitor.menu("dead_letters")
    visitor.click(visitor.page.locator("tr", has_text="CARD_DECLINED").locator("[data-action=requeue-group]"))
    expect(visitor.page.locator("dialog h2")).to_have_text("Requeue 290 dead letters")
    visitor.click("dialog button[type=submit]")
    expect(visitor.page.locator(".toast")).to_contain_text("requeued", timeout=60_000)
    assert open_groups(site, "requeued") == {"CARD_DECLINED": 290}
    assert open_groups(site)["PART_BROKEN"] == 210
    visitor.leave()


def test_p95_by_type_over_the_last_hour(site: Site) -> None:
    for number in range(3):
        site.wait_until_final(site.submit("mail", {"to": str(number)}, queue="mail"))
    visitor = visit(site)
    expect(visitor.page.locator("[data-span=hour]")).to_have_attribute("aria-pressed", "true")
    for kind in ("Waiting p95", "Running p95"):
        cell = visitor.page.locator("tr", has_text="mail").locator(f"td[data-label='{kind}']").first
        expect(cell).to_contain_text("ms")
    visitor.menu("job_types")  # all types, not only the busiest
    row = visitor.page.locator("tr[data-key=mail]")
    expect(row.locator("td[data-label='Running p95']")).to_contain_text("ms")
    visitor.leave()


def test_throughput_of_one_queue(site: Site) -> None:
    for number in range(3):
        site.wait_until_final(site.submit("mail", {"to": str(number)}, queue="busy"))
    visitor = visit(site)
    visitor.menu("queues")
    expect(visitor.page.locator("tr[data-key=busy] .spark")).to_contain_text("/min", timeout=60_000)
    visitor.click("tr[data-key=busy] a")
    expect(visitor.page.locator(".tile", has_text="Finished").locator("b")).not_to_have_text("0/min", timeout=60_000)
    expect(visitor.page.locator("#series svg.chart").first).to_be_visible()
    visitor.leave()


def test_which_error_is_new_since_the_deploy(site: Site) -> None:
    site.create_dead_letter()
    second = datetime.now(UTC).replace(microsecond=0)
    deploy = until_now(lambda: (now := datetime.now(UTC).replace(microsecond=0)) > second and now)
    earlier = open_groups(site)
    site.submit("import", {"gate": "closed"}, queue="imports", max_retries=0)
    (new,) = until_now(lambda: open_groups(site).keys() - earlier.keys())
    visitor = visit(site)
    visitor.menu("dead_letters")
    visitor.choose("#new-since", "time")
    visitor.page.fill("#new-since-time", deploy.strftime("%Y-%m-%dT%H:%M:%S"))
    visitor.page.keyboard.press("Tab")
    rows = visitor.page.locator("tbody tr")
    expect(rows.filter(has_text="CARD_DECLINED")).to_have_count(1)
    expect(rows.first).to_contain_text(new)
    expect(rows.locator(".badge")).to_have_text(["New"])
    visitor.leave()


def test_what_each_worker_runs_now(site: Site) -> None:
    gate = site.folder / "worker-gate"
    job = site.submit("count", {"gate": str(gate)}, queue="gates")
    visitor = visit(site)
    expect(visitor.page.locator(".tile", has_text="Running").locator("b")).to_have_text("1")
    visitor.click(visitor.page.locator(".tile", has_text="Workers"))
    link = visitor.page.locator("tbody tr").locator(f"a[href$='/jobs/{job}'], a[href$='jobs/{job}']").first
    expect(link).to_have_text("count")
    expect(visitor.page.locator("tbody tr time[data-elapsed]").first).to_contain_text("s")
    gate.touch()
    expect(link).to_have_count(0)
    visitor.leave()


@pytest.mark.parametrize(
    ("phase", "job_type", "reason"),
    [("Queued", "no-such-handler", "No worker for this job type"), ("Waiting", "order", "Waiting for a signal")],
)
def test_why_a_job_is_stuck(site: Site, phase: str, job_type: str, reason: str) -> None:
    job = site.submit(job_type, {"number": 1}, queue="stuck")
    visitor = visit(site)
    visitor.click(visitor.page.locator(".tile", has_text=phase))
    visitor.click(f"tr[data-key='{job}'] a")
    expect(visitor.page.locator("#why")).to_contain_text(reason)
    visitor.leave()


def test_what_a_workflow_of_300_children_waits_for(site: Site) -> None:
    job = site.submit("fan-out", {"parts": 300}, queue="imports")
    detail = f"jobs/{job}/detail"
    finished = {"succeeded": 240, "failed": 30, "parked": 30}
    until_now(
        lambda: {row["status"]: row["count"] for row in site.call("GET", detail)["children"]["counts"]} == finished, 60
    )
    visitor = visit(site)
    visitor.menu("jobs")
    visitor.click("#filter")
    visitor.page.keyboard.type("type:fan-out")
    visitor.page.keyboard.press("Enter")
    visitor.click(f"tr[data-key='{job}'] a")
    expect(visitor.page.locator("#why")).to_contain_text("30 parked")
    expect(visitor.page.locator("#children [data-filter=unfinished]")).to_have_text("Not finished 30")
    expect(visitor.page.locator("#children tbody tr")).to_have_count(30)
    visitor.leave()
