"""`detent simulate`: seeds of virtual time with every fault there is; and planted bugs, to see the instruments work."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from detent.cli.options import AsJson, option
from detent.cli.output import FINE, NO, counted, say, say_json, show_table
from detent.core.contract.builtin import CONTRACTS
from detent.core.errors import UnknownContract
from detent.proof.controlled_store import HONEST, Hooks
from detent.proof.explore.explore import STATES, explore
from detent.proof.planted_bugs import BUGS
from detent.proof.simulate.simulate import Run, Summary, simulate

Seeds = Annotated[int, option("--seeds", "How many seeds to run.", min=0)]
First = Annotated[int, option("--seed", "The first seed; the same one always gives the same run.")]
OfContract = Annotated[str | None, option("--contract", "Only jobs of this contract; default: drawn by the seed.")]
PlantedBug = Annotated[str | None, option("--bug", "Break the engine on purpose: see --list-bugs.")]
ListBugs = Annotated[bool, option("--list-bugs", "List the planted bugs and stop.")]
Explore = Annotated[bool, option("--explore", "Also search every interleaving of two workers and two jobs.")]
States = Annotated[int, option("--states", "States the search visits per contract, at most.", min=1)]


def simulate_command(
    seeds: Seeds = 100,
    seed: First = 0,
    contract: OfContract = None,
    bug: PlantedBug = None,
    list_bugs: ListBugs = False,
    explored: Explore = False,
    states: States = STATES,
    verbose: Annotated[bool, option("--verbose", "Let what is played out log its warnings.")] = False,
    as_json: AsJson = False,
) -> int:
    """Run workers, sweepers, producers and operators in virtual time, with faults; nothing outside is touched."""
    if list_bugs:
        return _list_bugs(as_json)
    if contract is not None and contract not in CONTRACTS:
        known = ", ".join(sorted(CONTRACTS))
        raise UnknownContract(f"contract {contract!r} is not known; known are {known}", contract=contract)
    hooks = _hooks(bug)
    digests: list[str] = []
    with _bar(seeds, shown=not as_json) as tick, _silence(verbose):

        def one_done(run: Run) -> None:
            digests.append(run.digest)
            tick()

        summary = simulate(range(seed, seed + seeds), contract=contract, hooks=hooks, progress=one_done)
    told: dict[str, Any] = {**summary.as_dict(), "seed": seed, "contract": contract, "bug": bug}
    told["digest"] = digests[0] if seeds == 1 else None
    if explored or (bug and summary.ok):
        with _silence(verbose):
            told["explored"] = _explore(contract, hooks, states)
        told["ok"] = summary.ok and all(search["ok"] for search in told["explored"])
    if as_json:
        say_json(told)
    else:
        _tell(summary, told)
    return FINE if told["ok"] else NO


def _hooks(bug: str | None) -> Hooks:
    if bug is None:
        return HONEST
    if bug not in BUGS:
        raise typer.BadParameter(f"no planted bug is called {bug!r}; `detent simulate --list-bugs` lists them")
    return BUGS[bug].hooks


def _explore(contract: str | None, hooks: Hooks, states: int) -> list[dict[str, Any]]:
    """Contract by contract, until one breaks."""
    found = []
    for name in [contract] if contract else CONTRACTS:
        search = explore(CONTRACTS[name], states=states, hooks=hooks)
        found.append(search.as_dict())
        if not search.ok:
            break
    return found


def _list_bugs(as_json: bool) -> int:
    if as_json:
        say_json({"bugs": [{"name": bug.name, "says": bug.says} for bug in BUGS.values()]})
    else:
        show_table(("bug", "what it does"), [[bug.name, bug.says] for bug in BUGS.values()])
    return FINE


@contextmanager
def _silence(verbose: bool) -> Iterator[None]:
    """Losses and outages are played, so nobody needs to be warned of them."""
    log = logging.getLogger("detent")
    level = log.level
    if not verbose:
        log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(level)


@contextmanager
def _bar(seeds: int, *, shown: bool) -> Iterator[Any]:
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not (shown and console.is_terminal)) as bar:
        task = bar.add_task("simulating", total=seeds)
        yield lambda: bar.advance(task)


def _tell(summary: Summary, told: dict[str, Any]) -> None:
    if summary.seeds:
        faults = sum(summary.faults.values())
        size = f"{counted(summary.seeds, 'seed')}, {counted(summary.jobs, 'job')}, {counted(summary.events, 'event')}"
        say(f"{size}, {counted(faults, 'fault')}, {summary.stale_refused} stale results refused")
    for violation in summary.violations[:10]:
        say(f"seed {violation['seed']}: {violation['rule']}: {violation['detail']} (job {violation['job_id'] or '-'})")
    if summary.shrunk:
        config = {key: value for key, value in summary.shrunk.items() if key != "violation"}
        say("the smallest run found that breaks the same rule:")
        say("  " + ", ".join(f"{key}={value}" for key, value in config.items()))
        say(f"  {summary.shrunk['violation']['detail']}")
    for search in told.get("explored", ()):
        end = "all there are" if search["exhausted"] else f"to depth {search['depth']}"
        say(f"explored {search['contract']}: {search['states']} states, {end}")
        if search["violation"]:
            say(f"{search['violation']['rule']}: {search['violation']['detail']}")
            for line in search["violation"]["path"]:
                say(f"  {line}")
    say("every promise held" if told["ok"] else "a promise was BROKEN")
