"""Appearance of every page: contrast, narrow screens, keyboard access; and completeness of the translations."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

import detent.engine.reads.why
import detent.web
from dashboard.site import Site, assert_no_errors, page_paths
from detent.proof.verify.rules import RULES
from detent.web.pages.pages import PAGES
from detent.web.pages.shell import LANGUAGES, preferred, words

STATIC = Path(detent.web.__file__).parent / "static"
CONTRAST_SCRIPT = (Path(__file__).parent / "contrast.js").read_text()
CONTRAST = f"() => {{ {CONTRAST_SCRIPT} return lowContrastTexts(); }}"
FOCUSABLE_COUNT = """() => {
  const selector = "a[href], button, input, select, textarea, summary, [tabindex='0']";
  return [...document.querySelectorAll(selector)].filter((node) => node.checkVisibility({visibilityProperty: true})
    && !node.disabled && node.tabIndex >= 0 && (node.type !== "radio" || node.checked)).length;
}"""
"""The number of elements that Tab reaches; of a group of radio buttons, the checked one."""
RECORD_FOCUS = """() => {
  const focused = new Set();
  window.reached = {count: 0, unmarked: []};
  addEventListener("focusin", ({target: node}) => {
    const style = getComputedStyle(node), box = node.getBoundingClientRect();
    focused.add(node);
    window.reached.count = focused.size;
    const outlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
    if (!outlined || !box.width) window.reached.unmarked.push(node.outerHTML.slice(0, 120));
  });
}"""
"""Records which elements get the focus, and which of them show no focus outline."""
WORDS = {
    "phase.claimable": ("Queued", "排队中"),
    "phase.final": ("Finished", "已结束"),
    "col.ready": ("Ready", "就绪"),
    "col.scheduled": ("Scheduled", "已计划"),
    "col.running": ("Running", "执行中"),
    "queues.state.active": ("Active", "活跃"),
    "alert.none": ("No alerts", "没有告警"),
    "alert.resolved": ("Resolved", "已恢复"),
    "alert.channel": ("Channel", "通知渠道"),
    "alert.delivered": ("Delivered", "已送达"),
    "job.state": ("State", "状态"),
    "job.timeline": ("Timeline", "时间线"),
    "job.details": ("Details", "详情"),
    "job.integrity": ("Integrity check", "完整性校验"),
    "action.abort": ("Abort", "中止"),
    "confirm.requeue": ("Requeue as a new job?", "作为新任务重新入队？"),
    "job.requeued-from": ("Requeued from", "重新入队自"),
    "limits.applies-to": ("Applies to", "适用范围"),
    "limits.concurrency": ("Max concurrent", "最大并发数"),
    "limits.rate": ("Max starts per second", "每秒最大启动数"),
    "approvals.count": ("{n} of {quorum} approved", "已批准 {n}/{quorum}"),
    "alert-kind.no_worker": ("ready jobs have no live worker", "就绪的任务没有存活的工作进程"),
    "worker.all-jobs": ("All jobs of this worker", "该工作进程的全部任务"),
}
"""The names of things that pages had other names for."""
OLD_WORDS = re.compile(
    r"^(?:due|later|held|over|told|told to|bounds|at once|facts|ended)$|ready or due|\bdue jobs?\b|flowing|all quiet"
    r"|\btold\b|where it stands|what happened|log sound|give (?:this|the) job up|make a new job|made from"
    r"|begin a second|of \S+ missing|closes the door|token is over|asked in a way|\bfired? (?:at|by|of)\b|\bended as\b"
    r"|(?<!dead )(?<!dead-)\bletters?\b",
    re.IGNORECASE | re.MULTILINE,
)
CUT = """() => [...document.querySelectorAll(".table-wrap, table.cards td, .preferences select, .tile, .badge")]
  .filter((node) => node.scrollWidth > node.clientWidth + 1 && node.checkVisibility())
  .map((node) => node.outerHTML.slice(0, 200))"""
"""Cells and tables whose content is wider than they are: it is cut, covers its neighbour, or needs scrolling."""

HARD_TO_USE = """() => {
  const visible = (selector) => [...document.querySelectorAll(selector)].filter((node) => node.checkVisibility());
  const low = visible("button:not(.plain), .button, summary.button")
    .filter((node) => node.getBoundingClientRect().height < 32).map((node) => node.textContent);
  const tiny = visible(".diagram text").filter((node) => node.getBoundingClientRect().height < 10);
  const cut = visible("input[placeholder]").filter((node) => {
    const context = new OffscreenCanvas(1, 1).getContext("2d"), style = getComputedStyle(node);
    context.font = style.font;
    return context.measureText(node.placeholder).width > node.clientWidth - 2 * parseFloat(style.paddingLeft);
  });
  const broken = visible("td code, dd code, summary code").filter((node) => {
    const range = document.createRange(), texts = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
    let last = null;
    while (texts.nextNode()) {
      for (const [index, letter] of [...texts.currentNode.data].entries()) {
        range.setStart(texts.currentNode, index);
        range.setEnd(texts.currentNode, index + 1);
        const {top} = range.getBoundingClientRect();
        if (last && top > last.top + 2 && /[A-Za-z]/.test(last.letter)) return true;
        last = {top, letter};
      }
    }
    return false;
  });
  return [...low, ...[...tiny, ...cut, ...broken].map((node) => node.outerHTML.slice(0, 200))];
}"""
"""Buttons too low for a finger, diagrams too small to read, placeholders that are cut, names broken inside a word."""

OLD_TIME = """async () => {
  const {timeElement} = await import(new URL("../core/time.js", document.querySelector("script[type=module]").src));
  return timeElement("2020-01-01T00:00:00Z").textContent;
}"""

HEADS_AND_CELLS = """() => [...document.querySelectorAll(".card:has(h2):has(.table-wrap)")].map((card) => {
  const left = (node) => node.getBoundingClientRect().left + parseFloat(getComputedStyle(node).paddingLeft);
  return [left(card.querySelector("h2")), left(card.querySelector("th"))];
})"""
"""Of each card with a table: where its heading begins, and where its first column begins."""


@pytest.fixture(scope="module")
def paths(module_site: Site) -> dict[str, str]:
    """The path of every page, with data on it."""
    module_site.submit("mail", {"to": "held"}, queue="mail", hold=True)
    module_site.submit("order", {"number": 1}, queue="orders")
    nightly = {"name": "nightly", "job_type": "mail", "cron": "0 3 * * *", "payload": {"to": "all"}}
    module_site.call("POST", "schedules", nightly)
    page_path_by_name = page_paths(module_site)
    module_site.call("POST", "queues/lonely/pause", {"reason": "closed"})
    return page_path_by_name


@pytest.mark.long
def test_contrast_is_sufficient_and_nothing_overflows(site: Site, paths: dict[str, str]) -> None:
    page = site.sign_in("boss", "")
    for name, path in paths.items():
        site.open(page, path)
        expect(page.locator("h1")).to_be_visible()
        assert OLD_WORDS.findall(page.inner_text("body")) == [], name
        for width in (360, 390, 1440, 1920):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
            assert page.evaluate(CUT) == [], (name, width)
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
            assert page.evaluate(CONTRAST) == [], (name, theme)
        assert_no_errors(page)


def test_lines_of_a_diagram_are_visible_and_tables_begin_below_their_heading(site: Site) -> None:
    page = site.sign_in("boss", "contracts/standard", viewport={"width": 1440, "height": 900})
    expect(page.locator(".diagram")).to_be_visible()
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        assert page.evaluate(CONTRAST) == [], theme
    columns = page.evaluate(HEADS_AND_CELLS)
    assert columns and all(heading == column for heading, column in columns), columns


def test_chinese_punctuation(site: Site) -> None:
    job = site.submit("nobody", queue="lonely")
    page = site.sign_in("boss", f"jobs/{job}", locale="zh-CN")
    expect(page.locator("#why")).to_contain_text("没有工作进程处理该任务类型：没有存活的工作进程")
    expect(page.locator("main")).to_contain_text("job.claimed、job.cancelled")
    assert re.fullmatch(r"[\d,]+ 天前", page.evaluate(OLD_TIME)), "a space after the number, as in a duration"
    site.open(page, "enqueue?name=mail")
    expect(page.locator("form.enqueue")).to_contain_text("契约：standard")
    assert_no_errors(page)


def test_limits_and_sentences_are_chinese(site: Site) -> None:
    site.create_dead_letter()
    site.call("PUT", "limits", {"per": "tenant", "concurrency": 100})
    site.call("POST", "limits/remove", {"per": "tenant"})
    page = site.sign_in("boss", "audit", locale="zh-CN")
    for act in ("limit.set", "limit.remove"):
        entry = page.locator("tbody tr").filter(has=page.get_by_text(act, exact=True)).first
        expect(entry.locator("td a")).to_have_text("所有任务（每个租户分别计算）")
    site.open(page, "dead-letters")
    page.locator("[data-action=discard-group]").first.click()
    expect(page.locator("dialog p").first).to_contain_text(re.compile("和原因。(这|全部)"))
    assert_no_errors(page)


@pytest.mark.long
@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_a_phone_shows_everything_large_enough_and_whole(site: Site, paths: dict[str, str], locale: str) -> None:
    page = site.sign_in("boss", "", locale=locale, viewport={"width": 390, "height": 780})
    for name, path in {**paths, "contract": "contracts/gate-b2", "docs": "docs"}.items():
        site.open(page, path)
        assert page.evaluate(HARD_TO_USE) == [], name


@pytest.mark.long
def test_nothing_overflows_a_narrow_screen_in_chinese(site: Site, paths: dict[str, str]) -> None:
    page = site.sign_in("boss", "", locale="zh-CN", viewport={"width": 360, "height": 740})
    for name, path in paths.items():
        site.open(page, path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, name
        assert page.evaluate(CUT) == [], name
        for menu in page.locator(".drop-down > summary").all():
            menu.click()
            panel = page.locator(".drop-down[open] .drop-panel")
            expect(panel).not_to_be_empty()
            shown, opener = panel.bounding_box(), menu.bounding_box()
            assert shown and opener and shown["x"] >= 0, name
            assert shown["x"] < opener["x"] + opener["width"] and opener["x"] < shown["x"] + shown["width"], name
            assert page.evaluate("document.documentElement.scrollWidth") <= 360, (name, menu.inner_text())
            page.keyboard.press("Escape")
        assert_no_errors(page)


@pytest.mark.long
def test_every_control_is_reached_by_keyboard(site: Site, paths: dict[str, str]) -> None:
    page = site.sign_in("boss", "")
    for name, path in paths.items():
        site.open(page, path)
        expected = page.evaluate(FOCUSABLE_COUNT)
        assert expected > 15, name
        page.evaluate(RECORD_FOCUS)
        for _ in range(expected + 15):  # a field for date and time has several stops
            page.keyboard.press("Tab")
        reached = page.evaluate("window.reached")
        assert reached["unmarked"] == [] and reached["count"] >= expected, (name, expected, reached)


def test_the_api_page(site: Site) -> None:
    page = site.sign_in("boss", "docs", viewport={"width": 360, "height": 740})
    assert page.locator("details").count() > 60
    page.locator("summary", has_text="/api/v1/jobs/{job_id}/cancel").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate("getComputedStyle(document.querySelector('.docs details')).borderRadius") == "8px"
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        assert page.evaluate(CONTRAST) == [], theme
    assert_no_errors(page)


def test_the_menu_on_a_narrow_screen(site: Site) -> None:
    page = site.sign_in("boss", "jobs", viewport={"width": 360, "height": 740})
    expect(page.locator("#menu")).not_to_be_visible()
    page.click("#menu-button")
    expect(page.locator("#menu")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#menu")).not_to_be_visible()
    page.click("#menu-button")
    page.click(".menu [data-name=queues]")
    expect(page.locator("h1")).to_have_text("Queues")


def test_keyboard_shortcuts(site: Site, paths: dict[str, str]) -> None:
    page = site.sign_in("boss", "")
    page.keyboard.press("g")
    page.keyboard.press("j")
    page.wait_for_url(f"{site.root_url}/jobs")
    expect(page.locator("tbody tr").first).to_be_visible()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "filter"
    page.keyboard.press("Escape")
    page.locator("#filter").blur()
    page.keyboard.press("j")
    first = page.evaluate("document.activeElement.closest('tr').dataset.key")
    page.keyboard.press("?")
    expect(page.locator("dialog")).to_contain_text("Keyboard shortcuts")
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    page.keyboard.press("Enter")
    page.wait_for_url(f"{site.root_url}/jobs/{first}")


def test_both_languages_have_the_same_keys_and_placeholders() -> None:
    english, chinese = words("en"), words("zh")
    assert english.keys() == chinese.keys()
    for key, text in english.items():
        assert text.strip() and chinese[key].strip(), key
        if not key.endswith(".one"):
            assert _placeholders(text) == _placeholders(chinese[key]), key
    same = {
        key
        for key in english
        if english[key] == chinese[key] and re.search(r"[a-z]", _without_placeholders(english[key]))
    }
    assert same <= {"filter.phase"}, "not translated"


def test_no_space_follows_a_time_in_chinese() -> None:
    """A time ends with a Chinese word, as in "2 分钟前"."""
    found = {key for key, text in words("zh").items() if re.search(r"\{time\} [\u4e00-\u9fff]", text)}
    assert found == set()


def test_pages_use_the_words_of_the_field() -> None:
    english, chinese = words("en"), words("zh")
    assert {key: (english[key], chinese[key]) for key in WORDS} == WORDS
    templates = {file.name: file.read_text() for file in (STATIC.parent / "templates").iterdir()}
    for key, text in {**english, **templates}.items():
        assert not OLD_WORDS.search(text), (key, text)
    for key, text in english.items():
        assert not (key.startswith("schedules.") and re.search(r"\bfir(e|es|ed|ing)\b", text)), (key, "a schedule runs")


def test_every_rule_of_verify_is_translated() -> None:
    english, chinese = words("en"), words("zh")
    keys = {f"rule.{name}" for name in RULES}
    for table in (english, chinese):
        assert {key for key in table if key.startswith("rule.")} == keys
    assert [key for key in keys if chinese[key] == english[key]] == []


def _without_placeholders(text: str) -> str:
    return re.sub(r"\{\w+\}", "", text)


def _placeholders(text: str) -> set[str]:
    return set(re.findall(r"\{(\w+)\}", text))


def test_every_text_key_of_a_script_exists() -> None:
    table = words("en")
    call = re.compile(r"\b(?:t|richText)\(\s*\"([\w.-]+)\"")
    keys = {key for file in STATIC.rglob("*.js") for key in call.findall(file.read_text())}
    assert len(keys) > 150 and keys <= table.keys(), keys - table.keys()
    assert {f"page.{page.name}" for page in PAGES} <= table.keys()


def test_every_reason_of_a_status_has_its_sentences() -> None:
    source = Path(detent.engine.reads.why.__file__).read_text()
    codes = set(re.findall(r"Why\(\s*\"([A-Z_]+)\"", source))
    script = (STATIC / "pages/job/why_card.js").read_text()
    assert len(codes) > 15 and codes == set(re.findall(r"^  ([A-Z_]+): \(", script, re.MULTILINE))
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


def test_nothing_is_loaded_from_another_site() -> None:
    """No script, style sheet or template has a URL of another site or creates markup from text."""
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
