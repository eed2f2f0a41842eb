"""Converts results of handlers and steps to stored JSON text and back, through their return annotation."""

import collections.abc
import functools
import inspect
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

import pydantic

from detent.engine.submit.submission import refuse_constant

KEEP_NAN: "pydantic.ConfigDict" = {"ser_json_inf_nan": "constants"}
"""By default pydantic dumps NaN as null without an error; dumped as a constant it can be refused."""
if TYPE_CHECKING:
    Adapter = pydantic.TypeAdapter[Any]
else:
    Adapter = Any  # pydantic loads its classes on first use, which would add a fifth to the time of `import detent`
JSON_ERRORS = (pydantic.ValidationError, TypeError, ValueError, RecursionError)
SCHEMA_ERRORS = (pydantic.PydanticUserError, pydantic.errors.PydanticSchemaGenerationError, NameError)


def adapter_of(annotation: Any) -> Adapter | None:
    """The pydantic adapter of an annotation; None if there is no annotation and the value is plain JSON."""
    if annotation in (Any, None, type(None)):
        return None
    try:
        return pydantic.TypeAdapter(annotation, config=pydantic.ConfigDict(**KEEP_NAN))
    except pydantic.PydanticUserError:  # pydantic refuses config= for a type that has its own config
        return pydantic.TypeAdapter(annotation)


def to_json(adapter: Adapter | None, value: Any) -> str:
    """The value as the JSON text that is stored; raises one of JSON_ERRORS."""
    if adapter is not None:
        text = adapter.dump_json(adapter.validate_python(value)).decode()
        if "NaN" in text or "Infinity" in text:
            json.loads(text, parse_constant=refuse_constant)
        return text
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def from_json(adapter: Adapter | None, text: str) -> Any:
    return json.loads(text) if adapter is None else adapter.validate_json(text)


def first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def return_adapter(function: Callable[..., Any]) -> Adapter | None:
    """The adapter of a function's return annotation; None if it has none or it cannot be resolved."""
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function) and not isinstance(function, type):
        function = type(function).__call__
    plain = getattr(function, "__func__", function)
    annotation = getattr(plain, "__annotations__", {}).get("return", inspect.Signature.empty)
    if annotation is inspect.Signature.empty:
        return None
    # Not keyed by the function: a step that is defined inside of a handler is a new one each time, and the cache would
    # keep what it refers to.
    key = annotation, getattr(plain, "__module__", None), getattr(plain, "__code__", plain)
    try:
        entry = _adapters.get(key)
    except TypeError:  # an annotation that cannot be hashed
        return _declared_adapter(plain)
    if entry is None:
        if len(_adapters) >= _MAX_ADAPTERS:
            _adapters.clear()
        entry = _adapters[key] = (_declared_adapter(plain),)
    return entry[0]


_adapters: dict[tuple[Any, ...], tuple["Adapter | None"]] = {}
_MAX_ADAPTERS = 1024


def _declared_adapter(function: Callable[..., Any]) -> Adapter | None:
    try:
        annotation = get_type_hints(function, include_extras=True)["return"]
        if get_origin(annotation) in (collections.abc.Awaitable, collections.abc.Coroutine):
            annotation = get_args(annotation)[-1]
        return adapter_of(annotation)
    except (*SCHEMA_ERRORS, TypeError, AttributeError):
        return None
