"""What a seed means: how many of whom, which contracts, which faults, for how long."""

from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from typing import Any

from detent.core.contract.builtin import CONTRACTS
from detent.system.ids import seeded

FAULTS = ("crash", "stall", "heart", "stop", "clock", "error before commit", "error after commit", "slow call")


@dataclass(frozen=True, slots=True)
class Config:
    """One run, wholly: the same config is the same run."""

    seed: int
    contracts: tuple[str, ...]
    jobs: int
    workers: int
    slots: int
    sweepers: int
    seconds: int
    """How long the stage with faults lasts."""
    operators: int
    gap_ms: int
    """How long a producer waits between two submits, more or less."""
    schedules: int = 0
    """How many there are; the first is steady, the others are meddled with."""
    limits: int = 0
    """How many limits hold; see simulate_limits."""
    faults: tuple[str, ...] = FAULTS
    lease_seconds: float = 6.0

    @classmethod
    def draw(cls, seed: int, contract: str | None = None) -> "Config":
        random = seeded(("config", seed))
        many = random.sample(sorted(CONTRACTS), random.randint(1, 3))
        jobs, seconds = random.randint(23, 37), random.randint(15, 26)
        schedules = seeded(("schedules", seed)).randint(0, 2)
        return cls(
            seed=seed,
            contracts=(contract,) if contract else tuple(many),
            jobs=jobs,
            workers=random.randint(2, 4),
            slots=random.randint(1, 4),
            sweepers=max(random.randint(1, 2), schedules),
            seconds=seconds,
            operators=random.randint(1, 2),
            gap_ms=seconds * 1_500 // jobs,
            schedules=schedules,
            limits=seeded(("limits", seed)).randint(0, 3),
        )

    def smaller(self) -> list["Config"]:
        """Configs that are a little less than this one, the boldest first."""
        found = []
        for name, least in _SIZES:
            value = getattr(self, name)
            found += [replace(self, **{name: n}) for n in _less(value, least)]  # type: ignore[arg-type]
        found += [replace(self, sweepers=1)] if self.sweepers > 1 else []
        found += [replace(self, faults=_without(self.faults, one)) for one in self.faults]
        if len(self.contracts) > 1:
            found += [replace(self, contracts=_without(self.contracts, one)) for one in self.contracts]
        return found

    def reseeded(self, number: int) -> "Config":
        """The same sizes with other luck; a smaller world often needs it to break in the same way."""
        return replace(self, seed=self.seed + 1_000_003 * number)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


_SIZES = (("jobs", 1), ("seconds", 2), ("workers", 1), ("slots", 1), ("operators", 0), ("schedules", 0), ("limits", 0))


def _less(value: int, least: int) -> list[int]:
    return sorted({least, value // 2, value - 1} & set(range(least, value)))


def _without(values: Collection[str], one: str) -> tuple[str, ...]:
    return tuple(value for value in values if value != one)
