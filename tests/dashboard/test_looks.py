"""How every page looks: nothing runs out of a narrow screen, text can be read, everything is reached by keyboard."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

import detent.engine
import detent.web
from dashboard.site import Site, addresses
from detent.proof.verify.rules import RULES
from detent.web.pages.pages import PAGES
from detent.web.pages.shell import LANGUAGES, preferred, words

STATIC = Path(detent.web.__file__).parent / "static"
CONTRAST = (Path(__file__).parent / "contrast.js").read_text()
REACH = """() => {
  const wanted = "a[href], button, input, select, textarea, summary, [tabindex='0']";
  return [...document.querySelectorAll(wanted)].filter((one) => one.checkVisibility({visibilityProperty: true})
    && !one.disabled && one.tabIndex >= 0).length;
}"""
LISTEN = """() => {
  const seen = new Set();
  window.reached = {count: 0, poor: []};
  addEventListener("focusin", ({target: one}) => {
    const style = getComputedStyle(one), box = one.getBoundingClientRect();
    seen.add(one);
    window.reached.count = seen.size;
    const outlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
    if (!outlined || !box.width) window.reached.poor.push(one.outerHTML.slice(0, 120));
  });
}"""
"""Remembers what gets the focus, and what does not show that it has it."""


@pytest.fixture(scope="module")
def paths(running: Site) -> dict[str, str]:
    """Every page, with something on it."""
    running.submit("mail", {"to": "held"}, queue="mail", hold=True)
    running.submit("order", {"number": 1}, queue="orders")
    running.call("POST", "schedules", {"name": "nightly", "job_type": "mail", "cron": "0 3 * * *"})
    found = addresses(running)
    running.call("POST", "queues/billing/pause", {"reason": "closed"})
    return found


def test_every_text_can_be_read_and_nothing_runs_out_of_the_screen(here: Site, paths: dict[str, str]) -> None:
    page = here.signed_in("boss", "")
    for name, path in paths.items():
        here.open(page, path)
        expect(page.locator("h1")).to_be_visible()
        for width in (360, 1920):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
            assert page.evaluate(CONTRAST) == [], (name, theme)
        assert page.troubles == [], name  # type: ignore[attr-defined]


def test_nothing_runs_out_of_a_narrow_screen_in_chinese(here: Site, paths: dict[str, str]) -> None:
    page = here.signed_in("boss", "", locale="zh-CN", viewport={"width": 360, "height": 740})
    for name, path in paths.items():
        here.open(page, path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, name
        assert page.troubles == [], name  # type: ignore[attr-defined]


def test_everything_is_reached_by_keyboard(here: Site, paths: dict[str, str]) -> None:
    page = here.signed_in("boss", "")
    for name, path in paths.items():
        here.open(page, path)
        wanted = page.evaluate(REACH)
        assert wanted > 15, name
        page.evaluate(LISTEN)
        for _ in range(wanted + 5):
            page.keyboard.press("Tab")
        found = page.evaluate("window.reached")
        assert found["poor"] == [] and found["count"] >= wanted, (name, wanted, found)


def test_the_page_of_the_api(here: Site) -> None:
    page = here.signed_in("boss", "docs", viewport={"width": 360, "height": 740})
    assert page.locator("details").count() > 60
    page.locator("summary", has_text="/api/v1/jobs/{job_id}/cancel").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate("getComputedStyle(document.querySelector('.docs details')).borderRadius") == "8px"
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        assert page.evaluate(CONTRAST) == [], theme
    assert page.troubles == []  # type: ignore[attr-defined]


def test_the_menu_on_a_narrow_screen(here: Site) -> None:
    page = here.signed_in("boss", "jobs", viewport={"width": 360, "height": 740})
    expect(page.locator("#menu")).not_to_be_visible()
    page.click("#menu-button")
    expect(page.locator("#menu")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#menu")).not_to_be_visible()
    page.click("#menu-button")
    page.click(".menu [data-name=queues]")
    expect(page.locator("h1")).to_have_text("Queues")


def test_keys_lead_around(here: Site, paths: dict[str, str]) -> None:
    page = here.signed_in("boss", "")
    page.keyboard.press("g")
    page.keyboard.press("j")
    page.wait_for_url(f"{here.at}/jobs")
    expect(page.locator("tbody tr").first).to_be_visible()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "filter"
    page.keyboard.press("Escape")
    page.locator("#filter").blur()
    page.keyboard.press("j")
    first = page.evaluate("document.activeElement.closest('tr').dataset.key")
    page.keyboard.press("?")
    expect(page.locator("dialog")).to_contain_text("Keyboard")
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    page.keyboard.press("Enter")
    page.wait_for_url(f"{here.at}/jobs/{first}")


def test_both_languages_say_the_same_things() -> None:
    english, chinese = words("en"), words("zh")
    assert english.keys() == chinese.keys()
    for key, text in english.items():
        assert text.strip() and chinese[key].strip(), key
        if not key.endswith(".one"):
            assert _names(text) == _names(chinese[key]), key
    same = {key for key in english if english[key] == chinese[key] and re.search(r"[a-z]", _plain(english[key]))}
    assert same <= {"filter.phase"}, "not translated"


def test_every_rule_of_verify_is_told_in_the_viewer_s_language() -> None:
    english, chinese = words("en"), words("zh")
    told = {key.removeprefix("rule."): text for key, text in english.items() if key.startswith("rule.")}
    assert told == RULES
    assert {key for key in chinese if key.startswith("rule.")} == {f"rule.{name}" for name in RULES}


def _plain(text: str) -> str:
    return re.sub(r"\{\w+\}", "", text)


def _names(text: str) -> set[str]:
    return set(re.findall(r"\{(\w+)\}", text))


def test_every_word_a_script_asks_for_is_there() -> None:
    table = words("en")
    asked = {
        key for file in STATIC.rglob("*.js") for key in re.findall(r"\b(?:t|rich)\(\"([\w.-]+)\"", file.read_text())
    }
    assert len(asked) > 150 and asked <= table.keys(), asked - table.keys()
    assert {f"page.{page.name}" for page in PAGES} <= table.keys()


def test_every_reason_why_a_job_waits_has_its_sentence() -> None:
    told = (Path(detent.engine.__file__).parent / "why.py").read_text()
    codes = set(re.findall(r"Why\(\s*\"([A-Z_]+)\"", told))
    said = set(re.findall(r"^  ([A-Z_]+): \(", (STATIC / "core/why.js").read_text(), re.MULTILINE))
    assert len(codes) > 15 and codes == said
    assert {f"why.{code}" for code in codes} <= words("en").keys()


def test_the_language_of_the_browser() -> None:
    assert set(LANGUAGES) == {"en", "zh"}
    for accepted, language in (
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("de,en;q=0.5,zh;q=0.4", "en"),
        ("en;q=0.3, zh-TW;q=0.7", "zh"),
        ("fr", "en"),
        ("", "en"),
        ("zh;q=x,,;;=", "en"),
    ):
        assert preferred(accepted) == language, accepted


def test_nothing_comes_from_elsewhere() -> None:
    """No address of another site, no markup made from text, in any script, style or template."""
    folder = STATIC.parent
    for file in (*STATIC.rglob("*.*"), *(folder / "templates").iterdir()):
        text = (
            file.read_text().replace('xmlns="http://www.w3.org/2000/svg"', "").replace("http://www.w3.org/2000/svg", "")
        )
        assert "http://" not in text and "https://" not in text, file
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "srcdoc",
            "|safe",
            "| safe",
        ):
            assert word not in text, (file, word)
