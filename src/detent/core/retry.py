"""Retry rules: backoff policies and which error codes are retried. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import Any

from .errors import ContractError

Jitter = Callable[[str, int, int], int]
"""(job_id, retry_no, upper) -> an integer in [0, upper], both ends included."""


def deterministic_jitter(job_id: str, retry_no: int, upper: int) -> int:
    """Jitter from a hash of job and retry number, so that a replay reproduces the delay."""
    digest = blake2b(f"{job_id}/{retry_no}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) % (upper + 1)


def plain(value: Any) -> Any:
    """A value of a contract as plain data: texts, numbers, lists and dicts."""
    if is_dataclass(value):
        return {row.name: plain(getattr(value, row.name)) for row in fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple | frozenset):
        return [plain(item) for item in (sorted(value) if isinstance(value, frozenset) else value)]
    return str(value) if isinstance(value, StrEnum) else value


class Origin(StrEnum):
    """Who says that an execution failed: the engine (a timeout, a lost or stopped worker, an operator), an exception of
    a Python handler, a handler that raised Fail, or the report of a worker over HTTP."""

    ENGINE = "engine"
    EXCEPTION = "exception"
    FAIL = "fail"
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class Exponential:
    """min(cap, base * factor^(retry_no - 1)) + jitter in [0, jitter_ms]; retry_no counts from 1.

    jitter_percent raises the upper end of the jitter by this part of the delay.
    """

    base_ms: int = 1_000
    cap_ms: int = 30_000
    jitter_ms: int = 300
    factor: float = 2
    jitter_percent: int = 0

    def delay_ms(self, job_id: str, retry_no: int, jitter: Jitter) -> int:
        delay = int(min(self.cap_ms, self.base_ms * self.factor ** min(retry_no - 1, 62)))
        upper = self.jitter_ms + delay * self.jitter_percent // 100
        return delay + (jitter(job_id, retry_no, upper) if upper else 0)


@dataclass(frozen=True, slots=True)
class Table:
    """One delay per retry; the last one repeats."""

    delays_ms: tuple[int, ...] = (60_000, 300_000, 900_000)

    def delay_ms(self, job_id: str, retry_no: int, jitter: Jitter) -> int:
        return self.delays_ms[min(retry_no, len(self.delays_ms)) - 1]


@dataclass(frozen=True, slots=True)
class Immediate:
    """No delay."""

    def delay_ms(self, job_id: str, retry_no: int, jitter: Jitter) -> int:
        return 0


Backoff = Exponential | Table | Immediate
KINDS: Mapping[str, type[Backoff]] = {"exponential": Exponential, "table": Table, "none": Immediate}


def backoff_to(backoff: Backoff) -> dict[str, Any]:
    """A backoff as plain data, as `backoff_from` reads it."""
    return {"kind": next(name for name, kind in KINDS.items() if isinstance(backoff, kind)), **plain(backoff)}


def backoff_from(row: Mapping[str, Any]) -> Backoff:
    """Read a backoff from a contract declaration; raises ContractError. `Contract` checks the numbers."""
    values = dict(row)
    kind = values.pop("kind", "exponential")
    if kind not in KINDS:
        raise ContractError(f"retry.kind {kind!r} is unknown; use one of {', '.join(KINDS)}")
    if "delays_ms" in values:
        values["delays_ms"] = tuple(values["delays_ms"])
    try:
        return KINDS[kind](**values)
    except TypeError as error:
        raise ContractError(f"retry ({kind}): {error}") from None


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
    opt_in: frozenset[str] = frozenset({Origin.FAIL})
    """Failures of these origins are retried only if they say `retryable`. For others the code decides."""
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
        """The rule as plain data, with the fields of its backoff among its own."""
        return {**backoff_to(self.backoff), **{name: value for name, value in plain(self).items() if name != "backoff"}}
