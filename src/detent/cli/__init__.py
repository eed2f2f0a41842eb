"""The `detent` command line: registers the commands and turns exceptions into messages and exit codes."""

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from detent.core.errors import DetentError
from detent.system.extras import extra_imports
from detent.version import __version__

from .diagnose import doctor, simulate, stats, verify
from .jobs import dead_letters, jobs, schedules
from .operate import alerts, contracts, queues, tokens, webhooks, workers
from .option_groups import CommandGroup
from .output import EXIT_NO, EXIT_OK, EXIT_USAGE, print_error, print_usage_error, wants_json
from .run import bench, orchestrate, serve, worker

__all__ = ["app", "main", "run"]

app = CommandGroup(
    name="detent",
    help="A durable job engine for Python: jobs change status only as their contract allows.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("up")(worker.up)
app.command("worker")(worker.worker)
app.command("serve")(serve.serve)
app.command("orchestrate")(orchestrate.orchestrate)
app.command("enqueue")(worker.enqueue)
app.command("migrate")(worker.migrate)
app.add_typer(jobs.group, name="jobs")
app.add_typer(dead_letters.group, name="dlq")
app.add_typer(schedules.group, name="schedules")
app.add_typer(queues.group, name="queues")
app.add_typer(contracts.group, name="contract")
app.add_typer(tokens.group, name="token")
app.command("stats")(stats.stats)
app.add_typer(workers.group, name="workers")
app.add_typer(alerts.group, name="alerts")
app.add_typer(webhooks.group, name="webhooks")
app.command("doctor")(doctor.doctor)
app.command("verify")(verify.verify)
app.command("replay")(verify.replay)
app.command("simulate")(simulate.simulate_command)
app.command("bench")(bench.bench)


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code: 0 ok, 1 refused or unhealthy, 2 usage error."""
    as_json = wants_json(arguments)
    try:
        with extra_imports():
            code = app(args=list(arguments), prog_name="detent", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else EXIT_OK
    except DetentError as error:
        return print_error(error, as_json)
    except BrokenPipeError:
        # The reader closed the pipe (`| head`): not an error worth a message, and the flush at exit must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_NO
    except (typer.Abort, KeyboardInterrupt):
        return EXIT_NO
    except Exception as error:
        if hasattr(error, "format_message"):
            return _report_usage_error(error, as_json)
        if os.environ.get("DETENT_TRACEBACK"):
            raise
        message = f"{type(error).__name__}: {error}; set DETENT_TRACEBACK=1 to see the traceback, and report it"
        return print_error(DetentError(message, code="INTERNAL"), as_json)


def _report_usage_error(error: Any, as_json: bool) -> int:
    context: Any = getattr(error, "ctx", None)
    path = context.command_path if context else "detent"
    if context and type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(error.format_message())  # empty if creating the error has already printed the help
        return EXIT_USAGE
    return print_usage_error(error.format_message().strip(), f"see `{path} --help`", as_json)


def _show_version(requested: bool) -> None:
    if requested:
        print(f"detent {__version__}")
        raise typer.Exit(0)


@app.callback()
def root(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """A durable job engine for Python: jobs change status only as their contract allows."""
