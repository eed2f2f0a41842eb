"""docs/cli.md as data: its console blocks, and output with everything that varies taken out."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
_BLOCK = re.compile(r"^```(\w+)[ ]?([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_VARYING = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "<time>"),
    (re.compile(r"\b\d+ (ms|s|min|h|d)\b"), "<span>"),
    (re.compile(r"\b[\w.-]+-\d+-[0-9a-f]{6}\b"), "<worker>"),
    (re.compile(r"SQLite [\d.]+"), "SQLite <version>"),
    (re.compile(r"\b(schema|version) \d+\b"), r"\1 <number>"),
    (re.compile(r"http://127\.0\.0\.1:\d+"), "<address>"),
    (re.compile(r"\bdetent_[\w-]{43}(?![\w-])"), "<token>"),
    (re.compile(r"\b\d+ moves\b"), "<number> moves"),
    (re.compile(r"[ \t]+"), " "),
)


@dataclass(frozen=True)
class Example:
    """One command of the page with the output it shows; every id in it is the page's own."""

    command: str
    shows: str
    exit_code: int


def blocks(kind: str, text: str) -> list[tuple[str, str]]:
    """(what stands behind the language, the text) of every block in this language."""
    return [(found[2], found[3]) for found in _BLOCK.finditer(text) if found[1] == kind]


def examples(text: str) -> Iterator[Example]:
    for info, block in blocks("console", text):
        code = int(info.removeprefix("exit=") or 0)
        for part in block.split("$ detent ")[1:]:
            command, _, shows = part.partition("\n")
            yield Example(command, shows, code)


class Labels:
    """Ids by the order in which they appear, so that two runs can be compared and one can quote the other."""

    def __init__(self) -> None:
        self.of: dict[str, str] = {}

    def plain(self, text: str) -> list[str]:
        """Lines without what differs from run to run: times, spans, worker names, widths of columns."""
        text = _ID.sub(lambda found: self.of.setdefault(found[0], f"<id {len(self.of) + 1}>"), text)
        for pattern, mark in _VARYING:
            text = pattern.sub(mark, text)
        return [line.strip() for line in text.strip().splitlines()]

    def translate(self, command: str, to: "Labels") -> str:
        """The same command in the ids of another run."""
        back = {label: found for found, label in to.of.items()}
        return _ID.sub(lambda found: back[self.of[found[0]]], command)
