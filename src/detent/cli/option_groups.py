"""Groups of options: a command takes a group as one parameter, its users see the single options.

A group is a dataclass, or `Annotated[dict[str, Any], TableOptions(...)]`: the options of a table in core.options.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from detent.client.app import Detent
from detent.client.connect import default_url, engine_from, store_from, when_available
from detent.core.access import Power, Scope, Token
from detent.core.job import Micros
from detent.core.options.option import COMMAND, OBJECT, Option, options_of
from detent.engine import Engine
from detent.observability.job_logs import configure_logging

from . import options, output
from .options import option

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class ActorOptions:
    """Who acts, for the job's log and the audit log."""

    actor: options.Actor = None

    def scope(self) -> Scope:
        """The scope for the engine's methods; the actor is only a name."""
        return Scope(options.actor_or_user(self.actor), shared_with=None)


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """Who acts and why, for the job's log and the audit log."""

    reason: options.Reason = None
    actor: options.Actor = None

    def scope(self) -> Scope:
        """The scope for the engine's methods; the actor is only a name."""
        tenant = getattr(self, "tenant", None)
        return Scope(options.actor_or_user(self.actor), self.reason, tenant, shared_with=None)


@dataclass(frozen=True, slots=True)
class TenantAuditOptions(AuditOptions):
    """Who acts and why, and the tenant to which the command is restricted."""

    tenant: options.Tenant = None


@dataclass(frozen=True, slots=True)
class TokenOptions:
    """The token that proves who acts."""

    token: Annotated[str | None, option("Your token: you act as its person. Needed where two people must agree.")] = (
        None
    )
    token_file: Annotated[Path | None, option("A file that holds your token.")] = None

    @property
    def secret(self) -> str | None:
        if self.token is not None or self.token_file is None:
            return self.token
        try:
            return self.token_file.read_text("utf-8").strip()
        except (OSError, ValueError) as error:
            raise typer.BadParameter(f"--token-file cannot be read: {error}") from None

    async def sign_in(self, engine: Engine, scope: Scope, power: Power) -> tuple[Engine, Scope, Token | None]:
        """The engine within the limits of the token, and the scope with its person; unchanged without a token."""
        if self.secret is None:
            return engine, scope, None
        token = await engine.tokens.authenticate(self.secret, power)
        scoped = engine.scoped(tenant=token.tenant_id, payloads=token.payloads, reach=token.reach)
        return scoped, replace(scope, actor=token.person, shared_with=token.shared_with), token


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """The database to use, and whether to print JSON."""

    url: options.Url = None
    as_json: options.AsJson = False

    def run(
        self,
        act: Callable[[Engine], Awaitable[T]],
        *,
        may_migrate: bool = False,
        read_only: bool = False,
        wait: bool = False,
    ) -> T:
        """Open the database, run `act` on its engine in an event loop started for it, and close the database.

        The engine has the contracts as this database stores them, including an application's own. wait: until a server
        answers.
        """

        async def run() -> T:
            store = store_from(self.url or default_url(), may_migrate=may_migrate, inline=True, read_only=read_only)
            engine = engine_from(store)
            try:
                await (when_available(engine.open) if wait else engine.open())
                return await act(engine)
            finally:
                await engine.close()

        return asyncio.run(run())

    def run_with_time(self, act: Callable[[Engine], Awaitable[T]]) -> tuple[Micros, T]:
        """The time of the database before `act`, to which `relative_time` refers, and what `act` returns."""

        async def act_with_time(engine: Engine) -> tuple[Micros, T]:
            return engine.store.now(), await act(engine)

        return self.run(act_with_time)

    def with_app(self, app: Detent | None) -> "ConnectionOptions":
        """Without `--url`, the application's database is used."""
        return replace(self, url=self.url or (app.url if app else None))

    def print_result(self, value: Any, *lines: str) -> None:
        output.print_result(self.as_json, value, *lines)

    def print_list(
        self, view: Mapping[str, Any], columns: Sequence[str], rows: Iterable[Sequence[output.Cell]], empty: str = ""
    ) -> None:
        output.print_list(self.as_json, view, columns, rows, empty)


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Which log lines a command that runs on writes to stderr, and how."""

    log_level: options.LogLevelOption = options.LogLevel.INFO
    log_format: options.LogFormatOption = options.LogFormat.TEXT

    def configure(self) -> None:
        configure_logging(self.log_format, self.log_level)


@dataclass(frozen=True, slots=True)
class PageOptions:
    """Where a list begins and how many rows it shows."""

    cursor: options.Cursor = None
    limit: options.Limit = 50

    def paginate(self, rows: list[T], id_of: Callable[[T], str]) -> tuple[list[T], str | None]:
        """The page and the next cursor. `rows` were read with `limit + 1`: the extra row means that more follow."""
        page = rows[: self.limit]
        return page, id_of(page[-1]) if len(rows) > self.limit else None


@dataclass(frozen=True, slots=True)
class BulkOptions:
    """Whether a command that affects many rows only counts them, and whether it asks before it changes them."""

    dry_run: options.DryRun = False
    yes: options.Yes = False

    def run(
        self,
        connection: ConnectionOptions,
        act: Callable[[Engine, bool], Awaitable[T]],
        preview_of: Callable[[T], tuple[int, str]],
        report_of: Callable[[T], tuple[bool, list[str]]],
    ) -> int:
        """Count with a dry run, ask for confirmation, run, print; returns the exit code.

        act: the change; its second argument is true for the dry run. preview_of: how many rows the dry run has counted,
        and a sentence about them. report_of: whether all went well, and the lines to print.
        """
        counted: Any = connection.run(lambda engine: act(engine, True))
        number, sentence = preview_of(counted)
        confirmed = not self.dry_run and number > 0 and output.confirm(sentence, self.yes, connection.as_json)
        result: Any = connection.run(lambda engine: act(engine, False)) if confirmed else counted
        ok, lines = report_of(result) if confirmed else (self.dry_run or not number, [sentence])
        connection.print_result({"dry_run": not confirmed, **asdict(result)}, *(lines if confirmed or ok else ()))
        return output.EXIT_OK if ok else output.EXIT_NO


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
    setting = option(help, name=_command(name, row), min=schema.get("minimum"), max=schema.get("maximum"))
    annotated: Any = Annotated  # mypy does not accept a type that is computed
    annotation = annotated[kind if default is not None else kind | None, setting]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _command(name: str, row: Option) -> str:
    """The option's name in Python; its field name if the command line takes milliseconds instead of seconds."""
    return "--" + (name if name.endswith("_ms") else row.name).replace("_", "-")


def _parse(row: Option, value: Any) -> Any:
    if row.schema is OBJECT:
        return options.parse_json(value, f"--{row.name}")
    return options.seconds_or_text(value) if "anyOf" in row.schema else value


class CommandGroup(typer.Typer):
    """A typer whose commands may take option groups."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Command], Command]:
        register = super().command(name, **settings)

        def add(command: Command) -> Command:
            register(expand_option_groups(command))
            return command

        return add


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

    parameters = [p.replace(annotation=options.named(p.annotation, p.name)) for p in parameters]
    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    expanded.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return expanded


def _group_parameters(group: Any) -> list[inspect.Parameter]:
    hints, kind = get_type_hints(group, include_extras=True), inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(field.name, kind, default=field.default, annotation=hints[field.name])
        for field in fields(group)
    ]
