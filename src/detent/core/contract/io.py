"""Reads contracts from TOML or plain data and writes them as plain data. Validation is that of `Contract`."""

import tomllib
from collections.abc import Mapping
from typing import Any

from detent.core.errors import ContractError
from detent.core.retry import RetryRule, backoff_from

from .model import Contract, DeadLetterRule, Edge, KeyRule, LossRule, Move, Phase, StopRule

_FLAGS = (
    "strict_signals",
    "repeat_is_noop",
    "utc_only",
    "retry_counter",
    "names_tasks",
    "task_attempts",
    "due_on_submit",
    "parks_as",
    "uses_stream",
    "heartbeat_note",
    "lease_seconds",
    "trace_form",
)
_SETS = ("unreachable", "cancel_requests", "retry_at_statuses", "approval_statuses")
_KEYS = frozenset(
    {"name", "statuses", "edges", "codes", "retry", "loss", "stop", "snooze", "dead_letters", "keys", "approval_notes"}
    | set(_FLAGS)
    | set(_SETS)
)


def contract_from_toml(text: str) -> Contract:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ContractError(f"the contract is not valid TOML: {error}") from None
    return contract_from(data)


def contract_from(data: Mapping[str, Any]) -> Contract:
    """Build a contract from plain data; every error names the faulty key or row."""
    unknown = set(data) - _KEYS
    if unknown:
        raise ContractError(f"unknown keys {sorted(unknown)}; use only {', '.join(sorted(_KEYS))}")
    if not isinstance(data.get("name"), str) or not isinstance(data.get("statuses"), Mapping):
        raise ContractError("a contract needs a name and a table [statuses] of status = phase")
    _check_types(data)
    options: dict[str, Any] = {flag: data[flag] for flag in _FLAGS if data.get(flag) is not None}
    options |= {name: frozenset(data[name]) for name in _SETS if name in data}
    if data.get("snooze"):
        options["snooze"] = _move(data["snooze"], "snooze")
    for name, read in (("loss", _loss), ("stop", _stop), ("keys", _keys), ("retry", _retry)):
        if name in data:
            options[name] = read(data[name])
    if data.get("dead_letters") is not None:
        options["dead_letters"] = _rule(DeadLetterRule, data["dead_letters"], "dead_letters")
    return Contract(
        name=data["name"],
        statuses={status: _phase(phase, status) for status, phase in data["statuses"].items()},
        edges=tuple(_edge(row, number) for number, row in enumerate(data.get("edges", ()), 1)),
        codes=dict(data.get("codes", {})),
        approval_notes=dict(data.get("approval_notes", {})),
        **options,
    )


_TABLES = ("codes", "retry", "loss", "stop", "dead_letters", "keys", "approval_notes")
_TYPES: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    **dict.fromkeys(_TABLES, (Mapping, "a table")),
    **dict.fromkeys((*_SETS, "edges"), ((list, tuple), "a list")),
    **dict.fromkeys(_FLAGS, (bool, "true or false")),
    **dict.fromkeys(("retry_counter", "parks_as", "heartbeat_note", "trace_form"), (str, "text")),
    "lease_seconds": ((int, float), "a number"),
}


def _check_types(data: Mapping[str, Any]) -> None:
    for name, (kind, description) in _TYPES.items():
        value = data.get(name)
        if value is not None and not isinstance(value, kind):
            raise ContractError(f"{name} must be {description}, got {value!r}")


def contract_to(contract: Contract) -> dict[str, Any]:
    """A contract as plain data; `contract_from` reads it back. Views and envelopes are functions and left out."""
    dead = contract.dead_letters
    return {
        "name": contract.name,
        "statuses": {status: str(phase) for status, phase in contract.statuses.items()},
        "edges": [
            {"move": e.move and str(e.move), "source": e.source, "event": e.event, "target": e.target}
            for e in contract.edges
        ],
        "codes": dict(contract.codes),
        "retry": contract.retry.as_dict(),
        "loss": {
            "move": str(contract.loss.move),
            "charged": contract.loss.charged,
            "max_interruptions": contract.loss.max_interruptions,
        },
        "stop": {"move": contract.stop.move and str(contract.stop.move), "charged": contract.stop.charged},
        "snooze": contract.snooze and str(contract.snooze),
        "dead_letters": dead and {"discard_people": dead.discard_people, "note": dead.note},
        "keys": {
            "scope": list(contract.keys.scope),
            "generated": contract.keys.generated,
            "max_length": contract.keys.max_length,
            "same_content": contract.keys.same_content,
            "critical_fields": list(contract.keys.critical_fields),
            "blank_is_absent": contract.keys.blank_is_absent,
            "task_id_is_key": contract.keys.task_id_is_key,
        },
        "approval_notes": dict(contract.approval_notes),
        **{name: sorted(getattr(contract, name)) for name in _SETS},
        **{flag: getattr(contract, flag) for flag in _FLAGS},
    }


def _edge(row: Mapping[str, Any], number: int) -> Edge:
    if not isinstance(row, Mapping):
        raise ContractError(f"edges[{number}] {row!r}: an edge is a table with move, source, event, target")
    location = f"edges[{number}] {dict(row)}"
    extra = set(row) - {"move", "source", "event", "target"}
    if extra:
        raise ContractError(f"{location}: unknown keys {sorted(extra)}")
    if not isinstance(row.get("event"), str) or not isinstance(row.get("target"), str):
        raise ContractError(f"{location}: an edge needs an event and a target")
    move = _move(row["move"], location) if row.get("move") else None
    return Edge(move, row.get("source") or None, row["event"], row["target"])


def _move(name: Any, location: str) -> Move:
    try:
        return Move(name)
    except ValueError:
        raise ContractError(f"{location}: {name!r} is not a move; use one of {', '.join(Move)}") from None


def _phase(name: Any, status: str) -> Phase:
    try:
        return Phase(name)
    except ValueError:
        raise ContractError(f"statuses.{status}: {name!r} is not a phase; use one of {', '.join(Phase)}") from None


def _rule(kind: type[Any], row: Any, location: str) -> Any:
    try:
        return kind(**row)
    except TypeError as error:
        raise ContractError(f"{location} {row}: {error}") from None


def _loss(row: Mapping[str, Any]) -> LossRule:
    values = {**row, "move": _move(row.get("move", Move.EXPIRE), "loss")}
    return _rule(LossRule, values, "loss")  # type: ignore[no-any-return]


def _stop(row: Mapping[str, Any]) -> StopRule:
    values = {**row, "move": _move(row["move"], "stop") if row.get("move") else None}
    return _rule(StopRule, values, "stop")  # type: ignore[no-any-return]


def _keys(row: Mapping[str, Any]) -> KeyRule:
    lists = {name: tuple(row[name]) for name in ("scope", "critical_fields") if name in row}
    return _rule(KeyRule, {**row, **lists}, "keys")  # type: ignore[no-any-return]


_RETRY_FIELDS = ("max_retries", "frozen", "only_codes", "permanent_codes", "caps")


def _retry(row: Mapping[str, Any]) -> RetryRule:
    values = {name: row[name] for name in _RETRY_FIELDS if row.get(name) is not None}
    for name in ("only_codes", "permanent_codes"):
        if name in values:
            values[name] = frozenset(values[name])
    backoff = backoff_from({name: value for name, value in row.items() if name not in _RETRY_FIELDS})
    return _rule(RetryRule, {"backoff": backoff, **values}, "retry")  # type: ignore[no-any-return]
