"""Everything an operator does, with the keyboard alone: no test of this file uses the mouse."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from dashboard.site import (
    Site,
    assert_no_errors,
    running_site,
    second_worker,
    status_badge,
    wait_until_drawn,
)
from dashboard.views import SETTINGS
from support.waiting import until_now

pytestmark = pytest.mark.drill
MOST_TABS = 150
FOCUS = """() => {
  const node = document.activeElement, style = getComputedStyle(node), shape = node.querySelector("rect");
  const outlined = (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2)
    || (shape && parseFloat(getComputedStyle(shape).strokeWidth) >= 2);
  return {visible: Boolean(outlined) || node === document.body, html: node.outerHTML.slice(0, 120)};
}"""


@pytest.fixture(scope="module")
def module_site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    (folder / "detent.toml").write_text(SETTINGS)
    with running_site(folder, browser) as started:
        yield started


def tab_to(page: Page, selector: str, key: str = "Tab") -> None:
    """Press Tab until an element that matches has the focus; each element on the way must show that it has it."""
    for _ in range(MOST_TABS):
        page.keyboard.press(key)
        focus = page.evaluate(FOCUS)
        assert focus["visible"], f"no visible focus: {focus['html']}"
        if page.locator(f"{selector}:focus").count():
            return
    raise AssertionError(f"{selector} is not reached with {key}")


def press(page: Page, selector: str, key: str = "Enter") -> None:
    tab_to(page, selector)
    page.keyboard.press(key)


def go_to(page: Page, letter: str, path: str) -> None:
    """`g` and a letter open a page, unless a dialog is open."""
    expect(page.locator("dialog[open]")).to_have_count(0)
    page.keyboard.press("g")
    page.keyboard.press(letter)
    page.wait_for_url(f"**/{path}")
    wait_until_drawn(page)


def expect_focus(page: Page, selector: str) -> None:
    expect(page.locator(selector).first).to_be_focused()


def submit_dialog(page: Page) -> None:
    press(page, "dialog button[type=submit]")
    expect(page.locator("dialog")).to_have_count(0)


def test_find_a_job_with_the_filter_and_open_it(site: Site) -> None:
    job = site.submit("mail", {"to": "keyboard"}, queue="keys")
    page = site.sign_in("ana", "")
    go_to(page, "j", "jobs")
    page.keyboard.press("/")
    page.keyboard.type("queue:keys")
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(1)
    press(page, f"tr[data-key='{job}'] a")
    page.wait_for_url(f"**/jobs/{job}")
    assert_no_errors(page)


def test_requeue_and_discard_a_dead_letter(site: Site) -> None:
    site.create_dead_letter("first")
    page = site.sign_in("ana", "")
    go_to(page, "d", "dead-letters")
    press(page, "[data-value=list]")
    expect(page.locator("[data-value=list]")).to_have_attribute("aria-pressed", "true")
    press(page, "tbody tr a")
    page.wait_for_url("**/dead-letters/*")
    wait_until_drawn(page)
    press(page, "[data-action=requeue]")
    expect(page.locator("dialog :focus")).to_have_count(1)
    page.keyboard.press("Escape")
    expect_focus(page, "[data-action=requeue]")
    page.keyboard.press("Enter")
    press(page, "dialog button[type=submit]")
    page.wait_for_url("**/jobs/*")
    expect(status_badge(page)).to_have_text("failed")

    job = site.submit("charge", {"card": "bad"}, queue="one-person", max_retries=0, contract="streams")
    site.wait_until_final(job)
    dead_letter = site.call("GET", f"jobs/{job}")["dlq_id"]
    page.keyboard.press("Control+k")
    page.keyboard.type(dead_letter)
    expect(page.locator("#palette-options li").first).to_contain_text("Dead letter")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/dead-letters/{dead_letter}")
    wait_until_drawn(page)
    press(page, "[data-action=discard]")
    press(page, "dialog button[type=submit]")
    expect(page.locator("dialog")).to_have_count(1)  # a reason is required
    expect_focus(page, "dialog [name=reason]")
    page.keyboard.type("a test card")
    submit_dialog(page)
    expect(status_badge(page)).to_have_text("Discarded")
    assert_no_errors(page)


def test_act_on_selected_jobs_and_type_the_confirmation(site: Site) -> None:
    site.call("POST", "queues/selected/pause", {})
    jobs = [site.submit("mail", {"to": str(number)}, queue="selected") for number in range(3)]
    site.call("POST", "schedules", {"name": "obsolete", "job_type": "mail", "every": "1h", "payload": {"to": "x"}})
    page = site.sign_in("ana", "jobs?q=queue:selected")
    press(page, f"tr[data-key='{jobs[1]}'] input[type=checkbox]", "Space")
    expect(page.locator(".selection")).to_contain_text("1 selected")
    tab_to(page, ".selection .danger", "Shift+Tab")
    page.keyboard.press("Enter")
    submit_dialog(page)
    until_now(lambda: site.call("GET", f"jobs/{jobs[1]}")["phase"] == "final")
    assert site.call("GET", f"jobs/{jobs[0]}")["phase"] == "claimable"
    go_to(page, "s", "schedules")
    press(page, "tr:has-text('obsolete') [data-action=remove]")
    press(page, "dialog [name=confirmation]")
    page.keyboard.type("obsolete")
    submit_dialog(page)
    expect(page.locator("tr", has_text="obsolete")).to_have_count(0)
    assert page.evaluate("document.activeElement !== document.body"), "the focus is not lost with its row"
    assert_no_errors(page)


def test_pause_and_resume_a_queue(site: Site) -> None:
    site.wait_until_final(site.submit("mail", {"to": "x"}, queue="pausable"))
    page = site.sign_in("ana", "")
    go_to(page, "q", "queues")
    press(page, "tr[data-key=pausable] [data-action=pause]")
    expect_focus(page, "dialog [name=reason]")
    page.keyboard.type("stock-taking")
    submit_dialog(page)
    row = page.locator("tr[data-key=pausable]")
    expect(row).to_contain_text("stock-taking")
    expect(row.locator(":focus")).to_have_count(1)  # although its button was replaced
    press(page, "tr[data-key=pausable] [data-action=resume]")
    expect(row.locator("[data-action=pause]")).to_be_visible()
    assert_no_errors(page)


def test_the_focus_stays_while_the_page_of_a_queue_is_refreshed(site: Site) -> None:
    site.wait_until_final(site.submit("mail", {"to": "x"}, queue="watched"))
    page = site.sign_in("ana", "queue?name=watched")
    tab_to(page, "[data-action=pause]")
    site.submit("nobody", queue="watched")
    expect(page.locator(".tile", has_text="Ready").locator("b")).to_have_text("1")
    expect_focus(page, "[data-action=pause]")
    assert_no_errors(page)


def test_run_a_schedule_now(site: Site) -> None:
    site.call("POST", "schedules", {"name": "digest", "job_type": "mail", "every": "8h", "payload": {"to": "keys"}})
    page = site.sign_in("ana", "")
    go_to(page, "s", "schedules")
    press(page, "tr:has-text('digest') [data-action=run-now]")
    page.keyboard.type("the customer asked")
    submit_dialog(page)
    expect_focus(page, "tr:has-text('digest') [data-action=run-now]")
    press(page, ".toast a")
    page.wait_for_url("**/jobs/*")
    expect(status_badge(page)).to_have_text("succeeded")
    assert_no_errors(page)


def test_acknowledge_and_silence_an_alert(site: Site) -> None:
    site.submit("nobody-at-all", queue="alarm")
    page = site.sign_in("ana", "")
    go_to(page, "l", "alerts")
    expect(page.locator("tr[data-key^=no_worker]", has_text="nobody-at-all")).to_have_count(1)
    press(page, "tr:has-text('nobody-at-all') [data-action=acknowledge]")
    alert = page.locator("tr", has_text="nobody-at-all").first
    expect(alert).to_contain_text("ana")
    expect(alert.locator(":focus")).to_have_count(1)
    press(page, "tr:has-text('nobody-at-all') [data-action=silence]")
    page.keyboard.press("Control+a")
    page.keyboard.type("30")
    submit_dialog(page)
    [silence] = site.call("GET", "alerts/silences")["items"]
    assert silence["rule"] == "no_worker" and "nobody-at-all" in silence["subject"]
    expect(page.locator("[data-action=end-silence]")).to_have_count(1)
    press(page, "[data-action=end-silence]")
    until_now(lambda: site.call("GET", "alerts/silences")["items"] == [])
    assert_no_errors(page)


def test_create_a_webhook(site: Site) -> None:
    page = site.sign_in("boss", "")
    go_to(page, "h", "webhooks")
    press(page, "#page .toolbar button")
    expect_focus(page, "dialog [name=name]")
    page.keyboard.type("typed")
    tab_to(page, "dialog [name=url]")
    page.keyboard.type("http://127.0.0.1:9/hook")
    press(page, "dialog [name=final]", "Space")
    press(page, "dialog button[type=submit]")
    expect(page.locator("#secret")).to_contain_text("whsec_")
    page.keyboard.press("Escape")
    expect_focus(page, "#page .toolbar button")
    [webhook] = site.call("GET", "webhooks")["items"]
    assert (webhook["name"], webhook["phases"]) == ("typed", ["final"])
    assert_no_errors(page)


def test_drain_a_worker(site: Site) -> None:
    with second_worker(site) as worker:
        page = site.sign_in("ana", "")
        go_to(page, "w", "workers")
        expect(page.locator("tr", has_text="second")).to_have_count(1)
        press(page, "tr:has-text('second') [data-action=drain]")
        page.keyboard.type("a new release")
        submit_dialog(page)
        assert worker.wait(30) == 0
    assert_no_errors(page)


def test_the_graph_of_a_workflow(site: Site) -> None:
    job = site.submit("fan-out", {"parts": 20}, queue="imports")
    page = site.sign_in("ana", f"jobs/{job}")
    expect(page.locator("#children [data-filter='']")).to_have_text("All 20")
    press(page, "[data-shape=graph]")
    expect_focus(page, "[data-shape=graph]")
    scale = page.locator(".graph").get_attribute("data-scale")
    press(page, "[data-zoom=in]")
    expect(page.locator(".graph")).not_to_have_attribute("data-scale", str(scale))
    tab_to(page, ".graph a")
    first = page.evaluate("document.activeElement.dataset.job")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.dataset.job") != first
    assert page.evaluate(FOCUS)["visible"]
    chosen = page.evaluate("document.activeElement.dataset.job")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/{chosen}")
    assert_no_errors(page)


def test_menus_open_and_close_and_return_the_focus(site: Site) -> None:
    page = site.sign_in("ana", "jobs")
    for menu in ("#columns", "#saved-views", "#export"):
        press(page, f"{menu} summary")
        expect(page.locator(f"{menu}[open]")).to_have_count(1)
        page.keyboard.press("Escape")
        expect(page.locator(f"{menu}[open]")).to_have_count(0)
        expect_focus(page, f"{menu} summary")
    press(page, "#columns summary", "Space")
    press(page, "[data-column=trace]", "Space")
    expect(page.locator("thead")).to_contain_text("Trace")
    page.keyboard.press("Escape")
    tab_to(page, ".user-menu summary", "Shift+Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#sign-out")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#sign-out")).to_be_hidden()
    expect_focus(page, ".user-menu summary")
    for opener in ("#keys-button", "#palette-button"):
        tab_to(page, opener, "Shift+Tab")
        page.keyboard.press("Enter")
        expect(page.locator("dialog")).to_have_count(1)
        page.keyboard.press("Escape")
        expect(page.locator("dialog")).to_have_count(0)
        expect_focus(page, opener)
    assert_no_errors(page)


def test_the_menu_of_a_narrow_screen_and_the_skip_link(site: Site) -> None:
    page = site.sign_in("ana", "jobs", viewport={"width": 390, "height": 780})
    press(page, ".skip")
    expect_focus(page, "#main")
    tab_to(page, "#menu-button", "Shift+Tab")
    page.keyboard.press("Enter")
    expect_focus(page, "#menu a")
    page.keyboard.press("Escape")
    expect_focus(page, "#menu-button")
    page.keyboard.press("Enter")
    press(page, "#menu a[data-name=queues]")
    page.wait_for_url("**/queues")
    assert_no_errors(page)


def test_sign_in_and_out(site: Site) -> None:
    page = site.new_context().new_page()
    page.goto(f"{site.root_url}/queues")
    expect_focus(page, "#token")
    page.keyboard.type(site.tokens["ana"])
    page.keyboard.press("Enter")
    page.wait_for_url("**/queues")
    wait_until_drawn(page)
    press(page, ".user-menu summary")
    press(page, "#sign-out")
    page.wait_for_url("**/sign-in")
