"""Reads contracts from TOML or plain data and writes them as plain data. Validation is that of `Contract`."""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from typing import Any

from detent.core.errors import ContractError
from detent.core.retry import RetryRule, backoff_from, plain

from .model import Contract, DeadLetterRule, Edge, KeyRule, LossRule, Move, Phase, StopRule

_KINDS: Mapping[Any, tuple[type | tuple[type, ...], str]] = {
    bool: (bool, "true or false"),
    str: (str, "text"),
    str | None: (str, "text"),
    float: ((int, float), "a number"),
    frozenset[str]: ((list, tuple), "a list"),
}
"""Type of a field of Contract -> the types of its value in plain data, and how an error calls them."""
_OPTIONS = {field.name: field.type for field in fields(Contract) if field.type in _KINDS and field.name != "name"}
_SETS = [name for name, kind in _OPTIONS.items() if kind == frozenset[str]]
_FLAGS = [name for name in _OPTIONS if name not in _SETS]
_TABLES = ("codes", "retry", "loss", "stop", "dead_letters", "keys", "approval_notes")
_KEYS = ("name", "statuses", "edges", *_TABLES, "snooze", *_SETS, *_FLAGS)
_TYPES = {
    **dict.fromkeys(_TABLES, (Mapping, "a table")),
    "edges": _KINDS[frozenset[str]],
    **{name: _KINDS[kind] for name, kind in _OPTIONS.items()},
}


def contract_from_toml(text: str) -> Contract:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ContractError(f"the contract is not valid TOML: {error}") from None
    return contract_from(data)


def contract_from(data: Mapping[str, Any]) -> Contract:
    """Build a contract from plain data; every error names the faulty key or row."""
    unknown = set(data).difference(_KEYS)
    if unknown:
        raise ContractError(f"unknown keys {sorted(unknown)}; use only {', '.join(sorted(_KEYS))}")
    if not isinstance(data.get("name"), str) or not isinstance(data.get("statuses"), Mapping):
        raise ContractError("a contract needs a name and a table [statuses] of status = phase")
    _check_types(data)
    options: dict[str, Any] = {flag: data[flag] for flag in _FLAGS if data.get(flag) is not None}
    options |= {name: frozenset(data[name]) for name in _SETS if name in data}
    if data.get("snooze"):
        options["snooze"] = _move(data["snooze"], "snooze")
    for name, read in RULES.items():
        if data.get(name) is not None:
            options[name] = read(data[name], name)
    return Contract(
        name=data["name"],
        statuses={status: _phase(phase, status) for status, phase in data["statuses"].items()},
        edges=tuple(_edge(row, number) for number, row in enumerate(data.get("edges", ()), 1)),
        codes=dict(data.get("codes", {})),
        approval_notes=dict(data.get("approval_notes", {})),
        **options,
    )


def with_tables(contract: Contract, tables: Mapping[str, Any]) -> Contract:
    """A copy of the contract with these options, given as in TOML; a table names only the fields that change."""
    _check_types(tables)
    retry = tables.get("retry") or {}
    fixed = set(tables).difference(RULES, _OPTIONS)
    if contract.retry.frozen:
        fixed |= {f"retry.{name}" for name in ("max_retries", "frozen") if name in retry}
    if fixed:
        raise ContractError(f"contract {contract.name}: {', '.join(sorted(fixed))} cannot be changed by an option")
    data = contract_to(contract)
    if "kind" in retry:
        data["retry"] = {name: data["retry"][name] for name in _RETRY_FIELDS}
    for name, value in tables.items():
        data[name] = {**(data[name] or {}), **value} if isinstance(value, Mapping) else value
    code = {name: getattr(contract, name) for name in ("view", "envelope", "published_names")}
    return replace(contract_from(data), **code)


def _check_types(data: Mapping[str, Any]) -> None:
    for name, (kind, description) in _TYPES.items():
        value = data.get(name)
        if value is not None and not isinstance(value, kind):
            raise ContractError(f"{name} must be {description}, got {value!r}")


def contract_to(contract: Contract) -> dict[str, Any]:
    """A contract as plain data; `contract_from` reads it back. Views and envelopes are functions and left out."""
    return {name: plain(getattr(contract, name)) for name in _KEYS} | {"retry": contract.retry.as_dict()}


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


def _rule(kind: type[Any], row: Mapping[str, Any], location: str) -> Any:
    """A rule of this kind. Lists become tuples; the name of a move becomes the move."""
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
    if values.get("move"):
        values["move"] = _move(values["move"], location)
    try:
        return kind(**values)
    except TypeError as error:
        raise ContractError(f"{location} {dict(row)}: {error}") from None


def _stop(row: Mapping[str, Any], location: str) -> Any:
    return _rule(StopRule, {"move": None, **row}, location)


_RETRY_FIELDS = ("max_retries", "frozen", "only_codes", "permanent_codes", "opt_in", "caps")


def _retry(row: Mapping[str, Any], location: str) -> Any:
    values = {name: row[name] for name in _RETRY_FIELDS if row.get(name) is not None}
    for name in ("only_codes", "permanent_codes", "opt_in"):
        if name in values:
            values[name] = frozenset(values[name])
    backoff = backoff_from({name: value for name, value in row.items() if name not in _RETRY_FIELDS})
    return _rule(RetryRule, {"backoff": backoff, **values}, location)


RULES: Mapping[str, Callable[[Mapping[str, Any], str], Any]] = {
    "retry": _retry,
    "loss": partial(_rule, LossRule),
    "stop": _stop,
    "dead_letters": partial(_rule, DeadLetterRule),
    "keys": partial(_rule, KeyRule),
}
