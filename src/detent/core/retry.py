"""Retry rules: backoff policies and which error codes are retried. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Protocol

from .errors import ContractError

Jitter = Callable[[str, int, int], int]
"""(job_id, retry_no, upper) -> an integer in [0, upper], both ends included."""


def deterministic_jitter(job_id: str, retry_no: int, upper: int) -> int:
    """Jitter from a hash of job and retry number, so that a replay reproduces the delay."""
    digest = blake2b(f"{job_id}/{retry_no}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) % (upper + 1)


class Backoff(Protocol):
    def delay_ms(self, job_id: str, retry_no: int, jitter: Jitter) -> int: ...

    def as_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Exponential:
    """min(cap, base * factor^(retry_no - 1)) + jitter in [0, jitter_ms]; retry_no counts from 1."""

    base_ms: int = 1_000
    cap_ms: int = 30_000
    jitter_ms: int = 300
    factor: int = 2

    def delay_ms(self, job_id: str, retry_no: int, jitter: Jitter) -> int:
        grown: int = self.base_ms * self.factor ** min(retry_no - 1, 62)
        return min(self.cap_ms, grown) + (jitter(job_id, retry_no, self.jitter_ms) if self.jitter_ms else 0)

    def as_dict(self) -> dict[str, Any]:
        return {
            "kind": "exponential",
            "base_ms": self.base_ms,
            "cap_ms": self.cap_ms,
            "jitter_ms": self.jitter_ms,
            "factor": self.factor,
        }


@dataclass(frozen=True, slots=True)
class Table:
    """One delay per retry; the last one repeats."""

    delays_ms: tuple[int, ...] = (60_000, 300_000, 900_000)

    def delay_ms(self, job_id: str, retry_no: int, jitter: Jitter) -> int:
        return self.delays_ms[min(retry_no, len(self.delays_ms)) - 1]

    def as_dict(self) -> dict[str, Any]:
        return {"kind": "table", "delays_ms": list(self.delays_ms)}


@dataclass(frozen=True, slots=True)
class Immediate:
    """No delay."""

    def delay_ms(self, job_id: str, retry_no: int, jitter: Jitter) -> int:
        return 0

    def as_dict(self) -> dict[str, Any]:
        return {"kind": "none"}


KINDS: Mapping[str, type[Any]] = {"exponential": Exponential, "table": Table, "none": Immediate}


def backoff_from(row: Mapping[str, Any]) -> Backoff:
    """Read a backoff from a contract declaration; raises ContractError with the faulty value."""
    values = dict(row)
    kind = values.pop("kind", "exponential")
    if kind not in KINDS:
        raise ContractError(f"retry.kind {kind!r} is unknown; use one of {', '.join(KINDS)}")
    if "delays_ms" in values:
        values["delays_ms"] = tuple(values["delays_ms"])
    try:
        backoff: Backoff = KINDS[kind](**values)
    except TypeError as error:
        raise ContractError(f"retry ({kind}): {error}") from None
    for name, value in values.items():
        numbers = value if isinstance(value, tuple) else (value,)
        if not numbers or any(not isinstance(n, int) or isinstance(n, bool) or n < 0 for n in numbers):
            raise ContractError(f"retry.{name} must be whole numbers of at least 0, got {value!r}")
    return backoff


@dataclass(frozen=True, slots=True)
class RetryRule:
    """Backoff, number of retries and retryable error codes of a contract."""

    backoff: Backoff = field(default_factory=Exponential)
    max_retries: int = 3
    frozen: bool = False
    """True: jobs of this contract may not set another max_retries."""
    only_codes: frozenset[str] | None = None
    """If set, only these codes are retried."""
    permanent_codes: frozenset[str] = frozenset()
    caps: Mapping[str, int] = field(default_factory=dict)
    """Retries allowed for one error code, below the job's own budget."""

    def retries(self, code: str, retryable: bool | None) -> bool:
        """True if this failure is retryable, regardless of earlier failures."""
        if self.only_codes is not None and code not in self.only_codes:
            return False
        return retryable is not False and (code not in self.permanent_codes or retryable is True)

    def allows(self, code: str, retryable: bool | None, seen_of_code: int) -> bool:
        """True if this failure may be retried, apart from the job's max_retries."""
        cap = self.caps.get(code)
        return self.retries(code, retryable) and (cap is None or seen_of_code < cap)

    def as_dict(self) -> dict[str, Any]:
        return {
            **self.backoff.as_dict(),
            "max_retries": self.max_retries,
            "frozen": self.frozen,
            "only_codes": None if self.only_codes is None else sorted(self.only_codes),
            "permanent_codes": sorted(self.permanent_codes),
            "caps": dict(self.caps),
        }
