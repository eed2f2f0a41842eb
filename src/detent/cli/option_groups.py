"""Options that go together, taken as one value: a command names the bundle, whoever calls it sees the options."""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from detent.engine import Engine

from .app_option import url_of
from .connection import on_engine
from .options import Actor, AsJson, Cursor, Limit, Reason, Tenant, Url, actor_or_user
from .output import tell

if TYPE_CHECKING:
    from detent.client.app import Detent

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Signed:
    """Who acts and why, for the log."""

    reason: Reason = None
    actor: Actor = None

    @property
    def who(self) -> str:
        return actor_or_user(self.actor)

    def told(self) -> dict[str, Any]:
        """As the engine's acts take it."""
        return {"actor": self.who, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Asked(Signed):
    """The same, within one tenant if one is named."""

    tenant: Tenant = None

    def told(self) -> dict[str, Any]:
        return {"actor": self.who, "reason": self.reason, "tenant": self.tenant}


@dataclass(frozen=True, slots=True)
class Place:
    """Which database, and for whom the answer is."""

    url: Url = None
    as_json: AsJson = False

    def run(self, act: Callable[[Engine], Awaitable[T]]) -> T:
        return on_engine(self.url, act)

    def of(self, known: "Detent | None") -> "Place":
        """Here, or where the application has its jobs."""
        return replace(self, url=url_of(self.url, known))

    def tell(self, value: Any, *lines: str) -> None:
        tell(self.as_json, value, *lines)


@dataclass(frozen=True, slots=True)
class Page:
    """Where a list begins and how much of it is shown."""

    cursor: Cursor = None
    limit: Limit = 50

    def of(self, found: list[T], id_of: Callable[[T], str]) -> tuple[list[T], str | None]:
        """What is shown, and where the next page begins: one more than the limit was asked for."""
        page = found[: self.limit]
        return page, id_of(page[-1]) if len(found) > self.limit else None


def spread(command: Callable[..., T]) -> Callable[..., T]:
    """The command as typer is to see it: in the place of a bundle stand its options."""
    hints = get_type_hints(command, include_extras=True)
    bundles: dict[str, Any] = {name: hints[name] for name in hints if is_dataclass(hints[name])}
    parameters: list[inspect.Parameter] = []
    for name, own in inspect.signature(command).parameters.items():
        if name in bundles:
            parameters += _options(bundles[name])
        else:
            parameters.append(own.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name]))

    @wraps(command)
    def flat(**said: Any) -> T:
        for name, kind in bundles.items():
            said[name] = kind(**{one.name: said.pop(one.name) for one in fields(kind)})
        return command(**said)

    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {one.name: one.annotation for one in parameters}
    return flat


def _options(kind: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=hints[one.name])
        for one in fields(kind)
    ]
