"""Every block of Python, shell, JSON, TOML and YAML on the site and in the READMEs runs, or is checked."""

import re
from pathlib import Path

import pytest

from support.documents.blocks import ROOT, SHELL, Block, blocks, pages, problems, run_python

TESTED_ELSEWHERE = {
    "docs/guides/client.md": "client/test_client_page.py",
    "docs/guides/fastapi.md": "integrations/test_fastapi.py",
    "docs/guides/hooks.md": "client/test_hooks_page.py",
    "docs/guides/moving.md": "documents/test_moving_page.py",
    "docs/guides/testing.md": "testing/test_docs_page.py",
    "docs/operate/deploys.md": "worker/test_deploys.py",
    "docs/operate/worker.md": "worker/test_docs_page.py",
    "docs/reference/cli.md": "cli/test_page.py",
    "docs/understand/contracts/": "documents/test_contract_pages.py",
}
"""Page or folder -> the test that runs its Python blocks and compares what they do with the text."""
LANGUAGES = SHELL | {"python", "py", "json", "toml", "yaml", "ini", "sql", "text", "dockerfile", "javascript", "promql"}
TRANSLATED = [
    page for page in pages() if page.startswith(("docs/start", "docs/guides", "docs/operate")) and ".zh-CN." in page
]
"""Their blocks are those of the English pages but for comments, so that they need not run again."""
RUN = [
    page for page in pages() if page not in TRANSLATED and not any(page.startswith(name) for name in TESTED_ELSEWHERE)
]
WITH_PYTHON = [page for page in RUN if any(block.language == "python" for block in blocks(page))]


def test_every_block_has_a_language() -> None:
    unknown = [block.place for page in pages() for block in blocks(page) if block.language not in LANGUAGES]
    assert unknown == []


def test_every_block_is_valid() -> None:
    everything = [block for page in pages() for block in blocks(page)]
    assert len(everything) > 150
    assert [problem for block in everything for problem in problems(block)] == []


@pytest.mark.parametrize("page", TRANSLATED)
def test_a_translated_page_has_the_blocks_of_the_english_one(page: str) -> None:
    code, english = (
        [re.sub(r"#.*", "", block.code) for block in blocks(name)] for name in (page, page.replace(".zh-CN.", "."))
    )
    assert code == english


@pytest.mark.parametrize("page", WITH_PYTHON)
def test_the_python_blocks_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DETENT_URL", "sqlite:///jobs.db")
    run_python(page)


def test_pages_that_are_tested_elsewhere() -> None:
    for page, test in TESTED_ELSEWHERE.items():
        text = (ROOT / "tests" / test).read_text("utf-8")
        parts = [part for part in page.split("/") if part]
        assert page in text or " / ".join(f'"{part}"' for part in parts) in text or f"{parts[-2]}" in text, (page, test)


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("json", '{"a": 1,}'),
        ("python", "def broken(:\n"),
        ("python", "from detent import Detentt\n"),
        ("python", "from detent.integrations.djago import x\n"),
        ("toml", "a = \n"),
        ("yaml", "a: [1\n"),
        ("shell", "if true; then\n"),
        ("shell", "detent jobs lst\n"),
        ("shell", "detent worker app.py --slot 4\n"),
        ("console", "$ DETENT_URL=x detent enqueue greet --payloads '{}' | head\n"),
    ],
)
def test_a_broken_block_is_found(language: str, code: str) -> None:
    assert list(problems(Block("page.md", 1, language, "", code)))
