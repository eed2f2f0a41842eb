"""Groups of options: a command takes a group as one parameter, its users see the single options.

A group is a dataclass, or `Annotated[dict[str, Any], TableOptions(...)]`: the options of a table in core.options.
"""

import inspect
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import StrEnum
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

from detent.core.access import Scope
from detent.core.options.option import COMMAND, OBJECT, Option, options_of
from detent.engine import Engine

from .app_option import url_or_app_url
from .connection import on_engine
from .options import (
    Actor,
    AsJson,
    Cursor,
    Limit,
    Reason,
    Tenant,
    Url,
    actor_or_user,
    option,
    parse_json,
    seconds_or_text,
)
from .output import print_result

if TYPE_CHECKING:
    from detent.client.app import Detent

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """Who acts and why, for the job's log and the audit log."""

    reason: Reason = None
    actor: Actor = None

    @property
    def actor_name(self) -> str:
        return actor_or_user(self.actor)

    def scope(self) -> Scope:
        """The scope for the engine's methods."""
        return Scope(self.actor_name, self.reason)


@dataclass(frozen=True, slots=True)
class TenantAuditOptions(AuditOptions):
    """Who acts and why, and the tenant to which the command is restricted."""

    tenant: Tenant = None

    def scope(self) -> Scope:
        return Scope(self.actor_name, self.reason, self.tenant)


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """The database to use, and whether to print JSON."""

    url: Url = None
    as_json: AsJson = False

    def run(self, act: Callable[[Engine], Awaitable[T]]) -> T:
        return on_engine(self.url, act)

    def with_app(self, app: "Detent | None") -> "ConnectionOptions":
        """Without `--url`, the application's database is used."""
        return replace(self, url=url_or_app_url(self.url, app))

    def print_result(self, value: Any, *lines: str) -> None:
        print_result(self.as_json, value, *lines)


@dataclass(frozen=True, slots=True)
class PageOptions:
    """Where a list begins and how many rows it shows."""

    cursor: Cursor = None
    limit: Limit = 50

    def paginate(self, rows: list[T], id_of: Callable[[T], str]) -> tuple[list[T], str | None]:
        """The page and the next cursor. `rows` were read with `limit + 1`: the extra row means that more follow."""
        page = rows[: self.limit]
        return page, id_of(page[-1]) if len(rows) > self.limit else None


_TYPES: dict[Any, type] = {"integer": int, "number": float, "boolean": bool}


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The options of a table as a dict: field -> value of each option that is set."""

    table: type
    without: Collection[str] = ()
    """Fields that are no options of this command."""
    defaults: bool = False
    """True: options that are not set have the default of the table, which the help shows."""

    def parameters(self) -> list[inspect.Parameter]:
        defaults = {field.name: field.default if self.defaults else None for field in fields(self.table)}
        return [_table_parameter(name, row, defaults[name]) for name, row in self._rows().items()]

    def _rows(self) -> dict[str, Option]:
        rows = options_of(self.table, COMMAND)
        return {name: row for name, row in rows.items() if name not in self.without}

    def take(self, arguments: dict[str, Any]) -> dict[str, Any]:
        values = {name: _parse(row, arguments.pop(name)) for name, row in self._rows().items()}
        return {name: value for name, value in values.items() if value is not None}


def _table_parameter(name: str, row: Option, default: Any) -> inspect.Parameter:
    schema, help = row.schema, row.help
    if schema is OBJECT:
        help = help.removesuffix(".") + "; - reads stdin, @FILE a file."
    choices = StrEnum(name, {value: value for value in schema["enum"]}) if "enum" in schema else None
    kind: Any = choices or _TYPES.get(schema.get("type"), str)
    setting = option(_command(name, row), help, min=schema.get("minimum"), max=schema.get("maximum"))
    annotated: Any = Annotated  # mypy does not accept a type that is computed
    annotation = annotated[kind if default is not None else kind | None, setting]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _command(name: str, row: Option) -> str:
    """The option's name in Python; its field name if the command line takes the stored unit, not Python's."""
    return "--" + (row.name if row.factor == 1 else name).replace("_", "-")


def _parse(row: Option, value: Any) -> Any:
    if row.schema is OBJECT:
        return parse_json(value, f"--{row.name}")
    return seconds_or_text(value) if "anyOf" in row.schema else value


def expand_option_groups(command: Callable[..., T]) -> Callable[..., T]:
    """The command with each group parameter replaced by the options of the group, which is the form typer needs."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hints[name] for name in hints if is_dataclass(hints[name])}
    tables = {
        name: mark
        for name in hints
        for mark in getattr(hints[name], "__metadata__", ())
        if isinstance(mark, TableOptions)
    }
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            parameters += _group_parameters(groups[name])
        elif name in tables:
            parameters += tables[name].parameters()
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name]))

    @wraps(command)
    def expanded(**arguments: Any) -> T:
        for name, group in groups.items():
            arguments[name] = group(**{field.name: arguments.pop(field.name) for field in fields(group)})
        for name, table in tables.items():
            arguments[name] = table.take(arguments)
        return command(**arguments)

    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    expanded.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return expanded


def _group_parameters(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields(group)
    ]
