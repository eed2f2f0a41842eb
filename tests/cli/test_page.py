"""Runs every example of docs/reference/cli.md and compares the output; every command must have an example."""

import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from detent.cli import app, run
from support.cli.console import SHOP, Cli
from support.cli.page import PAGE, Labels, blocks, examples


@pytest.mark.long
def test_the_examples_print_what_the_page_says(cli: Cli, tmp_path: Path) -> None:
    text = PAGE.read_text("utf-8")
    (_, shop), (_, lamp) = blocks("python", text)[0], blocks("toml", text)[0]
    assert shop == SHOP
    (tmp_path / "lamp.toml").write_text(lamp)
    page_ids, run_ids = Labels(), Labels()
    for example in examples(text):
        command = page_ids.translate(example.command, run_ids)
        result = cli(*shlex.split(command), code=example.exit_code)
        output = run_ids.normalise(result.out + result.err)
        assert output == page_ids.normalise(example.output), f"detent {example.command}"


def test_every_command_has_an_example() -> None:
    shown = [example.command for example in examples(PAGE.read_text("utf-8"))]
    missing = [path for path in _paths(typer.main.get_command(app)) if not any(c.startswith(path) for c in shown)]
    assert not missing


@pytest.mark.long
def test_every_command_has_help_url_json_and_environment_variables(cli: Cli) -> None:
    for path in _paths(typer.main.get_command(app)):
        assert run([*path.split(), "--help"]) == 0
        options = {name: parameter for parameter in _command(path).params for name in parameter.opts}
        assert "--json" in options, path
        assert "--url" in options or path in ("contract check", "simulate"), path
        for name, parameter in options.items():
            if name.startswith("--") and (path, name) not in NOT_FROM_THE_ENVIRONMENT:
                assert parameter.envvar == "DETENT_" + name[2:].replace("-", "_").upper(), (path, name)


NOT_FROM_THE_ENVIRONMENT = {("worker", "--url"), ("up", "--url"), ("serve", "--url")}
"""The application itself reads $DETENT_URL, unless its code names a database."""


def _paths(command: Any, path: str = "") -> list[str]:
    subcommands = getattr(command, "commands", None)
    if not subcommands:
        return [path]
    return [
        subpath for name, subcommand in subcommands.items() for subpath in _paths(subcommand, f"{path} {name}".strip())
    ]


def _command(path: str) -> Any:
    command: Any = typer.main.get_command(app)
    for word in path.split():
        command = command.commands[word]
    return command
