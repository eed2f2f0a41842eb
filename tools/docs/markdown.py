"""Small pieces of Markdown."""

from collections.abc import Iterable, Sequence

WARNING = "<!-- Generated from the code by tools/docs; edit the code. -->"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell(text) for text in line) + " |" for line in lines)


def cell(text: str) -> str:
    """Text for a table: one line, no bar that would end the cell."""
    return " ".join(str(text).split()).replace("|", "\\|")


def code(text: object) -> str:
    return f"`{text}`" if str(text) else ""


def sentence(text: str) -> str:
    """Source text in a page: double backquotes and angle brackets would be markup."""
    return " ".join(text.split()).replace("<", "&lt;")
