"""The OpenAPI document as one page of HTML: no script, nothing loaded from elsewhere."""

from collections.abc import Iterator
from html import escape
from typing import Any


def page(document: dict[str, Any], static: str) -> str:
    """static: where the styles are, seen from this page."""
    info = document["info"]
    title = escape(info["title"])
    return (
        '<!doctype html><html lang="en" data-theme="system"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f'<title>API · {title}</title><link rel="icon" href="{static}/mark.svg" type="image/svg+xml">'
        f'<link rel="stylesheet" href="{static}/style.css"><link rel="stylesheet" href="{static}/docs.css"></head>'
        f'<body><main class="docs"><header><a class="brand" href="./"><img src="{static}/mark.svg" alt="" width="26"'
        f' height="26"> {title}</a><span class="soft">API {escape(info["version"])}</span>'
        f'<a href="openapi.json">openapi.json</a></header><h1>API</h1><p>{escape(info.get("description", ""))}</p>'
        f"{''.join(_groups(document))}</main></body></html>"
    )


def _groups(document: dict[str, Any]) -> Iterator[str]:
    groups: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if isinstance(operation, dict) and "responses" in operation:
                tag = (operation.get("tags") or ["other"])[0]
                groups.setdefault(tag, []).append(_operation(path, method, operation))
    for tag, shown in groups.items():
        yield f"<h2>{escape(tag)}</h2>{''.join(shown)}"
    schemas = document.get("components", {}).get("schemas", {})
    yield "<h2>shapes</h2>"
    yield from (_shape(name, schema) for name, schema in sorted(schemas.items()))


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    power = operation.get("x-detent-power", "")
    about = escape(operation.get("description", operation.get("summary", "")))
    rows = [
        _row(
            f"{one['in']} <code>{escape(one['name'])}</code>", _kind(one.get("schema", {})), one.get("description", "")
        )
        for one in operation.get("parameters", ())
    ]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if body:
        rows.append(_row("body", _kind(body), ""))
    rows += [_row(escape(status), _content(one), one.get("description", "")) for status, one in _answers(operation)]
    return (
        f'<details><summary><span class="method {method}">{method.upper()}</span><code>{escape(path)}</code>'
        f'<span class="needs">{_needs(power)}</span></summary><p>{about}</p>{_table(rows)}</details>'
    )


def _answers(operation: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return sorted(operation["responses"].items())


def _content(response: dict[str, Any]) -> str:
    return ", ".join(_kind(one.get("schema", {})) for one in response.get("content", {}).values())


def _needs(power: str) -> str:
    return f"needs {escape(power)}" if power else "open to all"


def _table(rows: list[str]) -> str:
    return f'<div class="wide"><table>{"".join(rows)}</table></div>'


def _row(name: str, kind: str, text: str) -> str:
    return f"<tr><td>{name}</td><td>{kind}</td><td>{escape(text)}</td></tr>"


def _shape(name: str, schema: dict[str, Any]) -> str:
    needed = set(schema.get("required", ()))
    rows = [
        _row(f"<code>{escape(field)}</code>{'' if field in needed else ' ?'}", _kind(one), one.get("description", ""))
        for field, one in schema.get("properties", {}).items()
    ]
    about = escape(schema.get("description", ""))
    return (
        f'<details id="{escape(name)}"><summary><code>{escape(name)}</code></summary><p>{about}</p>'
        f"{_table(rows)}</details>"
    )


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            return " | ".join(_kind(one) for one in schema[word])
    if schema.get("type") == "array":
        return f"[{_kind(schema.get('items', {}))}]"
    kind = schema.get("type", "anything")
    bounds = [
        f"{name} {schema[name]}" for name in ("enum", "const", "maxLength", "minimum", "maximum") if name in schema
    ]
    return escape(" ".join([kind if isinstance(kind, str) else " | ".join(kind), *map(str, bounds)]))
