"""The OpenAPI document as one page of HTML: no script, nothing loaded from elsewhere."""

from collections.abc import Iterator
from html import escape
from typing import Any

_STYLE = """body{font:16px/1.5 system-ui,sans-serif;margin:0 auto;max-width:60rem;padding:1rem;color:#222}
h2{margin-top:2.5rem}details{border:1px solid #ccc;border-radius:6px;margin:.4rem 0;padding:.4rem .8rem}
summary{cursor:pointer}code,b.m{font-family:ui-monospace,monospace}b.m{display:inline-block;min-width:4.5rem}
table{border-collapse:collapse;width:100%}td{border-top:1px solid #ddd;padding:.2rem .5rem;vertical-align:top}
small{color:#666}@media(prefers-color-scheme:dark){body{color:#ddd;background:#111}td,details{border-color:#444}}"""


def page(document: dict[str, Any]) -> str:
    info = document["info"]
    body = "".join(_groups(document))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(info['title'])}</title><style>{_STYLE}</style><h1>{escape(info['title'])}</h1>"
        f"<p>{escape(info.get('description', ''))}</p>"
        f'<p><a href="openapi.json">openapi.json</a> · version {escape(info["version"])}</p>{body}</html>'
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
        f'<details><summary><b class="m">{method.upper()}</b> <code>{escape(path)}</code> '
        f"<small>needs {escape(power)}</small></summary><p>{about}</p><table>{''.join(rows)}</table></details>"
    )


def _answers(operation: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return sorted(operation["responses"].items())


def _content(response: dict[str, Any]) -> str:
    return ", ".join(_kind(one.get("schema", {})) for one in response.get("content", {}).values())


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
        f"<table>{''.join(rows)}</table></details>"
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
