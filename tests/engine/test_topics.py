"""Every method of every topic of a transaction runs on every store: its statements exist and fit values and rows."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import partial
from types import UnionType
from typing import Any, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

import pytest

from detent.core.errors import StoreRefused
from detent.engine import Engine
from detent.ports import verification
from detent.ports.tx import Tx

pytestmark = pytest.mark.anyio
ID = "01890000-0000-7000-8000-000000000001"
VALUES: dict[str, Any] = {
    "log": "events",
    "logs": ["events", "notes"],
    "kind": "queue",
    "state": "firing",
    "named": None,
}
"""By the name of a parameter or field; all others get a value by their type."""
ELSEWHERE = {"insert", "apply"}
"""Need changes that `decide` has made; every other test of the engine calls them."""
KINDS = {
    "rows_of": "EventRow DeadLetterRow RequeuedRow FiredRow StrayNote StraySignal StrayOutboxItem StrayStep",
    "page": "KeyRow AttemptRow FireRow ApprovalRow",
    "faults": "StrandedParent AdriftChild MissingApproval StrayVote",
}

HINTS = get_type_hints(Tx, localns=vars(verification))
TOPICS = {name: kind for name, kind in HINTS.items() if Protocol in getattr(kind, "__bases__", ())}


def value_of(name: str, hint: Any, kind: Any) -> Any:
    if name in VALUES:
        return VALUES[name]
    parts = [part for part in get_args(hint) if part is not type(None)]
    match get_origin(hint):
        case _ if isinstance(hint, TypeVar):
            return value_of("", kind, None)
        case origin if origin is type:
            return kind
        case origin if origin in (UnionType, Union):
            return value_of("", parts[0], kind)
        case origin if origin in (Sequence, Iterable, frozenset):
            return [value_of("", parts[0], kind)]
        case origin if origin in (Mapping, dict) and name == "at_most":
            return {VALUES["kind"]: 1}
        case origin if origin in (Mapping, dict):
            return {value_of("", parts[0], kind): value_of("", parts[1], kind)}
        case origin if origin is tuple:
            return tuple(value_of("", part, kind) for part in parts if part is not ...)
    plain = {str: ID, int: 1, bool: False, float: 1.0, bytes: b"x", Any: {}, Mapping: {}}
    if hint in plain:
        return plain[hint]
    if issubclass(hint, Enum):
        return next(iter(hint))
    return hint(**{field: value_of(field, part, kind) for field, part in get_type_hints(hint).items()})


@pytest.mark.parametrize("topic", TOPICS)
async def test_every_method_of_a_topic_runs(topic: str, engine: Engine) -> None:
    for name, method in inspect.getmembers(TOPICS[topic], inspect.iscoroutinefunction):
        if name.startswith("_") or name in ELSEWHERE:
            continue
        hints = get_type_hints(method)
        for kind in KINDS.get(name, "-").split():
            rows = getattr(verification, kind, None)
            values = {key: value_of(key, hints[key], rows) for key in hints if key != "return"}
            if rows:
                values["kind"] = rows
            with suppress(StoreRefused):  # a constraint of the table refuses some of these values
                await engine.store.write(partial(call, topic, name, values))


async def call(topic: str, name: str, values: dict[str, Any], tx: Tx) -> None:
    await getattr(getattr(tx, topic), name)(**values)


def test_no_topic_is_left_out() -> None:
    assert HINTS.keys() - TOPICS.keys() == {"now"}
