"""Failure injection for tests: a timeout, a transient error or a process death at a named point of a handler.

The handler calls `injector.reach("before_charge")` at the point; the injector raises there if a fault is configured for
this invocation. The same calls always give the same failures. Without faults `reach` only counts, so the calls may stay
in the code. It works in every worker: under p3c a process death makes the run interrupted, which is not charged.
"""

import json
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from detent.core.contract.builtin import CONTRACTS, DEFAULT, find_contract
from detent.core.contract.model import Contract
from detent.core.errors import InvalidInput
from detent.handler.outcomes import Fail, Retry

from .single_step_worker import ProcessDied

log = logging.getLogger("detent.testing")


class Mode(StrEnum):
    """What a fault does: fail as a timeout, raise a retryable error, or end the worker process."""

    TIMEOUT = "timeout"
    TRANSIENT_ERROR = "transient_error"
    PROCESS_RESTART_INTERRUPT = "process_restart_interrupt"


@dataclass(frozen=True, slots=True)
class Fault:
    """A failure at a named point, from invocation `at_invocation` (the first is 1), `repeat` times in a row.

    Raises InvalidInput (INJECTION_INVALID) for an unknown mode, an empty point, or a number below 1.
    """

    mode: Mode | str
    point: str
    at_invocation: int = 1
    repeat: int = 1

    def __post_init__(self) -> None:
        if self.mode not in list(Mode):
            modes = ", ".join(Mode)
            raise InvalidInput(f"failure mode {self.mode!r} is unknown; use one of {modes}", code="INJECTION_INVALID")
        numbers = (self.at_invocation, self.repeat)
        if not self.point or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in numbers):
            raise InvalidInput(
                "point must not be empty, at_invocation and repeat must be whole numbers of at least 1",
                code="INJECTION_INVALID",
            )

    def applies(self, point: str, invocation: int) -> bool:
        """Does this fault fail the given invocation of the point?"""
        return point == self.point and self.at_invocation <= invocation < self.at_invocation + self.repeat


class InjectedTimeout(Fail):
    """Fails the execution like a real timeout: with the contract's timeout code, retried if the contract retries it."""


class InjectedError(Retry):
    """A failure that is retried."""


class FailureInjector:
    """Raises configured failures at named points, and counts how often each point was reached.

        injector = FailureInjector(Fault("transient_error", "before_charge", repeat=2))

        @app.job("charge")
        async def charge(order_id: int) -> None:
            injector.reach("before_charge")

    `reached` counts the visits of each point; `injected` lists (point, invocation, mode) of every failure so far.
    """

    def __init__(
        self,
        *faults: Fault,
        contract: Contract | str = DEFAULT,
        die: Callable[[], object] = lambda: None,
    ) -> None:
        """contract: the contract whose timeout code is used.
        die: called before ProcessDied is raised; a test with real processes can pass a function that kills the process.
        """
        self.faults = faults
        self.reached: Counter[str] = Counter()
        self.injected: list[tuple[str, int, Mode]] = []
        self._contract = contract if isinstance(contract, Contract) else find_contract(CONTRACTS, contract)
        self._die = die
        self._visits: Counter[tuple[str, str | None]] = Counter()
        self._lock = threading.Lock()

    @classmethod
    def from_mapping(cls, plan: Mapping[str, Mapping[str, Any]], **options: Any) -> "FailureInjector":
        """An injector from {mode: {"point": …, "at_invocation": …, "repeat": …}}: one fault per mode.

        Raises InvalidInput (INJECTION_INVALID).
        """
        try:
            return cls(*(Fault(mode, **fault) for mode, fault in plan.items()), **options)
        except TypeError as error:
            raise InvalidInput(
                f"a fault has the keys point, at_invocation and repeat: {error}", code="INJECTION_INVALID"
            ) from None

    @classmethod
    def from_environment(cls, **options: Any) -> "FailureInjector":
        """An injector with the faults in $DETENT_INJECT: the JSON text of a plan for `from_mapping`, or empty for none.

        For staging: faults are refused unless $DETENT_ALLOW_INJECTION is 1. Raises InvalidInput (INJECTION_NOT_ALLOWED,
        INJECTION_INVALID).
        """
        text = os.environ.get("DETENT_INJECT", "").strip()
        if not text:
            return cls(**options)
        if os.environ.get("DETENT_ALLOW_INJECTION") != "1":
            message = "$DETENT_INJECT is set, but failures are injected only where $DETENT_ALLOW_INJECTION is 1"
            raise InvalidInput(f"{message}; unset $DETENT_INJECT in production", code="INJECTION_NOT_ALLOWED")
        try:
            injector = cls.from_mapping(json.loads(text), **options)
        except (ValueError, AttributeError, RecursionError) as error:
            message = f"$DETENT_INJECT must be JSON like {{mode: {{point, at_invocation, repeat}}}}: {error}"
            raise InvalidInput(message, code="INJECTION_INVALID") from None
        log.warning("failures are injected: %s", text)
        return injector

    def reach(self, point: str, key: str | None = None) -> None:
        """Mark that the handler is at this point; raises if a fault is configured for this invocation.

        key: counts invocations separately for each key, for example for each job id.
        """
        with self._lock:
            self.reached[point] += 1
            self._visits[point, key] += 1
            invocation = self._visits[point, key]
            fault = next((fault for fault in self.faults if fault.applies(point, invocation)), None)
            if fault is None:
                return
            self.injected.append((point, invocation, Mode(fault.mode)))
        self._fail(Mode(fault.mode), f"injected at {point!r}, invocation {invocation}")

    def _fail(self, mode: Mode, message: str) -> None:
        if mode is Mode.TIMEOUT:
            code = self._contract.code("timeout")
            raise InjectedTimeout(f"timeout {message}", code=code, retryable=self._contract.retry.retries(code, None))
        if mode is Mode.TRANSIENT_ERROR:
            raise InjectedError(f"transient error {message}")
        self._die()
        raise ProcessDied(message)
