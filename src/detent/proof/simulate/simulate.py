"""The simulator: one seed, one run, always the same; many seeds, one answer; a seed that fails, made small."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from detent.proof.controlled_store import HONEST, Hooks, Violation, run_all
from detent.proof.verify.verify import verify

from .config import Config
from .world import World

_SHRINKS = 150
"""Runs a shrink may take."""
_LUCK = 3
"""Other seeds tried at one size before it is taken for the smallest."""


@dataclass(frozen=True, slots=True)
class Run:
    """What one seed did."""

    config: Config
    jobs: int
    events: int
    faults: dict[str, int]
    stale_refused: int
    seconds: float
    digest: str
    violations: list[Violation]
    edges: frozenset[tuple[str, str | None, str, str]]
    """(contract, source, event, target) of every step that was taken."""
    trace: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.violations


@dataclass(slots=True)
class Summary:
    """Many seeds together."""

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


def run_config(config: Config, hooks: Hooks = HONEST, *, keep_trace: bool = False, verified: bool = False) -> Run:
    """verified: when all is over, `detent verify` gives a second opinion."""
    world = World(config, hooks, keep_trace=keep_trace)
    try:
        world.run()
        if verified and not world.watchman.violations:
            world.watchman.violations += _second_opinion(world)
        jobs: Any = world.connection.execute("SELECT count(*) FROM jobs").fetchall()
        return Run(
            config=config,
            jobs=jobs[0][0],
            events=world.watchman.events,
            faults=world.faults,
            stale_refused=world.stale_refused,
            seconds=world.loop.time / 1_000_000,
            digest=world.digest(),
            violations=world.watchman.violations,
            edges=frozenset(world.connection.execute(_EDGES)),
            trace=world.trace or [],
        )
    finally:
        world.close()


def _second_opinion(world: World) -> list[Violation]:
    report = run_all(verify(world.engine.store, world.engine.contracts))
    return [
        Violation(found.job_id or "", f"verify: {found.rule}", found.detail, found.seq) for found in report.violations
    ]


def run_seed(
    seed: int,
    *,
    contract: str | None = None,
    hooks: Hooks = HONEST,
    keep_trace: bool = False,
    verified: bool = False,
) -> Run:
    return run_config(Config.draw(seed, contract), hooks, keep_trace=keep_trace, verified=verified)


def simulate(
    seeds: Iterable[int],
    *,
    contract: str | None = None,
    hooks: Hooks = HONEST,
    progress: Callable[[Run], object] = lambda run: None,
) -> Summary:
    """Run seeds until one fails; that one is shrunk."""
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


def shrink(run: Run, hooks: Hooks = HONEST, tries: int = _SHRINKS) -> Run:
    """The smallest run found that still breaks the same rule: fewer jobs, people and faults, a shorter stage."""
    rule = run.violations[0].rule
    best, luck = run, 0
    smaller = run.config.smaller()
    while tries and (smaller or luck < _LUCK):
        if not smaller:
            luck += 1
            smaller = [config.reseeded(luck) for config in best.config.smaller()]
            continue
        tries -= 1
        candidate = run_config(smaller.pop(0), hooks)
        if any(violation.rule == rule for violation in candidate.violations):
            best, luck, smaller = candidate, 0, candidate.config.smaller()
    return best


_EDGES = "SELECT DISTINCT j.contract, e.source, e.event, e.target FROM events e JOIN jobs j ON j.id = e.job_id"


def _size(run: Run) -> dict[str, Any]:
    return {"events": run.events, "faults_seen": run.faults, "virtual_seconds": run.seconds}
