"""The options commands share. Every option can also be set as DETENT_<OPTION> in the environment."""

import getpass
import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from detent.observability import job_logs


def option(name: str, help: str, *others: str, **rest: Any) -> Any:
    """A typer option that also reads its environment variable, named after the long option."""
    return typer.Option(name, *others, help=help, envvar=envvar(name), show_envvar=False, **rest)


def envvar(name: str) -> str:
    return "DETENT_" + name.removeprefix("--").replace("-", "_").upper()


class LogForm(StrEnum):
    TEXT = job_logs.TEXT
    JSON = job_logs.JSON


Url = Annotated[
    str | None, option("--url", "The database: sqlite:///jobs.db or postgresql://…; default sqlite:///detent.db.")
]
AppUrl = Annotated[
    str | None, typer.Option("--url", help="Use this database instead of the one the application names.")
]
MaybeApp = Annotated[str | None, typer.Argument(metavar="[APP]", envvar="DETENT_APP", help="module:app or file.py:app")]
AsJson = Annotated[bool, option("--json", "Print JSON for programs instead of text for people.")]
Actor = Annotated[str | None, option("--actor", "Who does this, for the log; default: your user name.")]
Reason = Annotated[str | None, option("--reason", "Why, for the log.")]
Tenant = Annotated[str | None, option("--tenant", "Act within this tenant only.")]
JobId = Annotated[str, typer.Argument(metavar="JOB_ID", help="The job's id.", show_default=False)]
Limit = Annotated[int, option("--limit", "How many at most.", min=1, max=10_000)]
Cursor = Annotated[str | None, option("--cursor", "Go on behind this id: the next_cursor of the page before.")]
InQueue = Annotated[str | None, option("--queue", "Only this queue.")]
OfType = Annotated[str | None, option("--type", "Only this job type.")]
OfContract = Annotated[str | None, option("--contract", "Only jobs under this contract.")]
InStatus = Annotated[str | None, option("--status", "Only this status.")]
DryRun = Annotated[bool, option("--dry-run", "Only say how many.")]
Yes = Annotated[bool, option("--yes", "Do not ask.")]
Rate = Annotated[float | None, option("--rate", "So many of the new jobs fall due a second.")]
Text = Annotated[str | None, option("--text", "Only what contains this text (ids, keys, error codes, payloads).")]


LogFormat = Annotated[
    LogForm, option("--log-format", "Log lines for people, or as JSON with the job each line belongs to.")
]


def actor_or_user(actor: str | None) -> str:
    if actor and actor.strip():
        return actor.strip()
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in some containers
        return "unknown"


def seconds_or_moment(text: str | None) -> float | str | None:
    """A deadline: a number is seconds from now, anything else is read as a moment."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def json_value(text: str | None, name: str) -> Any:
    """JSON given on the command line; - reads it from standard input, @FILE from a file."""
    if text is None:
        return None
    source = text
    try:
        if text == "-":
            source = sys.stdin.read()
        elif text.startswith("@"):
            source = Path(text[1:]).read_text("utf-8")
        return json.loads(source)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"{name} is not JSON: {error}; write it like '{{\"order_id\": 7}}'") from None
    except OSError as error:
        raise typer.BadParameter(f"{name} cannot be read: {error}") from None
