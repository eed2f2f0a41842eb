"""`detent simulate`: seeded runs in virtual time with injected faults; planted bugs show that violations are found."""

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Annotated, Any

import typer

from detent.cli.options import AsJson, option
from detent.cli.output import EXIT_NO, EXIT_OK, pluralize, print_json, print_line, print_list, progress_bar
from detent.core.contract.builtin import CONTRACTS
from detent.core.errors import UnknownContract
from detent.proof.controlled_store import DEFAULT_HOOKS, Hooks
from detent.proof.explore.explore import STATES, explore
from detent.proof.explore.handlers import Scenario
from detent.proof.planted_bugs import BUGS
from detent.proof.simulate.simulate import Run, Summary, simulate
from detent.proof.simulate.story import in_words, story_of

_STORY_LINES = 60
"""At most so many lines of the smallest run are printed; `--json` has all of them."""


def simulate_command(
    seeds: Annotated[int, option("How many seeds to run.", min=0)] = 100,
    seed: Annotated[int, option("The first seed; a seed always gives the same run.")] = 0,
    contract: Annotated[str | None, option("Only jobs of this contract; default: chosen by the seed.")] = None,
    bug: Annotated[str | None, option("Plant this bug in the engine; --list-bugs lists them.")] = None,
    list_bugs: Annotated[bool, option("List the bugs that can be planted and exit.")] = False,
    explored: Annotated[
        bool,
        option("Also explore all interleavings of two workers, for each contract and kind of job.", name="--explore"),
    ] = False,
    states: Annotated[int, option("Maximum number of states per contract and kind of job.", min=1)] = STATES,
    verbose: Annotated[bool, option("Show the log messages of the simulated processes.")] = False,
    as_json: AsJson = False,
) -> int:
    """Simulate workers, sweepers, producers and operators with faults in virtual time; no database is used."""
    if list_bugs:
        bugs = [(bug.name, bug.description) for bug in BUGS.values()]
        view = {"bugs": [{"name": name, "says": description} for name, description in bugs]}
        print_list(as_json, view, ("bug", "what it does"), bugs)
        return EXIT_OK
    if contract is not None and contract not in CONTRACTS:
        names = ", ".join(sorted(CONTRACTS))
        raise UnknownContract(f"contract {contract!r} does not exist; available: {names}", contract=contract)
    if bug is not None and bug not in BUGS:
        raise typer.BadParameter(f"bug {bug!r} does not exist; `detent simulate --list-bugs` lists the names")
    if not seeds and not explored and bug is None:
        raise typer.BadParameter("--seeds 0 runs nothing; use at least 1, or add --explore")
    hooks = DEFAULT_HOOKS if bug is None else BUGS[bug].hooks
    digests: list[str] = []
    gc.set_threshold(50_000, 20, 100)  # a run creates few cycles, and closes them
    with progress_bar("simulating", shown=not as_json, total=seeds) as update, _silence(verbose):

        def on_run_done(run: Run) -> None:
            digests.append(run.digest)
            update(advance=1)

        summary = simulate(range(seed, seed + seeds), contract=contract, hooks=hooks, progress=on_run_done)
    report: dict[str, Any] = {**summary.as_dict(), "seed": seed, "contract": contract, "bug": bug}
    report["digest"] = digests[0] if seeds == 1 else None
    if explored or (bug and summary.ok):
        with _silence(verbose):
            report["explored"] = _explore(contract, hooks, states)
        report["ok"] = summary.ok and all(search["ok"] for search in report["explored"])
    if as_json:
        print_json(report)
    else:
        _print_report(summary, report)
    return EXIT_OK if report["ok"] else EXIT_NO


def _explore(contract: str | None, hooks: Hooks, states: int) -> list[dict[str, Any]]:
    """Explore each scenario under one contract after another, until a violation is found."""
    searches: list[dict[str, Any]] = []
    for scenario, name in product(Scenario, [contract] if contract else CONTRACTS):
        if scenario.fits(CONTRACTS[name]) and all(search["ok"] for search in searches):
            searches.append(explore(CONTRACTS[name], states=states, hooks=hooks, scenario=scenario).as_dict())
    return searches


def _print_story(shrunk: dict[str, Any]) -> None:
    """The smallest run that fails: its size, and what happened to the job that broke the rule."""
    left_out = ("violation", "story", "faults")
    size = [f"{key}={value}" for key, value in shrunk.items() if value and key not in left_out]
    violation, story = shrunk["violation"], shrunk["story"]
    job = violation["job"]
    lines = story_of(story, job)
    shown = lines[-_STORY_LINES:]
    print_line("smallest run found that violates the same rule:")
    print_line(f"  {', '.join(size)}")
    if len(shown) < len(story):
        about = "the end of it" if job is None else f"what concerns job {job}, its parents and children"
        print_line(f"  {about} ({len(shown)} of {pluralize(len(story), 'line')}; --json has all):")
    for line in shown:
        print_line(f"  {in_words(line)}")
    print_line(f"  => {'' if job is None else f'job {job}: '}{violation['rule']}: {violation['detail']}")


@contextmanager
def _silence(verbose: bool) -> Iterator[None]:
    """Suppress log messages: losses and outages are simulated."""
    log = logging.getLogger("detent")
    level = log.level
    if not verbose:
        log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(level)


def _print_report(summary: Summary, report: dict[str, Any]) -> None:
    if summary.seeds:
        faults = sum(summary.faults.values())
        counts = {"seed": summary.seeds, "job": summary.jobs, "event": summary.events, "fault": faults}
        size = ", ".join(pluralize(number, word) for word, number in counts.items())
        print_line(f"{size}, {pluralize(summary.stale_refused, 'stale result')} refused")
    for violation in summary.violations[:10]:
        print_line(
            f"seed {violation['seed']}: {violation['rule']}: {violation['detail']} (job {violation['job_id'] or '-'})"
        )
    if summary.shrunk:
        _print_story(summary.shrunk)
    for search in report.get("explored", ()):
        extent = "complete" if search["exhausted"] else f"to depth {search['depth']}"
        print_line(f"explored {search['contract']}, {search['scenario'].words}: {search['states']} states, {extent}")
        if search["violation"]:
            print_line(f"{search['violation']['rule']}: {search['violation']['detail']}")
            for line in search["violation"]["path"]:
                print_line(f"  {line}")
    print_line("no violations" if report["ok"] else "VIOLATIONS FOUND")
