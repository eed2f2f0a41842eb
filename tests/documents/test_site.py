"""The documentation site: it builds without warnings and without network; its reference names what the code has."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from dashboard.site import CHROMIUM_ARGUMENTS, find_chromium
from playwright.sync_api import sync_playwright

import detent
from detent.cli.output import print_error
from detent.core.errors import NotFound
from detent.system.error_links import error_link
from detent.web.http.problems import problem_of
from detent.web.http.route import PREFIX
from support.documents.site_search import first_result, served
from tools.docs import diagrams, error_codes, generated, reference_cli, reference_rest, reference_tables
from tools.docs.__main__ import RELEASE, nav_of
from tools.docs.anchors import anchors, slugify
from tools.docs.sources import CHINESE, DOCS, ROOT, english_anchors

SOURCE = Path(detent.__file__).parent
EXTERNAL = re.compile(r'<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)="((?:https?:)?//[^"]+)"')


def page(name: str) -> str:
    return generated.PAGES[f"reference/{name}.md"]()


def test_each_public_name_is_on_the_page_of_the_python_api() -> None:
    text = page("python")
    missing = [name for name in detent.__all__ if f"### {name}\n" not in text and f"detent.{name}`" not in text]
    assert missing == [] and "### Detent\n" in text


def test_each_command_and_option_is_on_its_page() -> None:
    sections = dict(re.findall(r"^## (detent .+)\n((?:(?!^## ).*\n?)*)", page("commands"), re.MULTILINE))
    missing = []
    for path, command in reference_cli.commands():
        names = [name for row in command.params if not getattr(row, "hidden", False) for name in row.opts]
        missing += [f"{path} {name}" for name in names if name.startswith("-") and f"`{name}`" not in sections[path]]
    assert missing == [] and len(sections) > 40


def test_each_route_is_on_its_page() -> None:
    text = page("operations")
    paths = reference_rest.openapi()["paths"]
    operations = [f"{method.upper()} {path}" for path, methods in paths.items() for method in methods]
    assert [name for name in operations if f"### {name}\n" not in text] == []
    assert len(operations) > 60 and any(name.startswith(f"POST {PREFIX}/jobs") for name in operations)


def test_each_setting_and_variable_is_on_its_page() -> None:
    text, commands = page("settings"), page("commands")
    used = set[str]()
    for path in SOURCE.rglob("*.py"):
        used |= set(re.findall(r"\bDETENT_[A-Z][A-Z0-9_]*[A-Z0-9]\b", path.read_text("utf-8")))
    used -= reference_tables.INTERNAL_VARIABLES | {"DETENT_ERROR"}
    assert {name for name in used if f"`{name}`" not in text and f"`{name}`" not in commands} == set()
    assert len(used) > 15 and "`session_idle_seconds`" in text and "`grace_seconds`" in text


def test_each_event_and_metric_is_on_its_page() -> None:
    from detent.core.contract.builtin import CONTRACTS

    events = {edge.event for contract in CONTRACTS.values() for edge in contract.edges}
    assert [name for name in events if f"`{name}`" not in page("events")] == []
    named = set[str]()
    for path in (SOURCE / "observability").glob("*.py"):
        named |= set(re.findall(r'"(detent_[a-z_]+)"', path.read_text("utf-8")))
    text = page("metrics")
    missing = {name for name in named if f"`{name}`" not in text and f"`{name}_total`" not in text}
    assert missing - {"detent_job", "detent_capture"} == set() and len(named) > 10


def test_each_table_is_on_the_page_of_the_schema() -> None:
    text = page("sql-schema")
    tables = re.findall(r"^CREATE TABLE (?:IF NOT EXISTS )?([\w.]+)", text, re.MULTILINE)
    assert len(tables) > 40 and [name for name in tables if f"| `{name}` |" not in text] == []


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"[\w/.-]+\.md", repr(nav_of(DOCS))))
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md") if CHINESE not in path.name}
    assert listed == pages | generated.PAGES.keys()


def test_a_chinese_page_has_the_headings_of_the_english_one() -> None:
    pages = [path for path in DOCS.rglob("*.md") if CHINESE in path.name]
    assert len(pages) >= 6 and all(english_anchors(path) for path in pages)


def test_start_guides_operation_and_error_codes_are_translated() -> None:
    pages = [path for folder in ("start", "guides", "operate") for path in (DOCS / folder).glob("*.md")]
    pages += [DOCS / "index.md", DOCS / "reference" / "errors.md", ROOT / "README.md"]
    english = [path for path in pages if CHINESE not in path.name]
    assert len(english) > 40
    assert [path.name for path in english if not path.with_name(path.name.replace(".md", ".zh-CN.md")).exists()] == []


def test_the_chinese_error_page_has_the_status_of_each_code() -> None:
    entry = re.compile(r"^### (\w+)\n\n(?:HTTP (\d+))?", re.MULTILINE)
    english, chinese = (
        entry.findall((DOCS / "reference" / name).read_text("utf-8")) for name in ("errors.md", "errors.zh-CN.md")
    )
    assert len(english) > 200 and chinese == english


def test_the_chinese_readme_lists_the_pages_of_the_english_one() -> None:
    links = [
        re.findall(r"\]\(([\w/.-]+\.md)\)", (ROOT / name).read_text("utf-8"))
        for name in ("README.md", "README.zh-CN.md")
    ]
    english, chinese = ({link.replace(CHINESE, ".") for link in found} for found in links)
    assert english - {"README.md"} <= chinese


def test_links_to_generated_pages() -> None:
    """An anchor in a link to a generated page exists; other links are checked by test_links."""
    texts = {name: text() for name, text in generated.PAGES.items()}
    broken = []
    for path in DOCS.rglob("*.md"):
        for address, anchor in re.findall(r"\]\(([^)\s#]+\.md)#([^)\s]+)\)", path.read_text("utf-8")):
            name = (path.parent / address).resolve().relative_to(ROOT).as_posix().removeprefix("docs/")
            if name in texts and anchor not in anchors(texts[name]):
                broken.append(f"{path.name}: {address}#{anchor}")
    assert broken == []


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documents") / "site"
    command = [sys.executable, "-m", "tools.docs", "--site", str(folder)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0 and "WARNING" not in result.stderr, result.stderr[-4000:]
    return folder / RELEASE


@pytest.mark.long
def test_the_site_builds_and_loads_nothing_from_other_hosts(site: Path) -> None:
    loaded = {address for path in site.rglob("*.html") for address in EXTERNAL.findall(path.read_text("utf-8"))}
    assert {address for address in loaded if not address.startswith("https://detent.example/")} == set()
    assert (site / "zh-CN" / "index.html").exists() and (site / "search" / "search_index.json").exists()
    assert "reference/errors/" in (site / "llms.txt").read_text("utf-8")
    assert len((site / "llms-full.txt").read_text("utf-8")) > 500_000
    assert RELEASE in (site.parent / "versions.json").read_text("utf-8")


def test_each_error_code_is_on_its_page_with_its_http_status() -> None:
    text = (DOCS / "reference" / "errors.md").read_text("utf-8")
    entries = dict(re.findall(r"^### (\w+)\n\n(.+)\n\n\*\*Do:\*\* .+$", text, re.MULTILINE))
    assert len(entries) == text.count("\n### ") > 200
    assert sorted(error_codes.codes().keys() ^ entries.keys()) == [], (
        "write or remove entries of docs/reference/errors.md"
    )
    statuses = {code: int(match[1]) for code, entry in entries.items() if (match := re.match(r"HTTP (\d+)\.", entry))}
    wrong = {code: status for code, status in error_codes.codes().items() if status not in (None, statuses.get(code))}
    assert wrong == {}


def test_the_code_of_an_error_leads_to_its_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (DOCS / "reference" / "errors.md").read_text("utf-8")
    base, anchor = error_link("JOB_NOT_FOUND").split("#")
    assert base == f"https://detent.example/docs/{RELEASE}/reference/errors/" and anchor in anchors(text)
    problem = problem_of(NotFound("no such job"))
    assert json.loads(problem.body)["type"] == error_link("JOB_NOT_FOUND")
    monkeypatch.setenv("DETENT_DOCS_URL", "https://docs.shop.example/detent/")
    assert error_link("USAGE") == f"https://docs.shop.example/detent/{RELEASE}/reference/errors/#usage"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_command_names_the_entry(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    print_error(NotFound("no such job"), as_json=False)
    shown = capsys.readouterr().err
    assert shown == "JOB_NOT_FOUND: no such job\n" + (f"See {error_link('JOB_NOT_FOUND')}\n" if terminal else "")
    print_error(NotFound("no such job"), as_json=True)
    assert json.loads(capsys.readouterr().err)["help"] == error_link("JOB_NOT_FOUND")


def test_the_diagrams_are_up_to_date() -> None:
    stale = [name for name, drawing in diagrams.pictures().items() if (DOCS / name).read_text("utf-8") != drawing]
    assert stale == [], "run `make docs` and commit the diagrams"
    assert diagrams.imported_folders()["core"] == set()


QUESTIONS = (
    "how do I retry with backoff",
    "what happens when the worker is killed",
    "how do I run this on Kubernetes",
    "how do I test a job",
    "how do I see why a job is stuck",
    "can I use it with Django",
    "how do I upgrade",
    "how do I delete old jobs",
    "how many connections does it need",
    "is it exactly once",
)


@pytest.mark.long
def test_the_first_result_of_the_search_answers_ten_questions(site: Path) -> None:
    """The entry of the question itself, on the page of short answers."""
    executable = find_chromium()
    if executable is None:
        pytest.skip("needs Chromium")
    with served(site) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=CHROMIUM_ARGUMENTS)
        page = browser.new_page()
        first = {question: first_result(page, f"{address}/", question) for question in QUESTIONS}
        browser.close()
    assert first == {question: f"start/questions/#{slugify(question)}" for question in QUESTIONS}
