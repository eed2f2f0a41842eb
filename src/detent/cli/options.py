"""Options that several commands share. Every option can also be set as DETENT_<OPTION> in the environment."""

import getpass
import json
import os
import sys
from copy import copy
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.models import OptionInfo

from detent.observability import job_logs

if sys.platform != "win32":
    import pwd


def option(help: str, *, name: Any = ..., **settings: Any) -> Any:
    """A typer option. By default it is named after its parameter: `dry_run` is --dry-run. See `named`."""
    return typer.Option(name, help=help, show_envvar=False, **settings)


def named(annotation: Any, parameter: str) -> Any:
    """The annotation of a parameter; an `option` has its name and its environment variable DETENT_<NAME>."""
    metadata = getattr(annotation, "__metadata__", ())
    if not metadata or not isinstance(metadata[0], OptionInfo):
        return annotation
    setting = copy(metadata[0])
    if setting.default is ...:
        setting.default = "--" + parameter.replace("_", "-")
    if not setting.show_envvar:
        setting.envvar = "DETENT_" + str(setting.default).removeprefix("--").replace("-", "_").upper()
    annotated: Any = Annotated  # mypy does not accept a type that is computed
    return annotated[annotation.__origin__, setting]


class LogFormat(StrEnum):
    TEXT = job_logs.TEXT
    JSON = job_logs.JSON


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


Url = Annotated[str | None, option("The database: sqlite:///jobs.db or postgresql://…; default sqlite:///detent.db.")]
AppUrl = Annotated[str | None, typer.Option("--url", help="The database; default: the one the application names.")]
OptionalApp = Annotated[
    str | None, typer.Argument(metavar="[APP]", envvar="DETENT_APP", help="module:app or file.py:app")
]
AsJson = Annotated[bool, option("Print JSON instead of text.", name="--json")]
App = Annotated[str | None, option("Your application, as module:app or file.py; its handlers validate the payload.")]
Actor = Annotated[str | None, option("The actor recorded in the log; default: your user name.")]
Reason = Annotated[str | None, option("The reason recorded in the log.")]
Tenant = Annotated[str | None, option("Only within this tenant.", name="--tenant")]
JobId = Annotated[
    str, typer.Argument(metavar="JOB_ID", help="The job's id, or the task_id of its task.", show_default=False)
]
Limit = Annotated[int, option("Maximum number of rows.", min=1, max=10_000)]
Cursor = Annotated[str | None, option("Start after this id: the next_cursor of the previous page.")]
QueueFilter = Annotated[str | None, option("Only this queue.")]
TypeFilter = Annotated[str | None, option("Only this job type.", name="--type")]
ContractFilter = Annotated[str | None, option("Only jobs under this contract.")]
DryRun = Annotated[bool, option("Print how many would be affected and change nothing.")]
Yes = Annotated[bool, option("Do not ask for confirmation.")]
Rate = Annotated[float | None, option("Spread the new jobs: this many become due per second.")]
TextFilter = Annotated[str | None, option("Only rows that contain this text (ids, keys, error codes, payloads).")]
LogFormatOption = Annotated[LogFormat, option("Format of log lines; json: one object per line, traceback included.")]
LogLevelOption = Annotated[LogLevel, option("The lowest level that is logged; a failed execution is a warning.")]


def system_user() -> str:
    """The operating system's name of the user, whatever the environment says."""
    if sys.platform == "win32":
        return getpass.getuser()
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a user id without a name, as in some containers
        return str(os.getuid())


def actor_or_user(actor: str | None) -> str:
    if actor and actor.strip():
        return actor.strip()
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in some containers
        return "unknown"


def seconds_or_text(text: str | None) -> float | str | None:
    """A deadline or an interval: a number is seconds, any other text is a time or a duration."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def parse_json(text: str | None, name: str) -> Any:
    """Parse the JSON value of an option; `-` reads it from standard input, `@FILE` from a file."""
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
