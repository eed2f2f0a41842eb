"""`detent verify` checks a database against its contracts, `detent replay` checks a history against one."""

import gc
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn

from detent.cli.operate.contracts import find_contract, read_text
from detent.cli.option_groups import ConnectionOptions
from detent.cli.options import AsJson, ContractFilter, option
from detent.cli.output import EXIT_NO, EXIT_OK, pluralize, print_line, print_result, print_table, progress_bar
from detent.client.connect import default_url
from detent.core.contract.gate_b2 import GATE_B2
from detent.core.contract.replay import INVARIANTS
from detent.core.errors import StoreUnavailable
from detent.core.times import from_iso
from detent.engine import Engine
from detent.proof.replay.gate_b2_cases import CaseResult, run_gate_b2_cases
from detent.proof.replay.history import HistoryReplay, read_history, replay_history
from detent.proof.verify.rules import RULES, Report
from detent.proof.verify.verify import CHUNK, Scope
from detent.proof.verify.verify import verify as verified

from .database import describe

_OBJECTS_BETWEEN_COLLECTIONS = 100_000


def verify(
    since: Annotated[str | None, option("Only jobs that changed at or after this ISO-8601 time.")] = None,
    job: Annotated[str | None, option("Only this job.")] = None,
    contract: ContractFilter = None,
    rules: Annotated[bool, option("List the rules and exit.")] = False,
    chunk: Annotated[int, option("How many jobs to read per transaction.", min=1, max=100_000)] = CHUNK,
    *,
    connection: ConnectionOptions,
) -> int:
    """Check every job against its log and its contract, and list the violated rules."""
    if rules:
        connection.print_list({"rules": RULES}, ("rule", "what it requires"), RULES.items())
        return EXIT_OK
    scope = Scope(job, contract, None if since is None else from_iso(since, field="--since"))
    target = connection.url or default_url()
    if target.startswith("sqlite:") and describe(target).schema is None:
        raise StoreUnavailable(f"there is no Detent database at {target}; check --url")
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), "jobs", TimeRemainingColumn())
    with progress_bar("verifying", *columns, shown=not connection.as_json) as update:

        async def act(engine: Engine) -> Report:
            if contract is not None:
                engine.contract(contract)  # raises UnknownContract: a misspelt name would match no job and pass
            return await verified(
                engine.store,
                engine.contracts,
                scope,
                chunk=chunk,
                progress=lambda done, total: update(completed=done, total=total),
            )

        with _rare_collections():
            report = ConnectionOptions(target).run(act, read_only=True)
    if connection.as_json:
        connection.print_result(report.as_dict())
    else:
        _print_report(report)
    return EXIT_OK if report.ok else EXIT_NO


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Look for reference cycles rarely: rows form none, and passing over them takes a fifth of the time."""
    thresholds = gc.get_threshold()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def _print_report(report: Report) -> None:
    size = f"{pluralize(report.jobs, 'job')}, {pluralize(report.events, 'event')}"
    for title, findings in (("violations", report.violations), ("warnings", report.warnings)):
        if findings:
            rows = [[finding.job_id or "-", finding.seq, finding.rule, finding.detail] for finding in findings]
            print_table(("job", ">seq", "rule", "detail"), rows, title=title)
            print_line()
    if report.left_out:
        print_line(f"{report.left_out} more violations are not shown")
    warnings = f", {pluralize(len(report.warnings), 'warning')}" if report.warnings else ""
    if report.ok:
        print_line(f"{size} checked, no violations{warnings}")
    else:
        rules = len({finding.rule for finding in report.violations})
        number = pluralize(len(report.violations), "violation")
        hint = "`detent verify --rules` explains the rules"
        print_line(f"{size} checked, {number} of {pluralize(rules, 'rule')}{warnings}; {hint}")


def replay(
    context: typer.Context,
    gate: Annotated[
        str | None, typer.Argument(metavar="[GATE]", help="gate-b2: run its five acceptance cases.", show_default=False)
    ] = None,
    history: Annotated[Path | None, option("A file of events: a JSON array, or one JSON value per line.")] = None,
    contract: Annotated[str | None, option("The contract to check the history against, or a FILE.toml.")] = None,
    url: Annotated[
        str | None, option("Run the cases on this database, which keeps the five jobs; default: a temporary one.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Run the acceptance cases of gate-b2, or check the history in a file against a contract."""
    if (gate is None) == (history is None):
        raise typer.BadParameter(f"give either {GATE_B2.name} or --history FILE")
    if history is not None:
        return _replay_history(history, contract, url, as_json)
    if gate != GATE_B2.name:
        raise typer.BadParameter(f"{gate!r} has no acceptance cases; only {GATE_B2.name} has")
    source = context.get_parameter_source("url")  # $DETENT_URL may be the database of a running application
    return _replay_gate(url if source is not None and source.name == "COMMANDLINE" else None, as_json)


def _replay_history(file: Path, contract: str | None, url: str | None, as_json: bool) -> int:
    if contract is None:
        raise typer.BadParameter("--history needs --contract")
    text = read_text(file, "utf-8-sig")
    target = find_contract(contract, url)
    result = replay_history(target, read_history(text))
    print_result(as_json, result.as_dict(), *_describe(result, target.name))
    return EXIT_OK if result.ok else EXIT_NO


def _describe(result: HistoryReplay, contract: str) -> Iterator[str]:
    size = pluralize(result.events, "event")
    if result.ok:
        end = f"ends with status {result.derived}" if result.derived else "no event of this contract"
        yield f"{size}: legal under {contract}, {end}"
    else:
        violation = result.strict
        yield f"{size}: illegal under {contract} at index {violation.index}"
        yield f"  event {violation.event} in status {violation.status or '(none)'}"
        yield f"  legal events: {', '.join(violation.legal) or 'none, the job has finished'}"
        yield f"  status according to the last event alone: {result.derived}"
    for index, rule, detail in result.warnings:
        yield f"  warning at index {index}: {rule} (invariant {INVARIANTS[rule]}): {detail}"


def _replay_gate(url: str | None, as_json: bool) -> int:
    """Run the cases on the database of `url`, or on a temporary one."""
    if url is not None:
        results = ConnectionOptions(url).run(run_gate_b2_cases)
    else:
        with tempfile.TemporaryDirectory(prefix="detent-replay-") as folder:
            results = ConnectionOptions(f"sqlite:///{folder}/replay.db").run(run_gate_b2_cases)
    ok = all(result.ok for result in results)
    if as_json:
        print_result(as_json, {"ok": ok, "cases": [result.as_dict() for result in results]})
    else:
        print_table(("case", "", ">retries", "transitions"), map(_case_row, results))
        for problem in (f"{result.id}: {problem}" for result in results for problem in result.problems):
            print_line(problem)
        print_line(f"{GATE_B2.name}: {'passed' if ok else 'NOT passed'}")
    return EXIT_OK if ok else EXIT_NO


def _case_row(result: CaseResult) -> list[str | int | None]:
    retries = result.records[-1]["retry_count"] if result.records else None
    return [result.id, "ok" if result.ok else "FAILED", retries, result.path]
