"""The options `retries`, `timeout` and `backoff` of a step: how often its function is called, and how long a call may
take."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from detent.core import retry
from detent.core.errors import DetentError, InvalidInput, check_number
from detent.core.options.backoff import Exponential, backoff_text, parse_backoff
from detent.core.options.spans import seconds_of

from .outcomes import Cancel, Fail, Retry, Snooze

_NAMES = frozenset({"retries", "timeout", "backoff"})
_CODE = "STEP_OPTION_INVALID"
_OUTCOMES = (Retry, Fail, Snooze, Cancel)
"""They end the execution; the step that raises one of them is not repeated."""


@dataclass(frozen=True, slots=True)
class StepRetries:
    """Without options: one call, without a limit of time."""

    retries: int = 0
    timeout: float | None = None
    backoff: retry.Backoff | None = None

    def delay(self, key: str, attempt: int, error: Exception, jitter: retry.Jitter) -> float | None:
        """Seconds until the next call after this error of call number `attempt`; None: the error is final."""
        permanent = isinstance(error, DetentError) and not error.retryable
        if attempt > self.retries or permanent or isinstance(error, _OUTCOMES) or self.backoff is None:
            return None
        return self.backoff.delay_ms(key, attempt, jitter) / 1_000

    async def wait_for(self, awaitable: Awaitable[Any], step: str) -> Any:
        """The awaited value; raises TimeoutError if it takes too long."""
        if self.timeout is None:
            return await awaitable
        limit = asyncio.timeout(self.timeout)
        try:
            async with limit:
                return await awaitable
        except TimeoutError:
            if limit.expired():
                raise TimeoutError(f"step {step!r} took longer than its timeout of {self.timeout:g} s") from None
            raise

    def check_plain(self, step: str) -> None:
        """Refuse a timeout for a function that is not async: it has returned, and could not have been interrupted."""
        if self.timeout is not None:
            message = f"step {step!r}: a timeout needs an async function, a plain one cannot be interrupted"
            raise InvalidInput(f"{message}; pass a timeout to what it calls, or limit the job: timeout=", code=_CODE)


NO_RETRIES = StepRetries()


def split_options(function: Callable[..., Any], kwargs: Mapping[str, Any]) -> tuple[StepRetries, Mapping[str, Any]]:
    """The options among the keyword arguments of a step, and the arguments of its function.

    An argument that the function itself has a parameter for, or takes with **kwargs, is passed to the function.
    """
    names = _NAMES & kwargs.keys()
    names = names - _parameters(function) if names else names
    if not names:
        return NO_RETRIES, kwargs
    options = {name: kwargs[name] for name in names}
    retries, timeout, backoff = options.get("retries", 0), options.get("timeout"), options.get("backoff")
    check_number(retries, "retries", 0, 1_000, _CODE)
    limit = None if timeout is None else seconds_of(timeout, "timeout", low=0.001, code=_CODE)
    delays = parse_backoff(backoff_text(Exponential() if backoff is None else backoff))
    return StepRetries(retries, limit, delays), {name: kwargs[name] for name in kwargs.keys() - names}


def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # a builtin without a signature
        return frozenset()
    return _NAMES if any(p.kind is p.VAR_KEYWORD for p in parameters.values()) else frozenset(parameters)
