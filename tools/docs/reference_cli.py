"""The page of all commands and options, from the Typer application."""

from collections.abc import Iterator
from typing import Any

import typer

from detent.cli import app

from .markdown import WARNING, code, sentence, table

INTRODUCTION = f"""{WARNING}
# Commands and options

Every command of `detent` with its arguments and options, as `detent COMMAND --help` prints them. An option can also be set by the
environment variable in the third column; the option wins. [The command line by example](cli.md) shows the output of each command.

Exit codes: 0 success, 1 not found, refused or unhealthy, 2 usage error.
"""


def page() -> str:
    return "\n".join([INTRODUCTION, *(_section(path, command) for path, command in commands())])


def commands() -> Iterator[tuple[str, Any]]:
    """(words of the command, the command) of every command that can be run."""
    yield from _below("detent", typer.main.get_command(app))


def _below(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    subcommands = getattr(command, "commands", None)
    if not subcommands:
        yield path, command
    for name, subcommand in (subcommands or {}).items():
        yield from _below(f"{path} {name}", subcommand)


def _section(path: str, command: Any) -> str:
    parts = [f"## {path}", sentence(command.help or "")]
    arguments = [row for row in command.params if row.param_type_name == "argument"]
    options = [row for row in command.params if row.param_type_name == "option" and not row.hidden]
    if arguments:
        rows = [[code(row.metavar or row.name.upper()), sentence(getattr(row, "help", "") or "")] for row in arguments]
        parts.append(table(["argument", "meaning"], rows))
    rows = [[_names(row), sentence(row.help or "") + _default(row), code(row.envvar or "")] for row in options]
    parts.append(table(["option", "meaning", "environment variable"], rows))
    return "\n\n".join(parts) + "\n"


def _names(row: Any) -> str:
    return ", ".join(code(name) for name in [*row.opts, *row.secondary_opts])


def _default(row: Any) -> str:
    if not getattr(row, "show_default", False) or row.default in (None, False, (), [], ""):
        return ""
    return f" Default: `{getattr(row.default, 'value', row.default)}`." if not callable(row.default) else ""
