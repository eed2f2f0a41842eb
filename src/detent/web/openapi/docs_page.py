"""The page at /docs: prepares the OpenAPI document for the template `api_docs.html`."""

import json
import shlex
from collections.abc import Iterator
from typing import Any, NamedTuple

from detent.web.pages.shell import templates

from .schemas import ROLES

_COMBINED = ("anyOf", "oneOf", "allOf")
_BOUNDS = ("enum", "const", "maxLength", "minimum", "maximum")


class TypePart(NamedTuple):
    """A part of a type's notation; schema: the name of the schema that it links to, or None."""

    text: str
    schema: str | None = None


class Row(NamedTuple):
    """A line of a table: a parameter, the body or a response of an operation, or a field of a schema.

    location: where a parameter is sent (path, query, header), else "". is_code: show the name as code.
    """

    location: str
    name: str
    is_code: bool
    optional: bool
    type: list[TypePart]
    description: str


def docs_page(document: dict[str, Any], static: str) -> str:
    """The OpenAPI document as HTML without scripts. static: relative URL of the static files."""
    return templates.get_template("api_docs.html").render(
        info=document["info"],
        groups=_operations_by_tag(document),
        schemas=[_schema(name, schema) for name, schema in sorted(document["components"]["schemas"].items())],
        static=static,
    )


def _operations_by_tag(document: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            shown = {
                "method": method,
                "path": path,
                "roles": operation[ROLES],
                "summary": operation["summary"],
                "example": _example(method, path, operation),
                "answer": _answer(operation),
                "description": operation.get("description") or operation["summary"],
                "rows": list(_operation_rows(operation, document["components"]["responses"])),
            }
            groups.setdefault((operation.get("tags") or ["other"])[0], []).append(shown)
    return groups


def _example(method: str, path: str, operation: dict[str, Any]) -> str:
    """A call with curl, to a server at the default address."""
    parts = ["curl"] + (["-X", method.upper()] if method != "get" else [])
    if operation.get("security"):
        parts += ["-H", "'Authorization: Bearer TOKEN'"]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")
    if body is not None:
        parts += ["-H", "'Content-Type: application/json'", "-d", shlex.quote(json.dumps(body, ensure_ascii=False))]
    return " ".join([*parts, shlex.quote(f"127.0.0.1:8400{path}")])


def _answer(operation: dict[str, Any]) -> str:
    """The example of the answer to a request that succeeds; empty if it has no body."""
    contents = [
        part for status in ("200", "201") for part in operation["responses"].get(status, {}).get("content", {}).values()
    ]
    example = contents[0]["example"] if contents else ""
    return example if isinstance(example, str) else json.dumps(example, ensure_ascii=False, indent=2)


def _operation_rows(operation: dict[str, Any], shared: dict[str, Any]) -> Iterator[Row]:
    for parameter in operation.get("parameters", ()):
        kind = _type_parts(parameter.get("schema", {}))
        yield Row(parameter["in"], parameter["name"], True, False, kind, parameter.get("description", ""))
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if body:
        yield Row("", "body", False, False, _type_parts(body), "")
    for status, response in sorted(operation["responses"].items()):
        response = shared[response["$ref"].rpartition("/")[2]] if "$ref" in response else response
        contents = [_type_parts(content.get("schema", {})) for content in response.get("content", {}).values()]
        yield Row("", status, False, False, _join(contents, ", "), response.get("description", ""))


def _schema(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    required = set(schema.get("required", ()))
    rows = [
        Row("", field, True, field not in required, _type_parts(part), part.get("description", ""))
        for field, part in schema.get("properties", {}).items()
    ]
    return {"name": name, "description": schema.get("description", ""), "rows": rows}


def _type_parts(schema: dict[str, Any]) -> list[TypePart]:
    """The notation of a type: names of schemas become links, alternatives are joined by `|`, arrays are `[item]`."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return [TypePart(name, name)]
    for keyword in _COMBINED:
        if keyword in schema:
            return _join([_type_parts(part) for part in schema[keyword]], " | ")
    if schema.get("type") == "array":
        return [TypePart("["), *_type_parts(schema.get("items", {})), TypePart("]")]
    kind = schema.get("type", "any")
    bounds = [f"{name} {schema[name]}" for name in _BOUNDS if name in schema]
    return [TypePart(" ".join([kind if isinstance(kind, str) else " | ".join(kind), *bounds]))]


def _join(types: list[list[TypePart]], separator: str) -> list[TypePart]:
    joined: list[TypePart] = []
    for parts in types:
        joined += [TypePart(separator), *parts] if joined else parts
    return joined
