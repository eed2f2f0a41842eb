"""Failure injection for users' tests: three modes, each at a named point, on a chosen invocation, so many times.

A handler is given an injector and calls `injector.reach("before_charge")` where it may be hit. The same calls always
give the same failures. Without faults an injector does nothing, so the calls may stay in the code.
"""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NoReturn

from detent.core.contract.builtin import CONTRACTS, DEFAULT
from detent.core.contract.model import Contract
from detent.core.errors import InvalidInput
from detent.handler.outcomes import Fail, Retry

from .single_step_worker import ProcessDied


class Mode(StrEnum):
    TIMEOUT = "timeout"
    TRANSIENT_ERROR = "transient_error"
    PROCESS_RESTART_INTERRUPT = "process_restart_interrupt"


@dataclass(frozen=True, slots=True)
class Fault:
    """Fail at this point from its at_invocation-th time on (the first is 1), repeat times in a row."""

    mode: Mode | str
    point: str
    at_invocation: int = 1
    repeat: int = 1

    def __post_init__(self) -> None:
        if self.mode not in list(Mode):
            known = ", ".join(Mode)
            raise InvalidInput(f"failure mode {self.mode!r} is unknown; use one of {known}", code="INJECTION_INVALID")
        numbers = (self.at_invocation, self.repeat)
        if not self.point or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in numbers):
            raise InvalidInput(
                "a fault needs a point, and at_invocation and repeat of at least 1", code="INJECTION_INVALID"
            )

    def hits(self, point: str, invocation: int) -> bool:
        return point == self.point and self.at_invocation <= invocation < self.at_invocation + self.repeat


class InjectedTimeout(Fail):
    """Ends the execution as the worker ends one that ran past its timeout: same code, same right to a retry."""


class InjectedError(Retry):
    """A failure that goes away by itself."""


def _die() -> NoReturn:
    raise ProcessDied("an injected process restart")


class FailureInjector:
    """Consulted at named points. Counts every visit, of all jobs together, or apart for each `key`."""

    def __init__(
        self,
        *faults: Fault,
        contract: Contract | str = DEFAULT,
        die: Callable[[], object] = _die,
    ) -> None:
        """contract: whose timeout code is used. die: how the process ends; a test with real processes kills itself."""
        self.faults = faults
        self.reached: Counter[str] = Counter()
        self.injected: list[tuple[str, int, Mode]] = []
        """(point, invocation, mode) of every failure so far."""
        self._contract = contract if isinstance(contract, Contract) else _known(contract)
        self._die = die
        self._visits: Counter[tuple[str, str | None]] = Counter()
        self._lock = threading.Lock()

    @classmethod
    def from_mapping(cls, plan: Mapping[str, Mapping[str, Any]], **options: Any) -> "FailureInjector":
        """{"timeout": {"point": …, "at_invocation": …, "repeat": …}, …}: one fault per mode."""
        try:
            return cls(*(Fault(mode, **fault) for mode, fault in plan.items()), **options)
        except TypeError as error:
            raise InvalidInput(
                f"a fault is {{point, at_invocation, repeat}}: {error}", code="INJECTION_INVALID"
            ) from None

    def reach(self, point: str, key: str | None = None) -> None:
        """Come by this point; raises if a fault is due here. key (a job's id, say) counts apart from others."""
        with self._lock:
            self.reached[point] += 1
            self._visits[point, key] += 1
            invocation = self._visits[point, key]
            fault = next((fault for fault in self.faults if fault.hits(point, invocation)), None)
            if fault is None:
                return
            self.injected.append((point, invocation, Mode(fault.mode)))
        self._fail(Mode(fault.mode), f"injected at {point!r}, invocation {invocation}")

    def _fail(self, mode: Mode, told: str) -> None:
        if mode is Mode.TIMEOUT:
            code = self._contract.code("timeout")
            raise InjectedTimeout(f"timeout {told}", code=code, retryable=self._contract.retry.retries(code, None))
        if mode is Mode.TRANSIENT_ERROR:
            raise InjectedError(f"transient error {told}")
        self._die()
        raise ProcessDied(told)


def _known(name: str) -> Contract:
    if name not in CONTRACTS:
        raise InvalidInput(f"contract {name!r} is not carried by Detent; pass the Contract", code="CONTRACT_UNKNOWN")
    return CONTRACTS[name]
