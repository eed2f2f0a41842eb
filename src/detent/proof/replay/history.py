"""`replay --history`: replays a list of events against a contract; finds illegal events and broken invariants."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from detent.core.contract.model import Contract
from detent.core.contract.replay import INVARIANTS, Fault, ReplayResult, broken_invariants, derive_status, replay
from detent.core.errors import InvalidInput

_NAMES = ("event", "type")


@dataclass(frozen=True, slots=True)
class HistoryReplay:
    """The result of replaying a history: strictly event by event, and the status derived from its last event alone."""

    strict: ReplayResult
    derived: str | None
    events: int
    warnings: list[Fault]
    """Events that break an invariant of the formal contract. Reopening a finished job does, and is legal."""

    @property
    def ok(self) -> bool:
        return self.strict.ok

    def as_dict(self) -> dict[str, Any]:
        strict = self.strict
        first_illegal = {"index": strict.index, "event": strict.event, "status": strict.status}
        warnings = [
            {"index": fault.step, "invariant": INVARIANTS[fault.rule], "rule": fault.rule, "detail": fault.detail}
            for fault in self.warnings
        ]
        return {
            "ok": self.ok,
            "first_illegal": None if self.ok else {**first_illegal, "legal": list(strict.legal)},
            "derived": self.derived,
            "warnings": warnings,
        }


def replay_history(contract: Contract, names: list[str]) -> HistoryReplay:
    """Replay event names. Events that the contract does not know are skipped, like notes in a log."""
    warnings = list(broken_invariants(contract, names))
    return HistoryReplay(replay(contract, names), derive_status(contract, names), len(names), warnings)


def read_history(text: str) -> list[str]:
    """Read event names from a JSON array or JSON lines; each entry is a name or an object with `event` or `type`.

    Also reads the output of `detent jobs events --json`, an object with the array in `items`, and a line of `detent
    jobs export`, which has it in `events`. Raises InvalidInput.
    """
    stripped = text.strip()
    if not stripped:
        raise _unreadable("it is empty")
    if stripped.startswith("["):
        return _names(_parse(stripped, "the array"), "entry")
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if len(lines) > 1 and stripped.startswith("{") and not lines[0][1].rstrip().endswith("}"):
        lines = [(1, stripped)]
    values = [_parse(line, f"line {number}") for number, line in lines]
    if len(values) == 1 and isinstance(values[0], dict):
        for key in ("items", "events"):
            if isinstance(entries := values[0].get(key), list):
                return _names(entries, "entry")
    return _names(values, "line")


def _parse(text: str, location: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unreadable(f"{location} is not JSON: {error}") from None


def _names(entries: Iterable[Any], kind: str) -> list[str]:
    return [_name(entry, f"{kind} {number}") for number, entry in enumerate(entries, 1)]


def _name(entry: Any, location: str) -> str:
    name = entry
    if isinstance(entry, dict):
        name = next((entry[key] for key in _NAMES if key in entry), None)
    if not isinstance(name, str):
        text = json.dumps(entry)[:80]
        raise _unreadable(f"{location} is {text}, neither a name nor an object with `event` or `type`")
    return name


def _unreadable(problem: str) -> InvalidInput:
    return InvalidInput(
        f"the history cannot be read: {problem}; write a JSON array or one JSON value per line", code="HISTORY_INVALID"
    )
