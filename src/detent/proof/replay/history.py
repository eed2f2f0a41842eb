"""`replay --history`: any history against any contract; the first illegal step and what would have been legal."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from detent.core.contract.model import Contract, Replayed, derive_status, replay
from detent.core.errors import InvalidInput

_NAMES = ("event", "type")


@dataclass(frozen=True, slots=True)
class Played:
    """A history, judged: strictly step by step, and by its last word alone."""

    strict: Replayed
    derived: str | None
    events: int

    @property
    def ok(self) -> bool:
        return self.strict.ok

    def as_dict(self) -> dict[str, Any]:
        wrong = {
            "index": self.strict.index,
            "event": self.strict.event,
            "status": self.strict.status,
            "legal": list(self.strict.legal),
        }
        return {"ok": self.ok, "first_illegal": None if self.ok else wrong, "derived": self.derived}


def replay_history(contract: Contract, names: list[str]) -> Played:
    """Events the contract does not know change no status and are passed over, as in a log with notes."""
    return Played(replay(contract, names), derive_status(contract, names), len(names))


def read_history(text: str) -> list[str]:
    """Event names from a JSON array or JSON lines of objects with `event` or `type`, or of plain names.

    What `detent jobs events --json` prints, an object around the array, is read too.
    """
    stripped = text.strip()
    if not stripped:
        raise _unreadable("it is empty")
    if stripped.startswith("["):
        return _names(_value(stripped, "the array"), "entry")
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if len(lines) > 1 and stripped.startswith("{") and not lines[0][1].rstrip().endswith("}"):
        lines = [(1, stripped)]
    values = [_value(line, f"line {number}") for number, line in lines]
    if len(values) == 1 and isinstance(values[0], dict) and isinstance(values[0].get("events"), list):
        return _names(values[0]["events"], "entry")
    return _names(values, "line")


def _value(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unreadable(f"{where} is not JSON: {error}") from None


def _names(entries: Iterable[Any], kind: str) -> list[str]:
    return [_name(entry, f"{kind} {number}") for number, entry in enumerate(entries, 1)]


def _name(entry: Any, where: str) -> str:
    named = entry
    if isinstance(entry, dict):
        named = next((entry[key] for key in _NAMES if key in entry), None)
    if not isinstance(named, str):
        raise _unreadable(f"{where} is {json.dumps(entry)[:80]}, neither a name nor an object with `event` or `type`")
    return named


def _unreadable(problem: str) -> InvalidInput:
    return InvalidInput(
        f"the history cannot be read: {problem}; write a JSON array or one JSON value per line", code="HISTORY_INVALID"
    )
