"""The page of a job: executions, steps, children, log lines, progress, the drawn state, what a requeue changed."""

import re
import time
from pathlib import Path

import apsw
import pytest
from playwright.sync_api import Page, Route, expect

from dashboard.site import Site, assert_no_errors, status_badge, wait_until_drawn
from detent.core.contract.builtin import CONTRACTS
from support.acts import NAMES
from support.waiting import until_now

LINES_THROUGH_BOXES = """() => [...document.querySelectorAll(".diagram .edge path")].flatMap((path) => {
  const edge = path.parentNode, length = path.getTotalLength();
  const boxes = [...document.querySelectorAll(".diagram .node")]
    .filter(({dataset}) => dataset.status !== edge.dataset.from && dataset.status !== edge.dataset.to)
    .map((node) => [node.dataset.status, node.querySelector("rect").getBBox()]);
  const crossed = new Set();
  for (let at = 0; at <= length; at += 3) {
    const {x, y} = path.getPointAtLength(at);
    for (const [status, box] of boxes) {
      if (x > box.x && x < box.x + box.width && y > box.y && y < box.y + box.height) crossed.add(status);
    }
  }
  return [...crossed].map((status) => `${edge.dataset.from} -> ${edge.dataset.to} through ${status}`);
})"""
ARROWS_ON_STARTS = """() => {
  const edges = [...document.querySelectorAll(".diagram .edge")];
  const places = (edge) => {
    const start = edge.querySelector("path").getPointAtLength(0);
    const end = edge.querySelector("polygon").transform.baseVal[0].matrix;
    return {from: edge.dataset.from, to: edge.dataset.to, start, end};
  };
  const drawn = edges.map(places);
  return drawn.flatMap(({from, to, end}) => drawn
    .filter(({from: other, start}) => other === to && Math.hypot(start.x - end.e, start.y - end.f) < 6)
    .map((other) => `${from} -> ${to} ends where ${to} -> ${other.to} begins`));
}"""
FILLS_BY_STATUS = """boxes => Object.fromEntries(boxes.map((box) =>
  [box.dataset.status, ["rect", ".dot"].map((part) => getComputedStyle(box.querySelector(part)).fill).join()]))"""
ABOVE_THE_FOLD = "node => node.getBoundingClientRect().top < innerHeight - 40"


def add_notes(site: Site, job: str, number: int) -> None:
    connection = apsw.Connection(site.database_url.removeprefix("sqlite:///"))
    connection.set_busy_timeout(10_000)
    with connection:
        connection.execute(
            "WITH RECURSIVE n (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < :number) "
            "INSERT INTO detent_notes (job_id, seq, name, at, execution_no) "
            "SELECT :job, 2, 'noted', started_at, 1 FROM n, detent_jobs WHERE detent_jobs.id = :job",
            {"job": job, "number": number},
        )
    connection.close()


def is_above_the_fold(page: Page, selector: str) -> bool:
    return bool(page.locator(selector).first.evaluate(ABOVE_THE_FOLD))


@pytest.mark.long
def test_no_line_of_a_contract_runs_through_a_box(site: Site) -> None:
    page = site.sign_in("ana", "contracts")
    for name in NAMES:
        expect(page.locator("tr", has_text=CONTRACTS[name].description).locator("a")).to_have_text(name)
    for name in NAMES:
        site.open(page, f"contracts/{name}")
        expect(page.locator("#contract-description")).to_have_text(CONTRACTS[name].description)
        assert page.locator(".diagram .edge").count() > 5
        assert page.evaluate(LINES_THROUGH_BOXES) == [], name
        assert page.evaluate(ARROWS_ON_STARTS) == [], name
    assert_no_errors(page)


def test_the_worker_is_a_link_for_those_who_may_open_its_page(site: Site, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = site.submit("gated", {"gate": str(gate)}, queue="gates")
    until_now(lambda: site.call("GET", f"jobs/{job}")["phase"] == "leased")
    token = site.call("POST", "tokens", {"name": "gil", "role": "viewer", "queues": ["gates"]})
    site.tokens["gil"] = token["token"]
    for person, links in (("gil", 0), ("vic", 1)):
        page = site.sign_in(person, f"jobs/{job}")
        expect(page.locator(".details-list dt", has_text="Worker")).to_have_count(1)
        expect(page.locator(".details-list a[href*='worker?name=']")).to_have_count(links)
        assert_no_errors(page)
    gate.touch()


def test_a_failed_status_is_red_and_the_path_is_drawn(site: Site) -> None:
    job = site.call("GET", f"dlq/items/{site.create_dead_letter()}")["job_id"]
    page = site.sign_in("ana", f"jobs/{job}")
    current = page.locator(".diagram .node.current")
    expect(current).to_have_attribute("data-status", "failed")
    expect(current.locator("rect")).to_have_css("fill", "rgb(194, 42, 42)")
    taken = page.locator(".diagram .edge.taken").evaluate_all(
        "edges => edges.map(({dataset}) => [dataset.from, dataset.to])"
    )
    assert {(source, target) for source, target in taken} == {
        ("", "queued"),
        ("queued", "running"),
        ("running", "dlq_pending"),
        ("dlq_pending", "dlq_recorded"),
        ("dlq_recorded", "failed"),
    }
    assert page.evaluate(LINES_THROUGH_BOXES) == []
    expect(page.locator("#job-error")).to_contain_text("CARD_DECLINED")
    expect(page.locator(".details-list dt", has_text="_")).to_have_count(0)  # no job_id, no retry_count
    assert is_above_the_fold(page, "#job-error") and is_above_the_fold(page, "#executions .gantt-bar")
    assert_no_errors(page)


@pytest.mark.long
def test_a_running_job_shows_steps_progress_and_log_lines(site: Site) -> None:
    gate = site.folder / "import-gate"
    job = site.submit("import", {"gate": str(gate), "rows": 50, "total": 150}, queue="imports")
    page = site.sign_in("ana", f"jobs/{job}", viewport={"width": 1440, "height": 900})
    bar = page.locator("#page > div > div > .progress-line progress")
    expect(bar).to_have_attribute("value", "33")
    expect(page.locator("#logs .log")).to_contain_text("the file is locked")
    expect(page.locator("#logs .log")).to_contain_text("execution 2 begins")
    for selector in ("#job-error", "#executions .gantt-bar", ".progress-line", "h2:text-is('Payload')"):
        assert is_above_the_fold(page, selector), selector
    expect(page.locator(".timeline-progress progress")).to_have_count(1)
    expect(page.locator(".timeline")).not_to_contain_text("progress")
    rows = page.locator("#executions tbody tr")
    expect(rows).to_have_count(40)
    page.click("#executions >> text=Show more")
    expect(rows).to_have_count(2 + 53)
    expect(rows.first).to_contain_text("Execution 2")
    expect(rows.filter(has_text="open gate").locator("td").last).to_have_text(re.compile(r"^\d.* s …$"))
    traceback = rows.filter(has_text="Execution 1").locator("details")
    traceback.locator("summary").click()
    page.locator("#compare summary").click()
    page.locator("#compare-a").focus()
    page.evaluate("document.querySelector('#compare-a').addEventListener('blur', ({target}) => target.remove())")
    elapsed = rows.first.locator("td").last.text_content() or ""
    expect(rows.first.locator("td").last).not_to_have_text(elapsed)
    expect(traceback).to_have_attribute("open", "")  # and stays open while the bars grow
    expect(page.locator("#compare-a")).to_be_focused()  # and an open list of options, too
    page.select_option("#gantt-zoom", "1")
    expect(rows).to_have_count(2)
    page.locator("#executions summary", has_text="load 1").click()
    expect(page.locator("#executions .tree")).to_contain_text("waiting for")
    exact = page.locator("#executions time").first
    assert exact.text_content() and exact.get_attribute("title") and exact.get_attribute("datetime")
    compared = page.locator("#compare tbody")
    expect(compared.locator("tr", has_text="load 2").locator("td").nth(0)).to_have_text("–")
    expect(compared.locator("tr", has_text="load 1").locator("td").nth(1)).to_have_text("–")
    expect(compared.locator("tr", has_text="Error").locator("td").nth(0)).to_contain_text("the file is locked")
    expect(compared.locator("tr", has_text="Outcome").locator("td")).to_have_text(["retrying", "running"])
    gate.touch()
    expect(page.locator("#logs .log")).to_contain_text("the gate is open")
    expect(status_badge(page)).to_have_text("succeeded")
    expect(bar).to_have_count(0)
    assert_no_errors(page)


@pytest.mark.long
def test_three_hundred_children_as_list_and_graph(site: Site) -> None:
    job = site.submit("fan-out", {"parts": 300}, queue="imports")
    page = site.sign_in("ana", f"jobs/{job}")
    chips = page.locator("#children [data-filter]")
    expect(page.locator("#children [data-filter=unfinished]")).to_have_text("Not finished 30", timeout=60_000)
    expect(page.locator("#children [data-filter='']")).to_have_text("All 300")
    rows = page.locator("#children tbody tr")
    expect(rows).to_have_count(30)  # what it waits for, without a click
    expect(rows.first).to_contain_text("parked")
    expect(page.locator(".details-list dt:text-is('Waiting for') + dd")).to_have_text("Child jobs")
    chips.filter(has_text="failed").click()
    expect(rows).to_have_count(30)
    expect(rows.first.locator(".badge")).to_have_class("badge bad")
    expect(rows.first).to_contain_text("PART_BROKEN")
    page.locator("#children [data-filter='']").click()
    expect(rows).to_have_count(50)
    for shown in (100, 150, 200, 250, 300):
        page.click("#children >> text=Show more")
        expect(rows).to_have_count(shown)
    page.click("[data-shape=graph]")
    boxes = page.locator(".graph a")
    expect(boxes).to_have_count(300)
    expect(page.locator(".graph a.bad")).to_have_count(30)
    fills = boxes.evaluate_all(FILLS_BY_STATUS)
    assert fills.keys() == {"succeeded", "failed", "parked"}
    assert len(set(fills.values())) == 3, "each status has a colour of its own"
    scale = _scale(page)
    page.click("[data-zoom=in]")
    assert _scale(page) > scale
    page.locator(".graph").focus()
    page.keyboard.press("-")
    assert _scale(page) == pytest.approx(scale, rel=0.01)
    page.locator(".graph").hover()
    page.mouse.wheel(0, -100)
    page.wait_for_function("before => Number(document.querySelector('.graph').dataset.scale) > before * 1.1", arg=scale)
    page.keyboard.press("0")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "part#2 · succeeded"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("part")
    wait_until_drawn(page)
    page.set_viewport_size({"width": 390, "height": 780})
    site.open(page, f"jobs/{job}")
    page.click("[data-shape=graph]")
    expect(boxes).not_to_have_count(0)
    assert _scale(page) > 0.8, "names can be read"
    assert page.locator(".graph").evaluate("graph => graph.style.touchAction") == "pan-y", "all rows are in view"
    assert_no_errors(page)


def _scale(page: Page) -> float:
    return float(page.locator(".graph").get_attribute("data-scale") or 0)


def test_children_that_cannot_be_read_leave_no_empty_list_and_graph(site: Site) -> None:
    job = site.submit("fan-out", {"parts": 4}, queue="imports")
    page = site.sign_in("ana", "jobs")
    page.route("**/children?*", lambda route: route.fulfill(status=503, json={"detail": "not now"}))
    page.goto(f"{site.root_url}/jobs/{job}")
    expect(page.locator("#children .error")).to_be_visible()
    expect(page.locator("#children .graph")).to_be_hidden()
    expect(page.locator("#children table")).to_be_hidden()


@pytest.mark.drill  # three runs hung before its end, none of eight later ones did: the cause is not known
def test_children_are_live(site: Site) -> None:
    job = site.submit("fan-out", {"parts": 4}, queue="imports")
    page = site.sign_in("ana", f"jobs/{job}")
    expect(page.locator("#children tbody tr")).to_have_count(1)
    expect(page.locator("#children [data-label=Duration]")).to_contain_text(re.compile(r"\d m?s"))
    child = page.locator("#children tbody a").get_attribute("href")
    assert child is not None
    site.call("POST", f"jobs/{child.split('/')[-1]}/signal", {"name": "released", "data": None})
    expect(page.locator("#children [data-filter='standard/succeeded']")).to_have_text("succeeded 4")
    expect(page.locator("#children [data-filter=unfinished]")).to_have_count(0)
    expect(status_badge(page)).to_have_text("succeeded")
    assert_no_errors(page)


@pytest.mark.long
def test_a_job_with_many_notes_and_a_long_text(site: Site) -> None:
    gate = site.folder / "notes-gate"
    job = site.submit("gated", {"gate": str(gate)}, queue="gates")
    page = site.sign_in("ana", f"jobs/{job}")
    expect(status_badge(page)).to_have_text("running")
    add_notes(site, job, 250)
    page.reload()
    expect(page.locator(".timeline > li")).to_have_count(200)
    expect(page.locator("#executions tbody tr").first).to_contain_text("Execution 1")
    expect(page.locator(".diagram .edge.taken")).to_have_count(2)
    gate.touch()
    long = site.submit("mail", {"to": "x" * 500_000}, queue="mail")
    site.open(page, f"jobs/{long}")
    expect(page.locator("h1")).to_have_text("mail")
    assert page.evaluate("document.documentElement.scrollHeight") < 5_000
    assert_no_errors(page)


def test_executions_and_a_long_payload_on_a_narrow_screen(site: Site) -> None:
    job = site.wait_until_final(site.submit("snoozes", {"times": 1, "note": "x" * 5_000}, queue="imports"))
    page = site.sign_in("ana", f"jobs/{job['id']}", viewport={"width": 360, "height": 740})
    page.click("#compare summary")
    expect(page.locator("#compare tbody tr")).not_to_have_count(0)
    for table in ("#compare .table-wrap", "#executions .table-wrap"):
        assert page.locator(table).evaluate("node => node.scrollWidth <= node.clientWidth"), table
    expect(page.locator("#executions .table-wrap")).to_have_css("max-height", "none")
    expect(page.locator(".diagram-wrap")).to_have_css("background-image", re.compile("gradient"))
    started = page.locator("#executions time.exact").first
    assert started.evaluate("node => node.getClientRects().length") == 1, "a time in one line"
    page.evaluate("document.querySelector('#executions .duration').textContent = '12 min 16 s …'")
    assert page.locator("#executions .table-wrap").evaluate("node => node.scrollWidth <= node.clientWidth"), "not cut"
    page.click("[data-action=requeue]")
    payload = page.locator("dialog textarea.json")
    expect(payload).to_be_focused()
    assert payload.evaluate("area => area.scrollTop") == 0, "it begins at its first line"
    assert_no_errors(page)


@pytest.mark.long
def test_what_a_job_with_more_than_a_thousand_children_waits_for(site: Site) -> None:
    """The answers are changed to those of a job whose first page of children has all ended."""
    job = site.submit("fan-out", {"parts": 40}, queue="imports")
    page = site.sign_in("ana", f"jobs/{job}")
    expect(page.locator("#children [data-filter=unfinished]")).to_have_text("Not finished 4")

    def answer(route: Route) -> None:
        response = route.fetch()
        body = response.json()
        if "/detail" in route.request.url:
            body["children"]["total"] += 1000
            body["children"]["counts"].append({**body["children"]["counts"][0], "phase": "claimable", "count": 1})
        elif "phase=" not in route.request.url:
            body["items"] = [child for child in body["items"] if child["phase"] == "final"]
        route.fulfill(response=response, json=body)

    page.route(re.compile(f"jobs/{job}/(detail|children)"), answer)
    site.open(page, f"jobs/{job}")
    expect(page.locator("#children [data-filter=unfinished]")).to_have_text("Not finished 5")
    expect(page.locator("#children tbody tr")).to_have_count(4)
    assert_no_errors(page)


@pytest.mark.long
def test_the_payload_of_a_dead_letter_and_its_requeue(site: Site) -> None:
    dead_letter, long = site.create_dead_letter(), "-" * 500
    page = site.sign_in("ana", f"dead-letters/{dead_letter}")
    expect(page.locator("#page p").first).to_contain_text(f"Dead letter {dead_letter}")
    expect(page.locator(".card", has_text="Context").locator(".tree")).to_contain_text("execution_no")
    expect(page.locator(".card", has_text="Context").locator(".tree")).not_to_contain_text("null")
    requeued = site.call("POST", f"dlq/items/{dead_letter}/requeue", {"payload": {"card": "card-7"}})["job"]["id"]
    diff = page.locator("table.diff tbody tr")
    expect(diff).to_have_count(1)
    expect(diff.locator("td")).to_have_text(['"bad"', '"card-7"'])
    site.open(page, f"jobs/{requeued}")
    expect(diff.locator("td")).to_have_text(['"bad"', '"card-7"'])
    other = site.create_dead_letter(f"{long}old")
    site.call("POST", f"dlq/items/{other}/requeue", {"payload": {"card": f"{long}new"}})
    site.open(page, f"dead-letters/{other}")
    expect(diff.locator("td")).to_have_text([re.compile('^….*-old"$'), re.compile('^….*-new"$')])
    site.open(page, f"jobs/{requeued}")
    page.locator("dt:text-is('Requeued from') + dd a").click()
    page.wait_for_url(f"{site.root_url}/dead-letters/{dead_letter}")
    blind = site.sign_in("blind", f"jobs/{requeued}")
    expect(blind.locator("table.diff")).to_have_count(0)
    assert "card-7" not in blind.content()
    assert_no_errors(page, blind)


@pytest.mark.long
def test_the_log_of_a_long_job_is_read_in_parts(site: Site) -> None:
    job = site.submit("snoozes", {"times": 100}, queue="imports")
    site.wait_until_final(job)
    page = site.sign_in("ana", f"jobs/{job}")
    entries = page.locator(".timeline > li")
    expect(entries).to_have_count(200)
    expect(entries.first).to_contain_text("succeeded")
    page.locator(".slider input").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".slider")).to_contain_text("202 / 203 · running")
    expect(page.locator(".timeline > li.future")).to_have_count(1)
    page.click("#older-events")
    expect(entries.last).to_contain_text("job.created")
    assert entries.count() > 200
    assert_no_errors(page)


@pytest.mark.long
def test_the_newest_executions_of_a_long_job_can_be_chosen(site: Site) -> None:
    job = site.submit("snoozes", {"times": 150}, queue="imports")
    site.wait_until_final(job)
    before = site.call("GET", f"jobs/{job}/events?order=desc&limit=2")["next_cursor"]
    page = site.sign_in("ana", "jobs")
    events = re.compile(f"{job}/events")
    page.route(events, lambda route: route.continue_(url=f"{route.request.url}&cursor={before}"))
    site.open(page, f"jobs/{job}")  # as it was before the last execution
    expect(page.locator("#gantt-zoom option", has_text="Execution 150")).to_have_count(1)
    page.unroute(events)
    page.context.set_offline(True)
    expect(page.locator("body[data-connection=lost]")).to_have_count(1)
    page.context.set_offline(False)
    for select in ("#gantt-zoom", "#compare-b"):
        expect(page.locator(f"{select} option", has_text="Execution 151")).to_have_count(1)
    page.locator("#compare summary").click()
    expect(page.locator("#compare-b")).to_have_value("151")
    assert_no_errors(page)


@pytest.mark.long
def test_the_page_of_a_large_job_opens_within_a_second(site: Site) -> None:
    """300 children, 1,000 steps, 10,000 entries of the log; each request is bounded, the best of three is measured."""
    job = site.submit("large", {"steps": 1000, "parts": 300}, queue="imports")
    page = site.sign_in("ana", f"jobs/{job}")
    expect(page.locator("#children [data-filter='']")).to_have_text("All 300", timeout=60_000)
    add_notes(site, job, 10_000)
    best = 1e9
    for _ in range(3):
        started = time.monotonic()
        page.goto(f"{site.root_url}/jobs/{job}")
        page.locator("#children tbody tr").first.wait_for()
        page.locator("#executions tbody tr").first.wait_for()
        best = min(best, time.monotonic() - started)
    assert best < 1.0
    assert page.evaluate("document.querySelectorAll('*').length") < 4000
    assert_no_errors(page)
