"""The keyword options of `@app.job` and `app.limit`, typed for type checkers; those of `using` are in core.options."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import cached_property
from typing import Any, TypedDict, Unpack

from detent.core.errors import InvalidInput
from detent.core.limits import Limit, make_limit
from detent.core.options.backoff import backoff_text
from detent.core.options.job_options import DeclaredOptions, Seconds
from detent.core.options.spans import seconds_of
from detent.core.retry import Jitter
from detent.handler.handler import Options
from detent.ports.ids import Ids


class HandlerOptions(DeclaredOptions, total=False):
    """The options of `Detent.job`, described there."""

    contract: str | None
    soft_timeout: Seconds | None
    give_up_on: type[BaseException] | Sequence[type[BaseException]]
    retry_on: type[BaseException] | Sequence[type[BaseException]]
    capture_logs: bool
    park_seconds: Seconds
    strict_steps: bool
    hand_back_seconds: float


class EngineOptions(TypedDict, total=False):
    """Further options of `Detent`, for tests."""

    ids: Ids
    jitter: Jitter


def check_known(where: str, options: Iterable[str], *known: Iterable[str]) -> None:
    """Raise InvalidInput (OPTION_UNKNOWN) with a suggestion if an option is not in the first of `known`.

    The suggestion is taken from all of `known`.
    """
    accepted = set(known[0])
    for name in options:
        if name not in accepted:
            similar = get_close_matches(name, [option for names in known for option in names], 1)
            hint = f"did you mean {similar[0]}?" if similar else f"see help({where})"
            raise InvalidInput(f"{where} has no option {name!r}; {hint}", code="OPTION_UNKNOWN")


def checked_options(name: str | None, defaults: Options, options: Mapping[str, Any]) -> Options:
    """The options of a job in the types that its handler uses. Raises InvalidInput (OPTION_UNKNOWN, ..._INVALID)."""
    values = dict(options)
    try:
        for option in ("give_up_on", "retry_on"):
            if option in values:
                values[option] = _error_classes(option, values[option])
        if values.get("backoff") is not None:
            backoff_text(values["backoff"])
        for option, low in (("soft_timeout", 0.001), ("timeout", 0.001), ("park_seconds", 0.0)):
            if values.get(option) is not None:
                values[option] = seconds_of(values[option], option, low=low, code=f"{option.upper()}_INVALID")
        settings = replace(defaults, **values)
        if settings.soft_timeout is not None and settings.soft_timeout >= (settings.timeout or math.inf):
            message = (
                f"soft_timeout ({settings.soft_timeout:g} s) must be shorter than timeout ({settings.timeout:g} s)"
            )
            raise InvalidInput(message, code="SOFT_TIMEOUT_INVALID", field="soft_timeout")
    except TypeError as error:
        raise InvalidInput(f"job {name!r}: {error}", code="OPTION_UNKNOWN") from None
    except InvalidInput as error:
        raise InvalidInput(f"job {name!r}: {error.message}", code=error.code, **error.extra) from None
    return settings


def _error_classes(option: str, value: Any) -> tuple[type[BaseException], ...]:
    classes = (value,) if isinstance(value, type) else tuple(value) if isinstance(value, list | tuple) else ()
    if not all(isinstance(item, type) and issubclass(item, BaseException) for item in classes) or (
        value and not classes
    ):
        message = f"{option} must be an exception class, or a tuple of them, got {value!r:.80}"
        raise InvalidInput(message, code=f"{option.upper()}_INVALID", field=option)
    return classes


class LimitOptions(TypedDict, total=False):
    """The options of `Detent.limit`, described there."""

    queue: str | None
    job_type: str | None
    tenant: str | None
    key: str | None
    per: str | None
    concurrency: int | None
    rate: tuple[int, float] | None


class Limited:
    """The part of an application that declares limits. They are written to the database when the app opens."""

    @cached_property
    def limits(self) -> list[Limit]:
        """The limits declared with `limit`."""
        return []

    def limit(self, **options: Unpack[LimitOptions]) -> Limit:
        """Declare a limit on jobs that run at once or that start within a period, over all workers.

            app.limit(queue="mail", concurrency=5)
            app.limit(job_type="call", rate=(100, 60))  # 100 starts in any 60 seconds
            app.limit(per="tenant", concurrency=2)  # 2 for each tenant

        queue, job_type, tenant, key: which jobs it applies to; all that are given must match. `key` is the limit_key of
            `using`. With none of them it applies to all jobs.
        per: "queue", "type", "tenant" or "key": a separate limit for each of these.
        concurrency: how many may run at the same time.
        rate: (N, seconds): how many may start within any such period.

        Raises InvalidInput (LIMIT_INVALID) if neither concurrency nor rate is given, or a value is wrong.
        """
        self.limits.append(make_limit(**options))
        return self.limits[-1]
