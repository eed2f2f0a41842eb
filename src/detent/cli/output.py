"""Printing: rich tables and relative times for people, JSON for programs, one line on stderr for an error."""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import typer
from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress import Progress, ProgressColumn
from rich.table import Table
from rich.text import Text

from detent.core.errors import DetentError, InvalidInput
from detent.core.job import Micros
from detent.engine.reads.why import span
from detent.system.error_links import error_link

EXIT_OK, EXIT_NO, EXIT_USAGE = 0, 1, 2
_PIPE_WIDTH = 200
"""Columns when stdout is not a terminal: wide enough that ids and sentences are not wrapped."""
_GAP = 2
"""Spaces between two columns."""
_WRAPPED = 20
"""Texts of columns that are wider may be wrapped to this width."""

Cell = str | int | float | bool | Text | None


def console() -> Console:
    """A new console per call, because tests and callers may replace sys.stdout."""
    width_known = "COLUMNS" in os.environ or sys.stdout.isatty()
    return Console(width=None if width_known else _PIPE_WIDTH, highlight=False, soft_wrap=not width_known)


def print_line(text: str = "") -> None:
    """Print one line. The text may contain stored user data, so it is never interpreted as rich markup."""
    console().print(Text(replace_control_characters(text)), soft_wrap=True)


def print_json(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=2)
    try:
        sys.stdout.write(text + "\n")
    except UnicodeEncodeError:  # the encoding of stdout lacks a character; JSON can escape it in ASCII
        sys.stdout.write(json.dumps(value, indent=2) + "\n")
    sys.stdout.flush()


def print_result(as_json: bool, value: Any, *lines: str) -> None:
    """Print the value as JSON, or the lines as text."""
    if as_json:
        print_json(value)
    else:
        for line in lines:
            print_line(line)


def make_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, title: str | None = None) -> Table:
    """The first column is never wrapped; a column whose name starts with > is aligned right.

    One whose name starts with ? is left out if the terminal is too narrow: first those without values, then from the
    left.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    shown = _fitting_columns(columns, cells, console().width)
    table = Table(
        title=title, title_justify="left", box=None, header_style="bold", pad_edge=False, padding=(0, _GAP, 0, 0)
    )
    for position in shown:
        name = columns[position].lstrip("?")
        right = name.startswith(">")
        justify: Literal["left", "right"] = "right" if right else "left"
        table.add_column(name.lstrip(">"), justify=justify, no_wrap=position == 0 or right, overflow="fold")
    for row in cells:
        table.add_row(*(row[position] for position in shown))
    return table


def _fitting_columns(columns: Sequence[str], rows: Sequence[Sequence[Text]], width: int) -> list[int]:
    """The positions of the columns to show. Wide texts count as _WRAPPED: rich wraps the widest column first."""
    widths = [max((row[position].cell_len for row in rows), default=0) for position in range(len(columns))]
    optional = [position for position, name in enumerate(columns) if name.startswith("?")]
    optional.sort(key=lambda position: widths[position] > 0)
    needed = [
        max(len(name.strip("?>")), values if position == 0 else min(values, _WRAPPED)) + _GAP
        for position, (name, values) in enumerate(zip(columns, widths, strict=True))
    ]
    shown = list(range(len(columns)))
    while optional and sum(needed[position] for position in shown) - _GAP > width:
        shown.remove(optional.pop(0))
    return shown


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, title: str | None = None) -> None:
    console().print(make_table(columns, rows, title=title))


async def redraw(render: Callable[[], Awaitable[RenderableType]], seconds: float) -> None:
    """Show what `render` returns, again and again, until the task is cancelled or interrupted."""
    with Live(console=console(), auto_refresh=False) as live:
        while True:
            live.update(await render(), refresh=True)
            await asyncio.sleep(seconds)


def list_view(items: Iterable[Mapping[str, Any]], next_cursor: str | None = None) -> dict[str, Any]:
    """A list as REST answers it."""
    return {"items": list(items), "next_cursor": next_cursor}


def print_list(
    as_json: bool, view: Mapping[str, Any], columns: Sequence[str], rows: Iterable[Sequence[Cell]], empty: str = ""
) -> None:
    """Print the view as JSON; else the rows as a table and how to get the next page, or `empty` if there are none."""
    if as_json:
        print_json(view)
        return
    rows = list(rows)
    if rows or not empty:
        print_table(columns, rows)
    else:
        print_line(empty)
    if view.get("next_cursor"):
        print_line(f"next page: --cursor {view['next_cursor']}")


def print_traceback(text: str | None) -> None:
    """Print the traceback of a failed execution after an empty line; nothing without one."""
    if text:
        print_line()
        print_line(text.rstrip("\n"))


def print_fields(fields: Mapping[str, object]) -> None:
    """Print one name and value per line; empty values are left out."""
    grid = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in fields.items():
        if value is not None and value != "":
            grid.add_row(name, _cell(value))
    console().print(grid)


def _cell(value: object) -> Text:
    return value if isinstance(value, Text) else Text("" if value is None else replace_control_characters(str(value)))


def replace_control_characters(text: str) -> str:
    """Stored text must not move the cursor or change colours in the terminal."""
    return "".join(char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text)


def shorten(text: str | None, width: int = 60) -> str:
    line = " ".join((text or "").split())
    return line if len(line) <= width else line[: width - 1] + "…"


def relative_time(now: Micros, at: Micros | None) -> str:
    """A time relative to now: 12 s ago, in 4 min."""
    if at is None:
        return ""
    return f"in {span(at - now)}" if at > now else f"{span(now - at)} ago"


def confirm(sentence: str, yes: bool, as_json: bool) -> bool:
    """Ask at the terminal whether to continue; without a terminal or with --json only --yes confirms."""
    if yes:
        return True
    if as_json or not sys.stdin.isatty():
        if not as_json:
            print_line(f"{sentence}. Nothing was changed; add --yes to confirm.")
        return False
    return typer.confirm(f"{sentence}. Continue?")


def pluralize(number: int, word: str, words: str | None = None) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {words or word + 's'}"


@contextmanager
def progress_bar(
    title: str, *columns: str | ProgressColumn, shown: bool, total: int | None = None
) -> Iterator[Callable[..., None]]:
    """A bar on stderr if that is a terminal, erased at the end. Yields `update` of rich's Progress for its task."""
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not (shown and console.is_terminal)) as bar:
        yield partial(bar.update, bar.add_task(title, total=total))


def wants_json(arguments: Sequence[str]) -> bool:
    """Read before the arguments are parsed, so that a usage error can be printed as JSON too."""
    return "--json" in arguments or os.environ.get("DETENT_JSON", "").lower() in ("1", "true", "yes", "on", "t", "y")


def print_error(error: DetentError, as_json: bool) -> int:
    """Print an error on stderr, for people and in JSON with a link to its explanation; returns the exit code."""
    view = {**error.as_dict(), "help": error_link(error.code)}
    _print_on_stderr(as_json, view, f"{error.code}: {error.message}")
    if not as_json and sys.stderr.isatty():
        print(f"See {error_link(error.code)}", file=sys.stderr)
    return EXIT_USAGE if isinstance(error, InvalidInput) else EXIT_NO


def print_warning(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr)


def print_usage_error(message: str, hint: str, as_json: bool) -> int:
    view = {"code": "USAGE", "message": message, "hint": hint}
    _print_on_stderr(as_json, view, f"USAGE: {message} ({hint})")
    return EXIT_USAGE


def _print_on_stderr(as_json: bool, view: Any, text: str) -> None:
    line = json.dumps(view, ensure_ascii=False, default=str) if as_json else replace_control_characters(text)
    print(line if as_json else line.replace("\n", " "), file=sys.stderr)
