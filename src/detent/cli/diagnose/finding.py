"""The result of one check of `detent doctor`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: its result, and what to do if it failed."""

    check: str
    ok: bool
    message: str
    advice: str = ""
