"""The lists of jobs and dead letters in a browser: filters, stillness, errors, actions on many, the palette."""

import csv
import json
import re
import time
from pathlib import Path
from urllib.parse import unquote_plus

import pytest
from playwright.sync_api import Page, Route, expect

from dashboard.site import Site, assert_no_errors


def rows(page: Page) -> list[str | None]:
    return [row.get_attribute("data-key") for row in page.locator("tbody tr").all()]


@pytest.mark.long
def test_typing_in_the_filter_never_blanks_the_list(site: Site) -> None:
    job = site.wait_until_final(site.submit("mail", {"to": "typed"}, queue="mail"))
    page = site.sign_in("ana", "jobs")
    expect(page.locator(f"tbody tr[data-key='{job['id']}']")).to_be_visible()
    page.evaluate(
        """() => { window.blank = 0; new MutationObserver(() => {
          if (!document.querySelector('tbody tr')) window.blank += 1;
        }).observe(document.querySelector('#page'), {childList: true, subtree: true}); }"""
    )
    page.locator("#filter").press_sequentially("nothing-like-this", delay=60)
    expect(page.locator("#filter-note")).to_contain_text("nothing-like-this")
    assert page.evaluate("window.blank") == 0, "the rows stay while the filter is typed"
    page.keyboard.press("Enter")
    expect(page.locator("#page")).to_contain_text("No matching jobs")
    expect(page.locator(".pages")).to_be_empty()
    page.fill("#filter", "status:")
    page.keyboard.press("Escape")
    page.fill("#filter", "")
    page.keyboard.press("Enter")
    expect(page.locator(f"tbody tr[data-key='{job['id']}']")).to_be_visible()
    assert_no_errors(page)


@pytest.mark.long
def test_a_job_that_ends_while_a_dialog_is_open_is_drawn(site: Site) -> None:
    gate = site.folder / "dialog-gate"
    job = site.submit("gated", {"gate": str(gate)}, queue="dialog")
    page = site.sign_in("ana", "jobs?q=queue:dialog")
    expect(page.locator("tbody .badge")).to_have_text("running")
    page.locator("tbody a").focus()
    page.keyboard.press("Control+k")
    gate.touch()
    site.wait_until_final(job)
    expect(page.locator("tbody .badge")).to_have_text("succeeded")
    expect(page.locator("#palette-input")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("tbody a")).to_be_focused()
    assert_no_errors(page)


@pytest.mark.long
def test_a_list_recovers_from_a_request_that_is_never_answered(site: Site) -> None:
    site.wait_until_final(site.submit("mail", {"to": "first"}, queue="silent"))
    page = site.sign_in("ana", "contracts")
    page.clock.install()
    site.open(page, "jobs?q=queue:silent")
    expect(page.locator("tbody tr")).to_have_count(1)
    with page.expect_request("**/api/v1/jobs?*"):
        page.route("**/api/v1/jobs?*", lambda _: None)
        site.wait_until_final(site.submit("mail", {"to": "second"}, queue="silent"))
    page.clock.fast_forward(61_000)
    expect(page.locator(".banner.disconnected")).to_be_visible()
    page.unroute("**/api/v1/jobs?*")
    site.wait_until_final(site.submit("mail", {"to": "third"}, queue="silent"))
    expect(page.locator("#show-new")).to_have_text("2 new: show")
    expect(page.locator(".banner.disconnected")).to_be_hidden()
    assert_no_errors(page)


def test_an_invalid_term_is_named_and_a_date_is_a_day_of_the_viewer(site: Site) -> None:
    site.submit("mail", {"to": "x"}, queue="mail")
    page = site.sign_in("ana", "jobs?q=since:30+status:,+longer:abc", timezone_id="Asia/Shanghai")
    expect(page.locator("#filter-error")).to_have_text(
        "Left out, because it is not valid: since:30 (valid: 1h, 7d, 2026-01-31), status:,, "
        "longer:abc (valid: 10s, 1m, 10m, 1h)"
    )
    expect(page.locator("#time-range")).to_have_value("")
    expect(page.locator(".selection")).to_be_hidden()
    with page.expect_request(re.compile("since=2026-11-17T16%3A00%3A00")):
        page.fill("#filter", "since:2026-11-18")
        page.press("#filter", "Enter")
    assert_no_errors(page)


def test_an_unknown_prefix_is_searched_as_text(site: Site) -> None:
    job = site.submit("mail", {"to": "urn:isbn:0451450523"}, queue="mail")
    site.submit("mail", {"to": "another"}, queue="mail")
    page = site.sign_in("ana", "jobs")
    page.fill("#filter", "isbn:0451450523")
    with page.expect_response("**/api/v1/jobs?*") as response:
        page.press("#filter", "Enter")
    assert "payload" not in response.value.json()["items"][0], "what the list does not show is not sent"
    expect(page.locator("tbody tr")).to_have_count(1)
    assert rows(page) == [job]
    expect(page.locator("#filter-error")).to_be_hidden()
    page.fill("#filter", r"\\host\share")
    with page.expect_request(lambda request: r"\\host\share" in unquote_plus(request.url)):
        page.press("#filter", "Enter")
    assert_no_errors(page)


@pytest.mark.long
def test_progress_moves_in_the_list_and_on_the_job_page_without_a_reload(site: Site) -> None:
    job = site.submit("reporting", queue="reports")
    claim = {"worker": "http-1", "job_types": ["reporting"], "queues": ["reports"], "lease_seconds": 300}
    (held,) = site.call("POST", "worker/claim", claim)["jobs"]
    lease = {"job_id": job, "token": held["token"]}
    pages = [site.sign_in("ana", "jobs?q=queue:reports"), site.sign_in("ana", f"jobs/{job}")]
    for page in pages:
        expect(page.locator("body[data-connection=live]")).to_have_count(1)
        page.route("**/api/v1/jobs*", lambda route: route.abort())
        page.route("**/api/v1/jobs/**", lambda route: route.abort())
    lines = [pages[0].locator("tbody .progress-line"), pages[1].locator("#page > div > div > .progress-line")]
    for share in (0.25, 0.75):
        for line in lines:
            end = time.monotonic() + 20
            while str(share) not in "".join(line.all_text_contents()):  # calls within a second are ignored
                assert time.monotonic() < end, f"the page does not show {share}"
                site.call("POST", "worker/progress", {**lease, "share": share, "message": f"{share} done"})
            expect(line.locator("progress")).to_have_attribute("value", str(int(share * 100)))
        reported = pages[1].locator(".timeline-progress progress")
        expect(reported).to_have_count(1)  # one row of the time line, however many reports
        expect(reported).to_have_attribute("value", str(int(share * 100)))
    expect(pages[1].locator(".timeline")).not_to_contain_text("progress")
    site.call("POST", "worker/settle", {**lease, "outcome": "succeed"})


@pytest.mark.long
def test_the_list_stays_still_and_announces_new_rows(site: Site) -> None:
    gate = site.folder / "still-gate"
    running = site.submit("gated", {"gate": str(gate)}, queue="still")
    page = site.sign_in("ana", "jobs?q=queue:still")
    expect(page.locator("tbody .badge")).to_have_text("running")
    page.locator("tbody a").first.focus()
    others = [site.submit("nobody", queue="still") for _ in range(3)]
    expect(page.locator("#show-new")).to_have_text("3 new: show")
    assert rows(page) == [running], "new rows do not push away what somebody reads"
    gate.touch()
    expect(page.locator("tbody .badge")).to_have_text("succeeded")
    assert page.evaluate("document.activeElement.dataset.focus") == "open", "the focus is kept"
    page.click("#show-new")
    expect(page.locator("tbody tr")).to_have_count(4)
    assert rows(page) == [*reversed(others), running]
    expect(page.locator("#show-new")).to_have_count(0)
    other = site.sign_in("ana", "jobs?q=queue:still")
    page.click("#pause-updates")
    expect(page.locator("#pause-updates")).to_have_attribute("aria-pressed", "true")
    requests: list[str] = []
    for number in (1, 2, 3):  # a list loads at most once a second: the third one is 2 s after the pause
        site.wait_until_final(site.submit("mail", {"to": "x"}, queue="still"))
        expect(other.locator("#show-new")).to_have_text(f"{number} new: show")
        if number == 2:
            page.on("request", lambda request: requests.append(request.url) if "/api/v1/jobs" in request.url else None)
            page.context.set_offline(True)
            expect(page.locator("body[data-connection=lost]")).to_have_count(1)
            page.context.set_offline(False)
            expect(page.locator("body[data-connection=live]")).to_have_count(1)
    assert requests == [], "nothing is loaded while updates are paused"
    expect(page.locator("#show-new")).to_have_count(0)
    page.click("#pause-updates")
    expect(page.locator("#show-new")).to_have_text("3 new: show")
    assert_no_errors(page, other)


@pytest.mark.long
def test_columns_time_range_saved_views_and_export(site: Site) -> None:
    job = site.wait_until_final(site.submit("mail", {"to": "=1+1"}, queue="export"))
    page = site.sign_in("ana", "jobs?q=queue:export")
    page.click("#columns summary")
    page.check("[data-column=trace]")
    page.keyboard.press("Escape")
    expect(page.locator("thead")).to_contain_text("Trace")
    expect(page.locator("tbody")).to_contain_text(job["trace_id"])
    page.select_option("#time-range", "1h")
    expect(page.locator("#filter")).to_have_value("queue:export since:1h")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.click("#saved-views summary")
    page.click("#save-view")
    page.fill("dialog input[name=name]", "exports of today")
    page.click("dialog button[type=submit]")
    site.open(page, "jobs")
    page.click("#saved-views summary")
    page.click("#saved-views a:text('exports of today')")
    expect(page.locator("#filter")).to_have_value("queue:export since:1h")
    expect(page.locator("tbody tr")).to_have_count(1)
    for format in ("csv", "ndjson"):
        page.click("#export summary")
        with page.expect_download() as download:
            page.click(f"[data-format={format}]")
        text = Path(str(download.value.path())).read_text("utf-8")
        found = next(csv.DictReader(text.splitlines())) if format == "csv" else json.loads(text)
        assert found["id"] == job["id"]
    assert_no_errors(page)


@pytest.mark.long
def test_one_person_proposes_to_discard_many_and_another_confirms(site: Site) -> None:
    letters = [site.create_dead_letter(f"card {number}") for number in range(3)]
    ana = site.sign_in("ana", "dead-letters")
    ana.click("[data-action=discard-group]")
    expect(ana.locator("dialog p").first).to_contain_text("need two people: you propose")
    expect(ana.locator("dialog p").first).not_to_contain_text("cannot be undone")
    ana.fill("dialog textarea", "test cards")
    ana.click("dialog button[type=submit]")
    expect(ana.locator(".toast")).to_contain_text("another person must confirm")
    confirm = ana.locator("[data-action=confirm-group]")
    expect(confirm).to_be_disabled()
    ben = site.sign_in("ben", "dead-letters")
    ben.click("[data-action=confirm-group]")
    ben.fill("dialog textarea", "agreed")
    ben.click("dialog button[type=submit]")
    expect(ben.locator(".toast")).to_contain_text("discarded")
    for letter in letters:
        assert site.call("GET", f"dlq/items/{letter}")["status"] == "discarded"
    boss = site.sign_in("boss", "audit")
    entry = boss.locator("tbody tr").filter(has_text="agreed").first
    expect(entry).to_contain_text("dlq.discard")
    link = entry.locator("td").nth(3).locator("a")
    expect(link).to_have_text("charge")
    assert str(link.get_attribute("href")).endswith(tuple(letters))
    assert_no_errors(ana, ben, boss)


@pytest.mark.long
def test_groups_of_errors_keep_their_places_and_new_ones_are_announced(site: Site) -> None:
    def fail(number: int) -> None:
        site.wait_until_final(site.submit("part", {"number": number}, queue="still", max_retries=0))

    def fail_import() -> None:
        site.wait_until_final(site.submit("crash", {"file": "a"}, queue="still", max_retries=0))

    fail(7)
    page = site.sign_in("ana", "dead-letters?q=queue:still")
    groups = page.locator("tbody tr")
    expect(groups).to_have_count(1)
    fail_import()
    fail_import()
    expect(page.locator("#show-new")).to_have_text("1 new: show")
    expect(groups).to_contain_text("PART_BROKEN")
    page.click("#show-new")
    expect(groups.locator("[data-label=Count]")).to_have_text(["2", "1"])
    assert groups.first.inner_text().count("RuntimeError") == 1, "the class is in the message"
    expect(groups.last.locator("code[title]")).to_have_text("Fail")
    fail(17)
    fail(27)
    expect(groups.locator("[data-label=Count]")).to_have_text(["2", "3"])
    expect(page.locator("#show-new")).to_have_count(0)
    groups.last.locator("[data-action=discard-group]").click()
    expect(page.locator("dialog")).to_contain_text("part · Fail · PART_BROKEN · this part is broken")
    page.keyboard.press("Escape")
    page.click("[data-value=list]")
    page.click("[data-action=discard-all]")
    expect(page.locator("dialog")).to_contain_text("queue:still")
    for person in ("ana", "ben"):  # other tests count dead letters of this type
        site.call("POST", "dlq/discard", {"queue": "still", "reason": "seen", "dry_run": False}, person=person)
    assert_no_errors(page)


def test_an_error_is_requeued_in_three_clicks(site: Site) -> None:
    letters = [site.create_dead_letter(f"requeue {number}") for number in range(2)]
    page = site.sign_in("ana", "")
    page.click("#menu a[data-name=dead_letters]")
    group = page.locator("tbody tr").filter(has_text="CARD_DECLINED")
    expect(group.locator(".badge")).to_have_text("New")
    expect(group).to_contain_text("Fail")
    expect(group).to_contain_text("<text>")
    expect(group.locator("svg.sparkline")).to_have_count(1)
    group.locator("[data-action=requeue-group]").click()
    page.fill("dialog input[name=rate]", "50")
    page.check("dialog input[name=take_steps]")
    page.click("dialog button[type=submit]")
    expect(page.locator(".toast")).to_contain_text("requeued")
    for letter in letters:
        item = site.call("GET", f"dlq/items/{letter}")
        assert item["status"] == "requeued"
    new_job = site.call("GET", f"dlq/items/{letters[0]}")["requeued_as"]
    site.open(page, f"jobs/{new_job}")
    origin = page.locator("[data-origin]")
    expect(origin).to_have_attribute("href", re.compile(f"/dead-letters/{letters[0]}$"))
    origin.click()
    expect(page.locator("h1")).to_have_text("charge")
    assert_no_errors(page)


def test_selected_dead_letters_are_requeued(site: Site) -> None:
    first, second = [site.create_dead_letter(f"select {number}") for number in range(2)]
    page = site.sign_in("ana", "dead-letters?view=list")
    page.check(f"tr[data-key='{first}'] input[type=checkbox]")
    page.click("[data-action=requeue-all]")
    expect(page.locator("dialog h2")).to_have_text("Requeue 1 dead letter")
    page.click("dialog button[type=submit]")
    expect(page.locator(".toast")).to_contain_text("requeued")
    assert site.call("GET", f"dlq/items/{first}")["status"] == "requeued"
    assert site.call("GET", f"dlq/items/{second}")["status"] == "open"
    assert_no_errors(page)


@pytest.mark.long
def test_the_palette_with_the_keyboard_alone(site: Site) -> None:
    job = site.submit("mail", {"to": "palette"}, queue="mail", idempotency_key="order-4711")
    page = site.sign_in("ana", "")
    page.keyboard.press("Control+k")
    expect(page.locator("#palette-input")).to_be_focused()
    page.keyboard.type("dead")
    expect(page.locator("#palette-options li").first).to_contain_text("Dead letters")
    page.keyboard.press("Enter")
    page.wait_for_url("**/dead-letters")
    for text in (job, "order-4711"):
        site.open(page, "contracts")
        page.keyboard.press("Control+k")
        page.keyboard.type(text)
        expect(page.locator("#palette-options li").first).to_have_text(re.compile(f"^Job.*{job}$"))
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/jobs/{job}")
    site.open(page, "contracts")
    page.keyboard.press("Control+k")
    page.keyboard.type("mail")
    expect(page.locator("#palette-options li").filter(has_text="Queue")).not_to_have_count(0)
    page.keyboard.press("ArrowDown")
    expect(page.locator("#palette-options li[aria-selected=true]")).to_have_attribute("id", "palette-option-1")
    page.locator("#palette-input").dispatch_event("keydown", {"key": "Enter", "isComposing": True})
    expect(page.locator("#palette-input")).to_be_focused()  # an input method has taken the key
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    assert_no_errors(page)


def test_dead_letters_that_match_no_filter_and_those_without_actions(site: Site) -> None:
    site.create_dead_letter()
    site.call("POST", f"dlq/items/{site.create_dead_letter()}/requeue", {})
    page = site.sign_in("ana", "dead-letters?q=type:nobody")
    expect(page.locator(".state")).to_contain_text("No matching dead letters")
    site.open(page, "dead-letters")
    actions = page.locator("th", has_text="Actions")
    expect(actions).to_be_visible()
    page.click("button[data-value=all]")
    expect(actions).to_be_hidden()
    declined = site.call("GET", "dlq/items?error_code=CARD_DECLINED&limit=200")["items"]
    count = page.locator("tbody tr", has_text="CARD_DECLINED").locator("td[data-label=Count]")
    expect(count).to_have_text(str(len(declined)))
    assert_no_errors(page)


@pytest.mark.long
def test_an_error_is_requeued_within_the_filter_only(site: Site) -> None:
    for queue in ("narrow", "wide", "wide"):
        site.wait_until_final(site.submit("part", {"number": 7}, queue=queue))
    page = site.sign_in("ana", "dead-letters")
    group = page.locator("tbody tr").filter(has_text="PART_BROKEN")
    expect(group.locator("[data-action=requeue-group]")).to_have_text("Requeue 3")
    page.click("button[data-value=all]")
    expect(group.locator("button")).to_have_count(0)
    page.click("button[data-value=open]")
    expect(group.locator("[data-action=requeue-group]")).to_be_visible()
    page.fill("#filter", "queue:narrow")
    expect(group.locator("[data-action=requeue-group]")).to_have_text("Requeue 1")
    expect(group.locator("[data-focus=open]")).to_have_attribute("href", re.compile(r"q=queue%3Anarrow%20group"))
    group.locator("[data-action=requeue-group]").click()
    page.click("dialog button[type=submit]")
    expect(page.locator(".toast")).to_contain_text("1 ")
    states = {item["queue"]: item["status"] for item in site.call("GET", "dlq/items?job_type=part&queue=wide")["items"]}
    assert states == {"wide": "open"}
    page.click("button[data-value=requeued]")
    expect(group).to_be_visible()
    expect(group.locator("button")).to_have_count(0)
    assert_no_errors(page)


def options(page: Page, text: str) -> list[str]:
    """What the filter offers after this text."""
    page.fill("#filter", text)
    expect(page.locator("#filter")).to_have_attribute("aria-expanded", "true")
    return [option.strip() for option in page.locator("#filter-options li").all_inner_texts()]


def test_the_filter_of_grouped_dead_letters_offers_values(site: Site) -> None:
    site.create_dead_letter("offered")
    page = site.sign_in("ana", "dead-letters")
    expect(page.locator("tbody tr").first).to_be_visible()
    assert "type:charge" in options(page, "type:")
    assert "error:CARD_DECLINED" in options(page, "error:")
    assert "queue:billing" in options(page, "queue:")
    assert_no_errors(page)


def test_the_filter_offers_the_values_of_the_present_rows(site: Site) -> None:
    site.create_dead_letter("of another filter")
    site.wait_until_final(site.submit("mail", {"to": "x"}, queue="flawless"))
    page = site.sign_in("ana", "jobs?q=queue:flawless")
    page.fill("#filter", "queue:flawless error:")
    expect(page.locator("#filter")).to_have_attribute("aria-expanded", "false")
    page.fill("#filter", "type:charge")
    page.press("#filter", "Enter")
    expect(page.locator("tbody")).to_contain_text("CARD_DECLINED")
    assert options(page, "type:charge error:") == ["error:CARD_DECLINED"]
    assert_no_errors(page)


def test_the_filter_offers_queues_and_types_to_somebody_of_a_tenant(site: Site) -> None:
    site.wait_until_final(site.submit("mail", {"to": "x"}, queue="mail", tenant_id="a"))
    page = site.sign_in("tina", "jobs")
    expect(page.locator("tbody tr").first).to_be_visible()
    assert "queue:mail" in options(page, "queue:")
    assert "type:mail" in options(page, "type:")
    assert_no_errors(page)


def test_values_that_arrive_after_enter_do_not_cover_the_page(site: Site) -> None:
    site.wait_until_final(site.submit("mail", {"to": "x"}, queue="mail"))
    page = site.sign_in("ana", "jobs")
    held: list[Route] = []
    page.route("**/api/v1/queues*", lambda route: held.append(route))
    with page.expect_request("**/api/v1/queues*"):
        page.fill("#filter", "type:mail")
    page.press("#filter", "Enter")
    with page.expect_response("**/api/v1/queues*"):
        held[0].continue_()
    page.click("#pause-updates")
    expect(page.locator("#pause-updates")).to_have_attribute("aria-pressed", "true")
    assert_no_errors(page)


def test_a_bookmarked_filter_of_dead_letters_that_is_refused_can_be_corrected(site: Site) -> None:
    site.create_dead_letter("bookmarked")
    page = site.sign_in("ana", f"dead-letters?q={'x' * 201}")
    expect(page.locator("#page")).to_contain_text("INPUT_INVALID")
    page.fill("#filter", "type:charge")
    page.press("#filter", "Enter")
    expect(page.locator("tbody")).to_contain_text("CARD_DECLINED")
    assert_no_errors(page)


def test_the_box_that_selects_the_page_follows_its_rows(site: Site) -> None:
    for number in range(2):
        site.create_dead_letter(f"selected {number}")
    page = site.sign_in("ana", "dead-letters?view=list&q=type:charge")
    page.check("#select-page")
    page.locator("tbody input").first.uncheck()
    expect(page.locator("#select-page")).not_to_be_checked()
    page.locator("tbody input").first.check()
    expect(page.locator("#select-page")).to_be_checked()
    assert_no_errors(page)
