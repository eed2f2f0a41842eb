"""The code blocks of the pages: found, run or checked by their language.

Python blocks of a page are one program: they run in order in one namespace, and `await` is allowed outside of
functions. Comments `<!-- setup … -->` and `<!-- check … -->` on the page hold code that runs before and after them and
is not shown on the site. A block with `title="jobs.py"` is a file instead: it is written to the working directory,
which is empty at the beginning.
"""

import ast
import asyncio
import inspect
import json
import re
import shlex
import subprocess
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer
import yaml

from detent.cli import app as command_line

ROOT = Path(__file__).resolve().parents[3]
BLOCK = re.compile(
    r"^(?P<indent>[ ]*)```(?P<language>[\w{.-]*)(?P<info>[^\n]*)\n(?P<code>.*?)^(?P=indent)```[ ]*$",
    re.DOTALL | re.MULTILINE,
)
HIDDEN = "^<!-- {}\n(.*?)^-->$"
SHELL = {"shell", "sh", "bash", "console"}


@dataclass(frozen=True)
class Block:
    """One fenced block; `line` is where its code begins."""

    page: str
    line: int
    language: str
    title: str
    code: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """The pages of the site and those of the top folder, as paths below the repository."""
    paths = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(path.relative_to(ROOT).as_posix() for path in paths)


def blocks(page: str) -> list[Block]:
    text = (ROOT / page).read_text("utf-8")
    return [_block(page, text, match) for match in BLOCK.finditer(text)]


def _block(page: str, text: str, match: re.Match[str]) -> Block:
    title = re.search(r'title="([^"]+)"', match["info"])
    line = text.count("\n", 0, match.start("code")) + 1
    return Block(page, line, match["language"], title[1] if title else "", textwrap.dedent(match["code"]))


def hidden(page: str, kind: str) -> str:
    """The code in comments of this kind: `setup` runs before the blocks, `check` after them."""
    found = re.findall(HIDDEN.format(kind), (ROOT / page).read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return "\n".join(found)


def run_python(page: str) -> dict[str, Any]:
    """Run the Python blocks of the page in the working directory; returns what they define."""
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks(page):
        if block.language == "python" and block.title:
            compile(block.code, block.place, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            Path(block.title).parent.mkdir(parents=True, exist_ok=True)
            Path(block.title).write_text(block.code, "utf-8")
    with asyncio.Runner() as runner:
        _execute(runner, hidden(page, "setup"), f"{page} (setup)", names)
        for block in blocks(page):
            if block.language == "python" and not block.title:
                _execute(runner, "\n" * (block.line - 1) + block.code, block.page, names)
        _execute(runner, hidden(page, "check"), f"{page} (check)", names)
    return names


def _execute(runner: asyncio.Runner, code: str, place: str, names: dict[str, Any]) -> None:
    compiled = compile(code, place, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    if compiled.co_flags & inspect.CO_COROUTINE:
        runner.run(eval(compiled, names))  # noqa: S307
    else:
        exec(compiled, names)  # noqa: S102


def problems(block: Block) -> Iterator[str]:
    """What is wrong with a block, without running it: syntax, unknown commands, options and names of Detent."""
    try:
        if block.language == "json":
            json.loads(block.code)
        elif block.language == "toml":
            tomllib.loads(block.code)
        elif block.language == "yaml":
            list(yaml.safe_load_all(block.code))
        elif block.language in ("python", "py"):
            compile(block.code, block.place, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            yield from (f"{block.place}: {problem}" for problem in import_problems(block.code))
        elif block.language in SHELL:
            yield from (f"{block.place}: {problem}" for problem in shell_problems(block))
    except (ValueError, SyntaxError, yaml.YAMLError) as error:
        yield f"{block.place}: {error}"


def import_problems(code: str) -> Iterator[str]:
    """Names that the block imports from Detent and that are not there."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "detent":
            for name in node.names:
                try:
                    found = hasattr(import_module(str(node.module)), name.name) or find_spec(
                        f"{node.module}.{name.name}"
                    )
                except ImportError:
                    found = None
                if not found:
                    yield f"no name: from {node.module} import {name.name}"


def shell_problems(block: Block) -> Iterator[str]:
    script = "\n".join(commands(block))
    parsed = subprocess.run(["/bin/sh", "-n", "-c", script], capture_output=True, text=True, check=False)
    if parsed.returncode:
        yield parsed.stderr.strip()
    for line in commands(block):
        for words in detent_calls(line):
            yield from command_problems(words)


def commands(block: Block) -> list[str]:
    """The command lines of a block; in a console block, those after `$ `. A backslash continues a line."""
    lines = block.code.replace("\\\n", " ").splitlines()
    if block.language == "console":
        return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def detent_calls(line: str) -> Iterator[list[str]]:
    """The arguments of each call of `detent` in a line."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.commenters = "#"
    lexer.whitespace_split = True
    call: list[str] | None = None
    for word in [*lexer, ";"]:
        if set(word) <= set("|&;()<>"):
            if call is not None:
                yield call
            call = None
        elif call is not None:
            call.append(word)
        elif re.fullmatch(r"(\S*/)?detent", word):
            call = []


def command_problems(words: list[str]) -> Iterator[str]:
    """A command that does not exist, or an option that it does not have."""
    command = _root_command()
    position = 0
    while hasattr(command, "commands") and position < len(words) and not words[position].startswith("-"):
        if words[position] not in command.commands:
            yield f"no command: detent {' '.join(words[: position + 1])}"
            return
        command = command.commands[words[position]]
        position += 1
    known = {"--help", *(name for row in command.params for name in (*row.opts, *row.secondary_opts))}
    for word in words[position:]:
        if word.startswith("--") and word.partition("=")[0] not in known:
            yield f"no option: detent {' '.join(words[:position])} {word}"


@cache
def _root_command() -> Any:
    return typer.main.get_command(command_line)
