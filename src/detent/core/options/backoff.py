"""The option `backoff`: the delays before the retries of a job, instead of those of its contract."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from detent.core import retry
from detent.core.errors import InvalidInput

_SECONDS = r"(0|[1-9][0-9]{0,8})(\.[0-9]{1,3})?"
_FACTOR, _SHARE = r"[1-9][0-9]{0,2}(\.[0-9]{1,3})?", r"(0(\.[0-9]{1,3})?|1)"
PATTERN = (
    rf"^({_SECONDS}(,{_SECONDS}){{0,99}}"
    rf"|base={_SECONDS}(,factor={_FACTOR})?(,cap={_SECONDS})?(,jitter={_SHARE})?)$"
)
"""The option as text: seconds before the first retry, the second, ...; or the fields of Exponential."""
FORMS = "60,300,900 or base=1,factor=2,cap=60,jitter=0.1"


@dataclass(frozen=True, slots=True)
class Exponential:
    """For `backoff=`: `base` seconds before the first retry, each later delay `factor` times as long, up to `cap`.

    To each delay a random part of up to `jitter` times its length is added, so that jobs which failed together are not
    retried together.

        @app.job("fetch", backoff=Exponential(base=1, factor=2, cap=60, jitter=0.1))
    """

    base: float = 1.0
    factor: float = 2.0
    cap: float = 60.0
    jitter: float = 0.1


class Fixed(NamedTuple):
    """For `backoff=`: the same number of seconds before every retry."""

    seconds: float


Backoff = Exponential | Fixed | Sequence[float | timedelta] | float | timedelta | str
"""The values of `backoff=` in Python. A list has one delay per retry in seconds; the last one repeats."""


def backoff_text(value: Any) -> str:
    """A value from Python as the text that is stored. Raises InvalidInput (BACKOFF_INVALID)."""
    if isinstance(value, str):
        text = value
    elif isinstance(value, Exponential):
        text = ",".join(f"{name}={_number(number)}" for name, number in asdict(value).items())
    else:
        text = ",".join(map(_number, value if isinstance(value, Sequence) else [value]))
    return check_backoff(text)


def check_backoff(text: Any) -> str:
    """The text, if it has the form of PATTERN. Raises InvalidInput (BACKOFF_INVALID)."""
    if not isinstance(text, str) or not re.fullmatch(PATTERN, text):
        message = f"backoff must be seconds, a list of them, Fixed or Exponential, as text {FORMS}, got {text!r:.200}"
        raise InvalidInput(message, code="BACKOFF_INVALID", field="backoff")
    return text


def _number(value: Any) -> str:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return repr(value)  # which is no number
    return f"{seconds:.3f}".rstrip("0").rstrip(".")


@lru_cache(maxsize=256)
def parse_backoff(text: str) -> retry.Backoff:
    """The rule of a stored option."""
    if "=" not in text:
        return retry.Table(tuple(round(float(seconds) * 1_000) for seconds in text.split(",")))
    values = Exponential(**{name: float(number) for name, _, number in (p.partition("=") for p in text.split(","))})
    return retry.Exponential(
        round(values.base * 1_000), round(values.cap * 1_000), 0, values.factor, round(values.jitter * 100)
    )
