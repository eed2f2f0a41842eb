"""Commands that prove: `verify` holds a database against its contracts, `replay` a history against one."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from detent.cli.connection import on_engine
from detent.cli.operate.contracts import find_contract
from detent.cli.options import AsJson, OfContract, Url, option
from detent.cli.output import FINE, NO, counted, say, say_json, show_table
from detent.client.connect import default_url
from detent.core.contract.gate_b2 import GATE_B2
from detent.core.errors import StoreUnavailable
from detent.core.times import from_iso
from detent.engine import Engine
from detent.proof.replay.gate_b2_cases import Result, run_gate_b2_cases
from detent.proof.replay.history import Played, read_history, replay_history
from detent.proof.verify.rules import RULES, Finding, Report
from detent.proof.verify.verify import CHUNK, Progress, Scope
from detent.proof.verify.verify import verify as verified

from .database import describe

Since = Annotated[str | None, option("--since", "Only jobs that changed at or after this ISO-8601 time.")]
OneJob = Annotated[str | None, option("--job", "Only this job.")]
ListRules = Annotated[bool, option("--rules", "List the rules and stop.")]
Chunk = Annotated[int, option("--chunk", "Jobs per snapshot.", min=1, max=100_000)]
Gate = Annotated[str | None, typer.Argument(metavar="[GATE]", help="gate-b2: its five cases.", show_default=False)]
History = Annotated[Path | None, option("--history", "A file of events: a JSON array, or one JSON value per line.")]
PlayedOn = Annotated[
    str | None, option("--url", "Play the gate on this database, which keeps its five jobs; default: one thrown away.")
]
Against = Annotated[str | None, option("--contract", "The contract the history is held against, or a FILE.toml.")]


def verify(
    since: Since = None,
    job: OneJob = None,
    contract: OfContract = None,
    rules: ListRules = False,
    chunk: Chunk = CHUNK,
    url: Url = None,
    as_json: AsJson = False,
) -> int:
    """Hold every job against its log and its contract; says which rule is broken where."""
    if rules:
        return _list_rules(as_json)
    scope = Scope(job, contract, None if since is None else from_iso(since, field="--since"))
    target = url or default_url()
    if target.startswith("sqlite:") and describe(target).schema is None:
        raise StoreUnavailable(f"there is no Detent database at {target}; nothing to verify, check --url")
    with _progress(shown=not as_json) as tick:

        async def look(engine: Engine) -> Report:
            if contract is not None:
                engine.contract(contract)  # an unknown one is refused, or nothing would be found wrong with it
            return await verified(engine.store, engine.contracts, scope, chunk=chunk, progress=tick)

        report = on_engine(target, look)
    if as_json:
        say_json(report.as_dict())
    else:
        _tell(report)
    return FINE if report.ok else NO


def _list_rules(as_json: bool) -> int:
    if as_json:
        say_json({"rules": RULES})
    else:
        show_table(("rule", "what must hold"), list(RULES.items()))
    return FINE


@contextmanager
def _progress(*, shown: bool) -> Iterator[Progress]:
    """A bar on stderr where somebody looks at it; it leaves nothing behind."""
    console = Console(stderr=True)
    columns = (TextColumn("verifying"), BarColumn(), MofNCompleteColumn(), TextColumn("jobs"), TimeRemainingColumn())
    with Bar(*columns, console=console, transient=True, disable=not (shown and console.is_terminal)) as bar:
        task = bar.add_task("verify", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _tell(report: Report) -> None:
    size = f"{counted(report.jobs, 'job')}, {counted(report.events, 'event')}"
    for title, found in (("violations", report.violations), ("warnings", report.warnings)):
        if found:
            show_table(("job", ">seq", "rule", "detail"), [_cells(one) for one in found], title=title)
            say()
    if report.left_out:
        say(f"{report.left_out} more were found and left out")
    warned = f", {counted(len(report.warnings), 'warning')}" if report.warnings else ""
    if report.ok:
        say(f"{size}: rows, logs and contracts agree{warned}")
    else:
        broken = len({finding.rule for finding in report.violations})
        number = counted(len(report.violations), "violation")
        say(f"{size}: {number} of {counted(broken, 'rule')}{warned}; `detent verify --rules` explains the rules")


def _cells(found: Finding) -> list[str | int | None]:
    return [found.job_id or "-", found.seq, found.rule, found.detail]


def replay(
    context: typer.Context,
    gate: Gate = None,
    history: History = None,
    contract: Against = None,
    url: PlayedOn = None,
    as_json: AsJson = False,
) -> int:
    """Play the acceptance cases of gate-b2, or a history from a file against a contract."""
    if (gate is None) == (history is None):
        raise typer.BadParameter(f"name the gate ({GATE_B2.name}) or give a --history, one of the two")
    if history is not None:
        return _replay_history(history, contract, url, as_json)
    if gate != GATE_B2.name:
        raise typer.BadParameter(f"{gate!r} has no cases to replay; {GATE_B2.name} has")
    return _replay_gate(url if _was_typed(context, "url") else None, as_json)


def _was_typed(context: typer.Context, name: str) -> bool:
    """Not merely set in the environment: $DETENT_URL may be the database of an application at work."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _replay_history(file: Path, contract: str | None, url: str | None, as_json: bool) -> int:
    if contract is None:
        raise typer.BadParameter("--history needs the --contract to hold it against")
    try:
        text = file.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{file} cannot be read: {error}") from None
    table = find_contract(contract, url)
    played = replay_history(table, read_history(text))
    if as_json:
        say_json(played.as_dict())
    else:
        for line in _told(played, table.name):
            say(line)
    return FINE if played.ok else NO


def _told(played: Played, contract: str) -> Iterator[str]:
    size = counted(played.events, "event")
    if played.ok:
        yield f"{size}: legal under {contract}, ends in {played.derived or 'nothing: no event of this contract'}"
        return
    wrong = played.strict
    yield f"{size}: illegal under {contract} at index {wrong.index}"
    yield f"  {wrong.event} in status {wrong.status or '(nothing)'}"
    yield f"  legal there: {', '.join(wrong.legal) or 'nothing, the job has ended'}"
    yield f"  by its last word alone the job would be {played.derived}"


def _replay_gate(url: str | None, as_json: bool) -> int:
    """In a database of its own that is thrown away, unless one is named."""
    if url is not None:
        results = on_engine(url, run_gate_b2_cases)
    else:
        with tempfile.TemporaryDirectory(prefix="detent-replay-") as folder:
            results = on_engine(f"sqlite:///{folder}/replay.db", run_gate_b2_cases)
    ok = all(result.ok for result in results)
    if as_json:
        say_json({"ok": ok, "cases": [result.as_dict() for result in results]})
        return FINE if ok else NO
    show_table(("case", "", ">retries", "steps"), [_case_cells(result) for result in results])
    for problem in (f"{result.id}: {problem}" for result in results for problem in result.problems):
        say(problem)
    say(f"{GATE_B2.name}: {'passed' if ok else 'NOT passed'}")
    return FINE if ok else NO


def _case_cells(result: Result) -> list[str | int | None]:
    retries = result.records[-1]["retry_count"] if result.records else None
    return [result.id, "ok" if result.ok else "FAILED", retries, result.path]
