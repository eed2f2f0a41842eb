"""Checks a JSON value against a JSON schema that pydantic generated from a handler's parameters. Pure.

It refuses only what the handler is sure to refuse: keywords that it does not know are ignored, and texts are accepted
for numbers and booleans, as pydantic does.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]
_NUMBER = re.compile(r"\s*[-+]?(\d[\d_]*\.?\d*|\.\d+)([eE][-+]?\d+)?\s*|\s*[-+]?(nan|inf(inity)?)\s*", re.IGNORECASE)
_BOOLEANS = frozenset({"0", "off", "f", "false", "n", "no", "1", "on", "t", "true", "y", "yes"})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) or (isinstance(value, str) and bool(_NUMBER.fullmatch(value)))


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, Mapping),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: _is_number(value) and not (isinstance(value, float) and value % 1),
    "number": _is_number,
    "boolean": lambda value: value in (0, 1) or (isinstance(value, str) and value.lower() in _BOOLEANS),
    "null": lambda value: value is None,
}
_BOUNDS: Mapping[str, tuple[Callable[[Any, Any], bool], str]] = {
    "minimum": (lambda value, bound: value >= bound, "at least"),
    "exclusiveMinimum": (lambda value, bound: value > bound, "above"),
    "maximum": (lambda value, bound: value <= bound, "at most"),
    "exclusiveMaximum": (lambda value, bound: value < bound, "below"),
}
_SIZES: Mapping[str, tuple[type[str] | type[list[Any]], Callable[[int, int], bool], str]] = {
    "minLength": (str, lambda size, bound: size >= bound, "have at least {} characters"),
    "maxLength": (str, lambda size, bound: size <= bound, "have at most {} characters"),
    "minItems": (list, lambda size, bound: size >= bound, "have at least {} items"),
    "maxItems": (list, lambda size, bound: size <= bound, "have at most {} items"),
}


def find_problem(schema: Schema, value: Any) -> tuple[str, str] | None:
    """(the field, what is wrong with it) of the first problem; None if the value fits."""
    return next(_problems(schema, value, "", schema), None)


def _problems(schema: Schema, value: Any, path: str, root: Schema) -> Iterator[tuple[str, str]]:
    if name := str(schema.get("$ref", "")).removeprefix("#/$defs/"):
        yield from _problems(root.get("$defs", {}).get(name, {}), value, path, root)
    for part in schema.get("allOf", ()):
        yield from _problems(part, value, path, root)
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        found = [next(_problems(choice, value, path, root), None) for choice in choices]
        if all(found):
            # A choice that failed deeper inside is the one that was meant.
            yield max((problem for problem in found if problem), key=lambda problem: len(problem[0]))
    kinds = schema.get("type", ())
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_TYPES[kind](value) for kind in kinds if kind in _TYPES):
        yield path, f"must be {' or '.join(kinds)}"
        return
    if "const" in schema and value != schema["const"]:
        yield path, f"must be {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield path, f"must be one of {', '.join(map(str, schema['enum']))}"
    yield from _size_problems(schema, value, path)
    if isinstance(value, Mapping):
        yield from _object_problems(schema, value, path, root)
    elif isinstance(value, list):
        first = schema.get("prefixItems", ())
        for number, item in enumerate(value):
            part = first[number] if number < len(first) else schema.get("items")
            if isinstance(part, Mapping):
                yield from _problems(part, item, f"{path}.{number}" if path else str(number), root)


def _size_problems(schema: Schema, value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        for keyword, (holds, words) in _BOUNDS.items():
            if keyword in schema and not holds(value, schema[keyword]):
                yield path, f"must be {words} {schema[keyword]}"
    for keyword, (kind, fits, words) in _SIZES.items():
        if keyword in schema and isinstance(value, kind) and not fits(len(value), schema[keyword]):
            yield path, f"must {words.format(schema[keyword])}"


def _object_problems(schema: Schema, value: Mapping[str, Any], path: str, root: Schema) -> Iterator[tuple[str, str]]:
    properties = schema.get("properties", {})
    inside = f"{path}." if path else ""
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{inside}{name}", "is missing"
    others = schema.get("additionalProperties", True)
    for name, item in value.items():
        part = properties.get(name, others)
        if part is False:
            yield f"{inside}{name}", "is not known"
        elif isinstance(part, Mapping):
            yield from _problems(part, item, f"{inside}{name}", root)
