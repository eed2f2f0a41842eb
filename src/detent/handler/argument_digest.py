"""A short digest of a call's arguments: the same in every process, other for other values."""

import dataclasses
import enum
import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import pydantic

from detent.core.errors import InvalidInput


def digest_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """What has no value of its own (a client, a connection, a function) counts by its name only."""
    given = [args, dict(kwargs)]
    try:
        try:
            text = _encode(given)
        except TypeError:  # keys that are no text, or cannot be sorted
            text = _encode(_plain(given))
    except (ValueError, RecursionError) as error:
        told = f"the arguments of a step go round in a circle or too deep: {error}; pass plain data"
        raise InvalidInput(told, code="STEP_ARGUMENTS_INVALID") from None
    return blake2b(text.encode("utf-8", "backslashreplace"), digest_size=12).hexdigest()


def _told(value: Any) -> Any:
    """One value JSON does not know, in terms of those it does. A class may be moved: its module does not count."""
    if isinstance(value, type):
        return [value.__name__]
    if isinstance(value, set | frozenset):
        return sorted(_encode(_plain(one)) for one in value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, enum.Enum):
        return value.name
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, pydantic.BaseModel):
        return value.model_dump()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if type(value).__module__ in _BY_TEXT:
        return str(value)
    return [getattr(value, "__name__", type(value).__name__)]


_BY_TEXT = frozenset({"datetime", "decimal", "uuid", "pathlib", "pathlib._local", "fractions", "ipaddress", "zoneinfo"})
_encode = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=_told).encode


def _plain(value: Any) -> Any:
    """The same with every mapping as a sorted list of pairs."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return sorted([_encode(_plain(key)), _encode(_plain(one))] for key, one in value.items())
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return _plain(_told(value))
