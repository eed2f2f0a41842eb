"""llms.txt and llms-full.txt: the list of pages and the text of all pages, for programs that read text."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

SUMMARY = """# Detent

> Detent runs background jobs for Python on one SQLite file or on Postgres. The history of a job is written in the same
> commit as its status, so what a job did can be proved afterwards.

Start with the first job and the tutorial. All pages in one file: llms-full.txt.
"""


def write(sources: Path, target: Path, nav: list[Any]) -> None:
    pages = list(_pages(nav, ""))
    lines, texts, section = [SUMMARY], [], None
    for title, name in pages:
        text = (sources / name).read_text("utf-8").strip()
        if title != section:
            section = title
            lines.append(f"\n## {title}\n")
        heading = next(line for line in text.splitlines() if line.startswith("# ")).removeprefix("# ")
        address = name.removesuffix("README.md").removesuffix("index.md").removesuffix(".md")
        lines.append(f"- [{heading}]({address + '/' if address and not address.endswith('/') else address or './'})")
        texts.append(f"<!-- {name} -->\n\n{text}\n")
    (target / "llms.txt").write_text("\n".join(lines) + "\n", "utf-8")
    (target / "llms-full.txt").write_text(SUMMARY + "\n" + "\n".join(texts), "utf-8")


def _pages(nav: Any, section: str) -> Iterator[tuple[str, str]]:
    """(section, name of the page) in the order of the navigation."""
    if isinstance(nav, str):
        yield section or "Home", nav
    for entry in nav if isinstance(nav, list) else ():
        if isinstance(entry, dict):
            for title, inner in entry.items():
                yield from _pages(inner, section or title)
        else:
            yield from _pages(entry, section)
