"""The simulator's entry points: run a seed, run many seeds, shrink a run that failed."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from detent.proof.controlled_store import DEFAULT_HOOKS, Hooks
from detent.proof.verify.rules import Finding

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
    trace_digest: str
    """A hash of the trace lines only: which events, faults and claims happened when."""
    violations: list[Finding]
    edges: frozenset[tuple[str, str | None, str, str]]
    """(contract, source, event, target) of every edge that was taken."""
    trace: list[str] = field(default_factory=list)
    job_numbers: dict[str, int] = field(default_factory=dict)
    """The numbers of the jobs in the trace."""

    @property
    def ok(self) -> bool:
        return not self.violations


@dataclass(slots=True)
class Summary:
    """Totals over many seeds."""

    seeds: int = 0
    jobs: int = 0
    events: int = 0
    faults: Counter[str] = field(default_factory=Counter)
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
        self.faults.update(run.faults)
        self.violations += [{"seed": run.config.seed, **violation._asdict()} for violation in run.violations]

    def as_dict(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {"ok": self.ok, **fields, "faults": dict(sorted(self.faults.items()))}


def run_config(config: Config, hooks: Hooks = DEFAULT_HOOKS, *, keep_trace: bool = False) -> Run:
    """Run one simulation."""
    simulation = Simulation(config, hooks, keep_trace=keep_trace)
    monitor = simulation.monitor
    try:
        simulation.run()
        jobs: Any = simulation.connection.execute("SELECT count(*) FROM detent_job_list").fetchall()
        return Run(
            config=config,
            jobs=jobs[0][0],
            events=monitor.events,
            faults=simulation.faults,
            stale_refused=simulation.stale_refused,
            seconds=simulation.loop.time(),
            digest=simulation.digest(),
            trace_digest=simulation.trace_digest.hexdigest(),
            violations=monitor.violations,
            edges=frozenset(simulation.connection.execute(_EDGES)),
            trace=simulation.trace or [],
            job_numbers=simulation.job_numbers,
        )
    finally:
        simulation.close()


def run_seed(seed: int, *, contract: str | None = None, hooks: Hooks = DEFAULT_HOOKS, keep_trace: bool = False) -> Run:
    """Run the config drawn from a seed; contract: only jobs of this contract."""
    return run_config(Config.draw(seed, contract), hooks, keep_trace=keep_trace)


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
            small = run_config(shrink(run, hooks).config, hooks, keep_trace=True)
            size = {"events": small.events, "faults_seen": small.faults, "virtual_seconds": small.seconds}
            finding = small.violations[0]
            violation = {**finding._asdict(), "job": small.job_numbers.get(finding.job_id or "")}
            for job_id, number in small.job_numbers.items():
                violation["detail"] = violation["detail"].replace(job_id, f"job {number}")
            summary.shrunk = {**asdict(small.config), "violation": violation, **size, "story": small.trace}
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
    "SELECT DISTINCT j.contract, e.source, e.event, e.target"
    " FROM detent_event_list e JOIN detent_job_list j ON j.id = e.job_id"
)
