"""The configuration of a simulation, drawn from its seed: sizes, contracts, faults, duration."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from detent.core.contract.builtin import CONTRACTS, stream_contract_names
from detent.engine.pruning import Retention
from detent.system.ids import seeded_random

FAULTS = (
    "crash", "crash in a call", "stall", "heart", "stop", "clock", "old version", "deploy",
    "error before commit", "error after commit", "slow call", "torn batch", "repeated reply", "outage", "slow disk",
    "stream error", "stream restart", "stream outage", "orchestrator crash",
)  # fmt: skip
"""heart: a worker is slow, one heartbeat is answered late, and it sends no others for a while. stop: a worker stops
gracefully. clock: the wall clock jumps. old version: a worker runs a handler that cannot run every payload. deploy: a
worker drains while one of the other version, older or newer, works beside it. torn batch: the store fails in the middle
of a transaction, or the stream server has executed only the first commands of a batch. repeated reply: the answer to a
heartbeat arrives a second time, later. outage: every call fails for a while. slow disk: calls are executed one after
the other, each takes long."""

LIMITS: tuple[dict[str, Any], ...] = (
    {"per": "tenant", "concurrency": 2},
    {"queue": "other", "rate": (6, 3.0)},
    {"queue": "default", "tenant": "north", "concurrency": 1, "rate": (9, 4.0)},
)

QUOTAS = (("north", 14), ("default", 4))
"""(tenant, most unfinished jobs); the jobs of schedules belong to the tenant `default`."""

MAX_DELIVERIES = 3
"""How many deliveries of a task on the stream may end without a result."""


@dataclass(frozen=True, slots=True)
class Config:
    """Everything a run depends on: the same config gives the same run."""

    seed: int
    contracts: tuple[str, ...]
    jobs: int
    workers: int
    slots: int
    sweepers: int
    seconds: int
    """Duration of the phase with faults."""
    operators: int
    gap_ms: int
    """Average pause of a producer between two submits, roughly."""
    schedules: int = 0
    """Number of schedules; the first is never changed, the others are."""
    limits: int = 0
    """How many of LIMITS are set."""
    quotas: int = 0
    """How many of QUOTAS are set."""
    bulks: int = 0
    """How many times a producer submits several small jobs in one call."""
    batches_in_flight: int = 1
    """How many batches a worker settles and claims at the same time."""
    stream_workers: int = 0
    orchestrators: int = 0
    keep_seconds: int | None = None
    """Jobs are deleted so long after their end."""
    alerts: bool = False
    """Whether alert rules are evaluated."""
    sweep_seconds: float = 0.5
    hurries: bool = False
    """After the faults, waits and backoffs are ended by signals and aborts instead of by their time."""
    faults: tuple[str, ...] = FAULTS
    lease_seconds: float = 3.0

    @classmethod
    def draw(cls, seed: int, contract: str | None = None) -> "Config":
        random = seeded_random(("config", seed))
        contracts = random.sample(sorted(CONTRACTS), random.randint(1, 3))
        jobs, seconds = random.randint(18, 28), random.randint(12, 22)
        schedules = seeded_random(("schedules", seed)).randint(0, 2)
        chosen = (contract,) if contract else tuple(contracts)
        streams = seeded_random(("streams", seed))
        on_stream = bool(stream_contract_names({name: CONTRACTS[name] for name in chosen})) and streams.random() < 0.7
        return cls(
            seed=seed,
            contracts=chosen,
            jobs=jobs,
            workers=random.randint(2, 4),
            slots=random.randint(1, 4),
            sweepers=max(random.randint(1, 2), schedules),
            seconds=seconds,
            operators=random.randint(1, 2),
            gap_ms=seconds * 1_500 // jobs,
            schedules=schedules,
            limits=0 if on_stream else seeded_random(("limits", seed)).randint(0, 3),  # they do not apply to streams
            quotas=seeded_random(("quotas", seed)).choice((0, 0, 1, 2)),
            bulks=seeded_random(("bulks", seed)).randint(2, 4),
            alerts=seeded_random(("alerts", seed)).random() < 0.1,
            sweep_seconds=seeded_random(("sweeps", seed)).choice((0.5, 1.0, 1.5, 2.0)),
            hurries=seeded_random(("hurries", seed)).random() < 0.7,
            batches_in_flight=seeded_random(("batches", seed)).randint(1, 2),
            stream_workers=streams.randint(1, 2) if on_stream else 0,
            orchestrators=streams.randint(1, 2) if on_stream else 0,
            keep_seconds=seeded_random(("retention", seed)).choice((None, None, 8)),
        )

    @property
    def retention(self) -> tuple[Retention, ...]:
        return () if self.keep_seconds is None else (Retention(keep_seconds=self.keep_seconds),)

    def smaller(self) -> list["Config"]:
        """Configs that each differ from this one in one smaller size, one fault or one contract less."""
        configs = []
        for name, least in _SIZES:
            value = getattr(self, name)
            smaller = sorted({least, value // 2, value - 1} & set(range(least, value)))
            configs += [replace(self, **{name: n}) for n in smaller]
        configs += [replace(self, sweepers=1)] if self.sweepers > 1 else []
        configs += [replace(self, faults=_without(self.faults, fault)) for fault in self.faults]
        if len(self.contracts) > 1:
            configs += [replace(self, contracts=_without(self.contracts, name)) for name in self.contracts]
        return configs

    def reseeded(self, number: int) -> "Config":
        """The same sizes with another seed: a smaller run often needs other random numbers to fail in the same way."""
        return replace(self, seed=self.seed + 1_000_003 * number)


_SIZES = (("jobs", 1), ("seconds", 2), ("workers", 1), ("slots", 1), ("operators", 0), ("schedules", 0), ("limits", 0),
          ("quotas", 0), ("bulks", 0))  # fmt: skip


def _without(values: Collection[str], removed: str) -> tuple[str, ...]:
    return tuple(value for value in values if value != removed)
