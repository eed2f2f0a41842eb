"""The simulator's entry points: run a seed, run many seeds, shrink a run that failed."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from detent.proof.controlled_store import DEFAULT_HOOKS, Hooks, Violation, run_all
from detent.proof.verify.verify import verify

from .config import Config
from .simulation import Simulation

_MAX_SHRINK_RUNS = 150
_RESEEDS = 3
"""Other seeds tried at one size before it is taken as the smallest."""


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one run."""

    config: Config
    jobs: int
    events: int
    faults: dict[str, int]
    stale_refused: int
    seconds: float
    digest: str
    violations: list[Violation]
    edges: frozenset[tuple[str, str | None, str, str]]
    """(contract, source, event, target) of every edge that was taken."""
    trace: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.violations


@dataclass(slots=True)
class Summary:
    """Totals over many seeds."""

    seeds: int = 0
    jobs: int = 0
    events: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    stale_refused: int = 0
    violations: list[dict[str, Any]] = field(default_factory=list)
    shrunk: dict[str, Any] | None = None

    @property
    def ok(self) -> bool:
        return not self.violations

    def add(self, run: Run) -> None:
        self.seeds += 1
        self.jobs += run.jobs
        self.events += run.events
        self.stale_refused += run.stale_refused
        for kind, number in run.faults.items():
            self.faults[kind] = self.faults.get(kind, 0) + number
        self.violations += [{"seed": run.config.seed, **violation.as_dict()} for violation in run.violations]

    def as_dict(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "seeds": self.seeds,
            "jobs": self.jobs,
            "events": self.events,
            "faults": dict(sorted(self.faults.items())),
            "stale_refused": self.stale_refused,
            "violations": self.violations,
            "shrunk": self.shrunk,
        }


def run_config(
    config: Config, hooks: Hooks = DEFAULT_HOOKS, *, keep_trace: bool = False, verified: bool = False
) -> Run:
    """Run one simulation; verified: also check the final database with `verify`."""
    simulation = Simulation(config, hooks, keep_trace=keep_trace)
    monitor = simulation.monitor
    try:
        simulation.run()
        if verified and not monitor.violations:
            monitor.violations += _verify_database(simulation)
        jobs: Any = simulation.connection.execute("SELECT count(*) FROM detent_jobs").fetchall()
        return Run(
            config=config,
            jobs=jobs[0][0],
            events=monitor.events,
            faults=simulation.faults,
            stale_refused=simulation.stale_refused,
            seconds=simulation.loop.time / 1_000_000,
            digest=simulation.digest(),
            violations=monitor.violations,
            edges=frozenset(simulation.connection.execute(_EDGES)),
            trace=simulation.trace or [],
        )
    finally:
        simulation.close()


def _verify_database(simulation: Simulation) -> list[Violation]:
    report = run_all(verify(simulation.engine.store, simulation.engine.contracts))
    return [
        Violation(finding.job_id or "", f"verify: {finding.rule}", finding.detail, finding.seq)
        for finding in report.violations
    ]


def run_seed(
    seed: int,
    *,
    contract: str | None = None,
    hooks: Hooks = DEFAULT_HOOKS,
    keep_trace: bool = False,
    verified: bool = False,
) -> Run:
    """Run the config drawn from a seed; contract: only jobs of this contract."""
    return run_config(Config.draw(seed, contract), hooks, keep_trace=keep_trace, verified=verified)


def simulate(
    seeds: Iterable[int],
    *,
    contract: str | None = None,
    hooks: Hooks = DEFAULT_HOOKS,
    progress: Callable[[Run], object] = lambda run: None,
) -> Summary:
    """Run seeds until one fails, and shrink that one. `progress` is called after every run."""
    summary = Summary()
    for seed in seeds:
        run = run_seed(seed, contract=contract, hooks=hooks)
        summary.add(run)
        progress(run)
        if not run.ok:
            small = shrink(run, hooks)
            summary.shrunk = {**small.config.as_dict(), "violation": small.violations[0].as_dict(), **_size(small)}
            break
    return summary


def shrink(run: Run, hooks: Hooks = DEFAULT_HOOKS, tries: int = _MAX_SHRINK_RUNS) -> Run:
    """The smallest run found that breaks the same rule.

    Greedy search: try each config of `Config.smaller`, restart from the first that still fails. When none fails, try
    the same configs with a few other seeds before giving up.
    """
    rule = run.violations[0].rule
    best, reseeds = run, 0
    candidates = run.config.smaller()
    while tries and (candidates or reseeds < _RESEEDS):
        if not candidates:
            reseeds += 1
            candidates = [config.reseeded(reseeds) for config in best.config.smaller()]
            continue
        tries -= 1
        candidate = run_config(candidates.pop(0), hooks)
        if any(violation.rule == rule for violation in candidate.violations):
            best, reseeds, candidates = candidate, 0, candidate.config.smaller()
    return best


_EDGES = (
    "SELECT DISTINCT j.contract, e.source, e.event, e.target FROM detent_events e JOIN detent_jobs j ON j.id = e.job_id"
)


def _size(run: Run) -> dict[str, Any]:
    return {"events": run.events, "faults_seen": run.faults, "virtual_seconds": run.seconds}
