"""A short digest of a step's arguments: equal for equal values in every process, different for different values."""

import dataclasses
import enum
import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import pydantic

from detent.core.errors import InvalidInput


def digest_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """The digest of a call's arguments. Objects without a value (a client, a function) count by their name only.

    Raises InvalidInput (STEP_ARGUMENTS_INVALID) if a value contains itself or is nested too deeply.
    """
    arguments = [args, dict(kwargs)]
    try:
        try:
            text = _encode(arguments)
        except TypeError:  # a mapping has keys that are no strings, or that cannot be sorted
            text = _encode(_plain(arguments))
    except (ValueError, RecursionError) as error:
        message = f"the arguments of a step contain themselves or are nested too deeply: {error}; pass plain data"
        raise InvalidInput(message, code="STEP_ARGUMENTS_INVALID") from None
    return blake2b(text.encode("utf-8", "backslashreplace"), digest_size=12).hexdigest()


def _to_jsonable(value: Any) -> Any:
    """One value that JSON cannot hold, converted. The module of a class is left out, so that it may be moved."""
    if isinstance(value, type):
        return [value.__name__]
    if isinstance(value, set | frozenset):
        return sorted(_encode(_plain(member)) for member in value)
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
    if type(value).__module__ in _STR_MODULES:
        return str(value)
    return [getattr(value, "__name__", type(value).__name__)]


_STR_MODULES = frozenset(
    {"datetime", "decimal", "uuid", "pathlib", "pathlib._local", "fractions", "ipaddress", "zoneinfo"}
)
"""Modules whose objects are identified by str()."""
_encode = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=_to_jsonable).encode


def _plain(value: Any) -> Any:
    """The value with every mapping replaced by a sorted list of pairs."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return sorted([_encode(_plain(key)), _encode(_plain(item))] for key, item in value.items())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return _plain(_to_jsonable(value))
