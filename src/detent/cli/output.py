"""What commands print: rich tables and short times for people, JSON for programs, one line for a refusal."""

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from detent.core.errors import DetentError, InvalidInput
from detent.core.job import Micros
from detent.engine.reads.why import span

FINE, NO, USAGE = 0, 1, 2
_PIPE_WIDTH = 200
"""Columns where there is no terminal: wide enough that ids and sentences stay on their line."""

Cell = str | int | float | bool | Text | None


def console() -> Console:
    """Made per call, so that it prints to whatever stdout is now."""
    known = "COLUMNS" in os.environ or sys.stdout.isatty()
    return Console(width=None if known else _PIPE_WIDTH, highlight=False, soft_wrap=not known)


def say(text: str = "") -> None:
    """One line of text that may hold anything a user stored: printed as it is, never as markup."""
    console().print(Text(clean(text)), soft_wrap=True)


def say_json(value: Any, *, indent: int | None = 2) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    try:
        sys.stdout.write(text + "\n")
    except UnicodeEncodeError:  # a terminal that cannot show it all; JSON can say it in ASCII
        sys.stdout.write(json.dumps(value, indent=indent) + "\n")
    sys.stdout.flush()


def tell(as_json: bool, value: Any, *lines: str) -> None:
    """The answer of a command that has no table."""
    if as_json:
        say_json(value)
    else:
        for line in lines:
            say(line)


def table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, title: str | None = None) -> Table:
    """Ids stay whole; a column named with a leading > is set flush right."""
    made = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for position, name in enumerate(columns):
        right = name.startswith(">")
        made.add_column(name.lstrip(">"), justify="right" if right else "left", no_wrap=position == 0 or right)
    for row in rows:
        made.add_row(*(_cell(value) for value in row))
    return made


def show_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, title: str | None = None) -> None:
    console().print(table(columns, rows, title=title))


def show_fields(fields: Mapping[str, Cell]) -> None:
    """Name and value, one below the other; what is empty is left out."""
    grid = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in fields.items():
        if value is not None and value != "":
            grid.add_row(name, _cell(value))
    console().print(grid)


def _cell(value: Cell) -> Text:
    return value if isinstance(value, Text) else Text("" if value is None else clean(str(value)))


def clean(text: str) -> str:
    """Stored text cannot move the cursor or colour the terminal."""
    return "".join(char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text)


def shortened(text: str | None, width: int = 60) -> str:
    line = " ".join((text or "").split())
    return line if len(line) <= width else line[: width - 1] + "…"


def when(now: Micros, at: Micros | None) -> str:
    """A moment seen from now: 12 s ago, in 4 min."""
    if at is None:
        return ""
    return f"in {span(at - now)}" if at > now else f"{span(now - at)} ago"


def asked(sentence: str, yes: bool, as_json: bool) -> bool:
    """Is it to be done? People are asked; where nobody can answer, only --yes is a yes."""
    if yes:
        return True
    if as_json or not sys.stdin.isatty():
        if not as_json:
            say(f"{sentence}; nothing was done, --yes does it")
        return False
    return typer.confirm(f"{sentence}. Go on?")


def counted(number: int, word: str, words: str | None = None) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {words or word + 's'}"


def wants_json(arguments: Sequence[str]) -> bool:
    """Known before the arguments are parsed, so that a wrong one is told in the form that was asked for."""
    return "--json" in arguments or os.environ.get("DETENT_JSON", "").lower() in ("1", "true", "yes", "on", "t", "y")


def complain(error: DetentError, as_json: bool) -> int:
    """Tell a refusal on stderr; returns the exit code."""
    if as_json:
        print(json.dumps(error.as_dict(), ensure_ascii=False, default=str), file=sys.stderr)
    else:
        print(clean(f"{error.code}: {error.message}").replace("\n", " "), file=sys.stderr)
    return USAGE if isinstance(error, InvalidInput) else NO


def complain_of_bug(error: Exception, as_json: bool) -> int:
    """What nobody foresaw is told like the rest, and how to see more."""
    told = f"{type(error).__name__}: {error}; set DETENT_TRACEBACK=1 to see where, and report it"
    return complain(DetentError(told, code="INTERNAL"), as_json)


def complain_of_usage(sentence: str, hint: str, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"code": "USAGE", "message": sentence, "hint": hint}, ensure_ascii=False), file=sys.stderr)
    else:
        print(clean(f"USAGE: {sentence} ({hint})").replace("\n", " "), file=sys.stderr)
    return USAGE
