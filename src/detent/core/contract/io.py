"""Contracts as plain data: read from a mapping or TOML text, written back as one; the same checks as in Python."""

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
    "wired",
    "heartbeat_note",
    "lease_seconds",
    "trace_form",
)
_SETS = ("unreachable", "cancel_requests", "retry_at_statuses", "approval_statuses")
_KNOWN = frozenset(
    {"name", "statuses", "edges", "codes", "retry", "loss", "stop", "snooze", "dead_letters", "keys", "approval_notes"}
    | set(_FLAGS)
    | set(_SETS)
)


def contract_from_toml(text: str) -> Contract:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ContractError(f"this is not TOML: {error}") from None
    return contract_from(data)


def contract_from(data: Mapping[str, Any]) -> Contract:
    """Build and check a contract from plain data; every error names the row it found."""
    unknown = set(data) - _KNOWN
    if unknown:
        raise ContractError(f"unknown keys {sorted(unknown)}; known: {', '.join(sorted(_KNOWN))}")
    if not isinstance(data.get("name"), str) or not isinstance(data.get("statuses"), Mapping):
        raise ContractError("a contract needs a name and a table [statuses] of status = phase")
    _check_shapes(data)
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
_SHAPES: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    **dict.fromkeys(_TABLES, (Mapping, "a table")),
    **dict.fromkeys((*_SETS, "edges"), ((list, tuple), "a list")),
    **dict.fromkeys(_FLAGS, (bool, "true or false")),
    **dict.fromkeys(("retry_counter", "parks_as", "heartbeat_note", "trace_form"), (str, "text")),
    "lease_seconds": ((int, float), "a number"),
}


def _check_shapes(data: Mapping[str, Any]) -> None:
    for name, (kind, words) in _SHAPES.items():
        value = data.get(name)
        if value is not None and not isinstance(value, kind):
            raise ContractError(f"{name} must be {words}, got {value!r}")


def contract_to(contract: Contract) -> dict[str, Any]:
    """The declaration of a contract; `contract_from` reads it back (views and envelopes are code and stay behind)."""
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
    where = f"edges[{number}] {dict(row)}"
    extra = set(row) - {"move", "source", "event", "target"}
    if extra:
        raise ContractError(f"{where}: unknown keys {sorted(extra)}")
    if not isinstance(row.get("event"), str) or not isinstance(row.get("target"), str):
        raise ContractError(f"{where}: an edge needs an event and a target")
    move = _move(row["move"], where) if row.get("move") else None
    return Edge(move, row.get("source") or None, row["event"], row["target"])


def _move(name: Any, where: str) -> Move:
    try:
        return Move(name)
    except ValueError:
        raise ContractError(f"{where}: {name!r} is not a move; use one of {', '.join(Move)}") from None


def _phase(name: Any, status: str) -> Phase:
    try:
        return Phase(name)
    except ValueError:
        raise ContractError(f"statuses.{status}: {name!r} is not a phase; use one of {', '.join(Phase)}") from None


def _rule(kind: type[Any], row: Any, where: str) -> Any:
    try:
        return kind(**row)
    except TypeError as error:
        raise ContractError(f"{where} {row}: {error}") from None


def _loss(row: Mapping[str, Any]) -> LossRule:
    moved = {**row, "move": _move(row.get("move", Move.EXPIRE), "loss")}
    return _rule(LossRule, moved, "loss")  # type: ignore[no-any-return]


def _stop(row: Mapping[str, Any]) -> StopRule:
    moved = {**row, "move": _move(row["move"], "stop") if row.get("move") else None}
    return _rule(StopRule, moved, "stop")  # type: ignore[no-any-return]


def _keys(row: Mapping[str, Any]) -> KeyRule:
    lists = {name: tuple(row[name]) for name in ("scope", "critical_fields") if name in row}
    return _rule(KeyRule, {**row, **lists}, "keys")  # type: ignore[no-any-return]


_RETRY_FIELDS = ("max_retries", "frozen", "only_codes", "permanent_codes", "caps")


def _retry(row: Mapping[str, Any]) -> RetryRule:
    own = {name: row[name] for name in _RETRY_FIELDS if row.get(name) is not None}
    for name in ("only_codes", "permanent_codes"):
        if name in own:
            own[name] = frozenset(own[name])
    backoff = backoff_from({name: value for name, value in row.items() if name not in _RETRY_FIELDS})
    return _rule(RetryRule, {"backoff": backoff, **own}, "retry")  # type: ignore[no-any-return]
