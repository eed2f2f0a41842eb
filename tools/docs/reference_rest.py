"""The page of all REST operations, from the OpenAPI document of the API."""

from typing import Any

from detent.core.contract.builtin import CONTRACTS
from detent.engine import Engine
from detent.stores.sqlite.store import SqliteStore
from detent.web.app import create_app
from detent.web.http.settings import Settings
from detent.web.openapi.document import document
from detent.web.openapi.schemas import ROLES

from .markdown import WARNING, cell, code, sentence, table

INTRODUCTION = f"""{WARNING}
# REST operations

Every operation of the API, from its OpenAPI document. A running server has the same document at `/openapi.json`, and `/docs` shows it
with the schemas. [The REST API](rest.md) explains authentication, idempotency keys, paging and the event stream; errors have the
[codes of this page](errors.md).
"""


def openapi() -> dict[str, Any]:
    """The document of an API with every route, that of `DETENT_INTERNAL=1` included."""
    app = create_app(Engine(SqliteStore(":memory:"), CONTRACTS), Settings(internal=True))
    return document(app, CONTRACTS, is_open=False)


def page() -> str:
    described = openapi()
    groups: dict[str, list[str]] = {}
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            tag = (operation.get("tags") or ["other"])[0]
            groups.setdefault(tag, []).append(_section(f"{method.upper()} {path}", operation, described))
    sections = [text for tag, texts in groups.items() for text in (f"## {tag.capitalize()}\n", *texts)]
    schemas = described["components"]["schemas"]
    shapes = [_schema(name, schemas[name]) for name in sorted(schemas)]
    return "\n".join([INTRODUCTION, *sections, "## Schemas\n", *shapes])


def _section(title: str, operation: dict[str, Any], described: dict[str, Any]) -> str:
    parts = [f"### {title}", sentence(operation.get("summary", ""))]
    if text := operation.get("description", ""):
        parts.append(sentence(text))
    roles = " or ".join(operation.get(ROLES, ())) or "no token"
    parts.append(f"Needs: {roles}. Operation: `{operation['operationId']}`." + _body(operation))
    rows = [_parameter(row) for row in operation.get("parameters", [])]
    if rows:
        parts.append(table(["parameter", "in", "type", "meaning"], rows))
    answers = ", ".join(f"{status} {_answer(answer)}".strip() for status, answer in operation["responses"].items())
    return "\n\n".join([*parts, f"Responses: {answers}."]) + "\n"


def _parameter(row: dict[str, Any]) -> list[str]:
    required = " Required." if row.get("required") else ""
    return [
        code(row["name"]),
        row["in"],
        type_of(row.get("schema", {})),
        sentence(row.get("description", "")) + required,
    ]


def _body(operation: dict[str, Any]) -> str:
    content = operation.get("requestBody", {}).get("content", {})
    kinds = [type_of(media.get("schema", {})) for media in content.values()]
    return f" Body: {', '.join(kinds)}." if kinds else ""


def _answer(answer: dict[str, Any]) -> str:
    kinds = [type_of(media.get("schema", {})) for media in answer.get("content", {}).values()]
    return f"({', '.join(kind for kind in kinds if kind)})" if any(kinds) else ""


def _schema(name: str, schema: dict[str, Any]) -> str:
    parts = [f"### {name}", sentence(schema.get("description", ""))]
    required = schema.get("required", ())
    rows = [
        [code(field) + (" *" if field in required else ""), type_of(shape), sentence(shape.get("description", ""))]
        for field, shape in schema.get("properties", {}).items()
    ]
    parts.append(table(["field (* required)", "type", "meaning"], rows) if rows else type_of(schema))
    return "\n\n".join(parts) + "\n"


def type_of(schema: dict[str, Any]) -> str:
    """A JSON schema in a few words: the name of a schema is a link to it."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{''.join(char for char in name.lower() if char.isalnum() or char in '-_')})"
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(type_of(option) for option in schema[key]))
    if "enum" in schema:
        return ", ".join(code(value) for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {type_of(schema.get('items', {})) or 'any'}"
    kind = schema.get("type", "")
    words = [
        " or ".join(kind) if isinstance(kind, list) else kind,
        f"({schema['format']})" if "format" in schema else "",
    ]
    return cell(" ".join(word for word in words if word))
