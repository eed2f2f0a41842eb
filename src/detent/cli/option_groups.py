"""Groups of options as dataclasses: a command takes a group as one parameter, its users see the single options."""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from detent.core.access import Scope
from detent.engine import Engine

from .app_option import url_or_app_url
from .connection import on_engine
from .options import Actor, AsJson, Cursor, Limit, Reason, Tenant, Url, actor_or_user
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


def expand_option_groups(command: Callable[..., T]) -> Callable[..., T]:
    """The command with each group parameter replaced by the options of the group, which is the form typer needs."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hints[name] for name in hints if is_dataclass(hints[name])}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            parameters += _group_parameters(groups[name])
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name]))

    @wraps(command)
    def expanded(**arguments: Any) -> T:
        for name, group in groups.items():
            arguments[name] = group(**{field.name: arguments.pop(field.name) for field in fields(group)})
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
