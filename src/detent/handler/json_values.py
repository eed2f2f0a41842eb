"""Values as the JSON that is stored, and back through their annotation: results of handlers and of steps."""

import collections.abc
import functools
import inspect
import json
from collections.abc import Callable
from typing import Any, get_args, get_origin, get_type_hints

import pydantic

AS_IT_IS: pydantic.ConfigDict = {"ser_json_inf_nan": "constants"}
"""Else pydantic would store NaN as null without a word."""
Adapter = pydantic.TypeAdapter[Any]
NOT_JSON = (pydantic.ValidationError, TypeError, ValueError, RecursionError)
NO_SCHEMA = (pydantic.PydanticUserError, pydantic.errors.PydanticSchemaGenerationError, NameError)


def adapter_of(result: Any) -> Adapter | None:
    """None: nothing is declared, the value goes out as plain JSON."""
    if result in (Any, None, type(None)):
        return None
    try:
        return pydantic.TypeAdapter(result, config=pydantic.ConfigDict(**AS_IT_IS))
    except pydantic.PydanticUserError:  # a type that has its own settings takes no others
        return pydantic.TypeAdapter(result)


def text_of(adapter: Adapter | None, value: Any) -> str:
    """The value as stored; raises one of NOT_JSON."""
    if adapter is not None:
        return _strict(adapter.dump_json(adapter.validate_python(value)).decode())
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def value_of(adapter: Adapter | None, text: str) -> Any:
    return json.loads(text) if adapter is None else adapter.validate_json(text)


def first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def returned_by(function: Callable[..., Any]) -> Adapter | None:
    """How what this function returns is stored; one that says nothing, or nothing that can be read, is plain JSON."""
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function) and not isinstance(function, type):
        function = type(function).__call__
    plain = getattr(function, "__func__", function)
    if "return" not in getattr(plain, "__annotations__", ()):
        return None
    return _declared(plain)


@functools.lru_cache(maxsize=1024)
def _declared(function: Callable[..., Any]) -> Adapter | None:
    try:
        result = get_type_hints(function, include_extras=True)["return"]
        if get_origin(result) in (collections.abc.Awaitable, collections.abc.Coroutine):
            result = get_args(result)[-1]
        return adapter_of(result)
    except (*NO_SCHEMA, TypeError, AttributeError):
        return None


def _strict(text: str) -> str:
    """JSON has no word for what is not a number."""
    if "NaN" in text or "Infinity" in text:
        json.loads(text, parse_constant=_refuse)
    return text


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not JSON")
