"""What a check of the doctor says."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: what was found, and what to do if it is wrong."""

    check: str
    ok: bool
    says: str
    do: str = ""
