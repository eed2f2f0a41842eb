"""Parses the console blocks of docs/reference/cli.md, and normalises output so that two runs can be compared."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "cli.md"
_BLOCK = re.compile(r"^```(\w+)[ ]?([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_VARYING = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "<time>"),
    (re.compile(r"\b\d+ (ms|s|min|h|d)\b"), "<span>"),
    (re.compile(r"\b[\w.-]+-\d+-[0-9a-z]{6}\b"), "<worker>"),
    (re.compile(r"SQLite [\d.]+"), "SQLite <version>"),
    (re.compile(r"http://127\.0\.0\.1:\d+"), "<address>"),
    (re.compile(r"\bdetent_[\w-]{43}(?![\w-])"), "<token>"),
    (re.compile(r"\bwhsec_[\w+/=]+"), "<secret>"),
    (re.compile(r"\b\d+ moves\b"), "<number> moves"),
    (re.compile(r'File "[^"]*/'), 'File "'),
    (re.compile(r"[ \t]+"), " "),
)


@dataclass(frozen=True)
class Example:
    """One command of the page and its output, with the ids of the page."""

    command: str
    output: str
    exit_code: int


def blocks(kind: str, text: str) -> list[tuple[str, str]]:
    """(text after the language, content) of every block in this language."""
    return [(match[2], match[3]) for match in _BLOCK.finditer(text) if match[1] == kind]


def examples(text: str) -> Iterator[Example]:
    for info, block in blocks("console", text):
        code = int(info.removeprefix("exit=") or 0)
        for part in block.split("$ detent ")[1:]:
            command, _, output = part.partition("\n")
            yield Example(command, output, code)


class Labels:
    """Numbers ids in the order in which they appear, so that the ids of two runs can be mapped to each other."""

    def __init__(self) -> None:
        self.label_of: dict[str, str] = {}

    def normalise(self, text: str) -> list[str]:
        """The lines without what differs between runs: ids, times, durations, worker names, column widths."""
        text = _ID.sub(lambda match: self.label_of.setdefault(match[0], f"<id {len(self.label_of) + 1}>"), text)
        for pattern, mark in _VARYING:
            text = pattern.sub(mark, text)
        return [line.strip() for line in text.strip().splitlines()]

    def translate(self, command: str, to: "Labels") -> str:
        """The same command with the ids of another run."""
        id_of = {label: job_id for job_id, label in to.label_of.items()}
        return _ID.sub(lambda match: id_of[self.label_of[match[0]]], command)
