"""Handlers: a user's function with its name, its options and its argument and result types, checked both ways."""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_type_hints

import pydantic
import pydantic_core

from detent.core.errors import InvalidInput

from .context import PARK_SECONDS, BaseContext
from .json_values import AS_IT_IS, NO_SCHEMA, NOT_JSON, Adapter, adapter_of, first_line, text_of, value_of

MODES = ("auto", "thread", "process")
_FIELD = "argument_"
"""Models know arguments by their place and by alias, so that an argument may be called `json` or `copy`."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a job gets unless its enqueue says otherwise."""

    queue: str = "default"
    contract: str | None = None
    max_retries: int | None = None
    timeout: float | None = None
    priority: int = 0
    permanent_errors: tuple[type[BaseException], ...] = ()
    retryable_errors: tuple[type[BaseException], ...] = ()
    capture_logs: bool = False
    """True: what an execution logs is kept beside its job, up to a bound."""
    park_seconds: float = PARK_SECONDS
    """A wait that may last longer than this is parked."""
    strict_steps: bool = False
    """True: a recorded step that the code no longer asks for is an error instead of a note."""


@dataclass(slots=True)
class Handler:
    """One registered function. `mode`: on the loop, in a thread, or in another process."""

    name: str
    function: Callable[..., Any]
    mode: str
    takes_context: bool
    options: Options
    arguments: type[pydantic.BaseModel] | None
    """None: the function takes no arguments besides the context."""
    result: Adapter | None
    """None: the result is not annotated and goes out as plain JSON."""
    free_form: bool = False
    parameters: Sequence[str] = field(default_factory=tuple)

    def payload(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments as the JSON object that is stored; a wrong one is refused here, not in the worker."""
        named = self._bind(args, kwargs)
        if self.arguments is None:
            return named
        try:
            checked = self.arguments.model_validate(named)
        except pydantic.ValidationError as error:
            raise InvalidInput(_sentence(self.name, error), code="PAYLOAD_INVALID", errors=_errors(error)) from None
        try:
            return _dumped(checked)
        except pydantic.ValidationError as error:
            raise InvalidInput(_sentence(self.name, error), code="PAYLOAD_INVALID", errors=_errors(error)) from None
        except ValueError as error:
            raise InvalidInput(f"{self.name}: {first_line(error)}", code="PAYLOAD_INVALID") from None

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if len(args) > len(self.parameters):
            raise InvalidInput(
                f"{self.name} takes {len(self.parameters)} arguments, got {len(args)}", code="PAYLOAD_INVALID"
            )
        named = dict(zip(self.parameters, args, strict=False))
        twice = named.keys() & kwargs.keys()
        unknown = [] if self.free_form else sorted(kwargs.keys() - set(self.parameters))
        if twice or unknown:
            names = ", ".join(sorted(twice) or unknown)
            raise InvalidInput(
                f"{self.name}: argument {names} is {'given twice' if twice else 'not known'}; "
                f"it takes ({', '.join(self.parameters)})",
                code="PAYLOAD_INVALID",
            )
        return {**named, **kwargs}

    def call_arguments(self, payload: str) -> dict[str, Any]:
        """The stored payload as keyword arguments, in the types the function asked for."""
        if self.arguments is None:
            given: dict[str, Any] = json.loads(payload) if payload != "{}" else {}
            if given and not self.free_form:
                raise InvalidInput(f"{self.name} takes no arguments, got {sorted(given)}", code="PAYLOAD_INVALID")
            return given
        try:
            checked = self.arguments.model_validate_json(payload)
        except pydantic.ValidationError as error:
            raise InvalidInput(_sentence(self.name, error), code="PAYLOAD_INVALID", errors=_errors(error)) from None
        found = {name: getattr(checked, f"{_FIELD}{n}") for n, name in enumerate(self.parameters)}
        return {**found, **(checked.model_extra or {})}

    def result_text(self, value: Any) -> str | None:
        """A result as stored; one that is no JSON is a permanent failure with its own code."""
        if value is None and self.result is None:
            return None
        try:
            text = text_of(self.result, value)
        except NOT_JSON as error:
            raise InvalidInput(
                f"{self.name} returned what its annotation does not allow or JSON cannot hold: {first_line(error)}",
                code="RESULT_INVALID",
            ) from None
        return None if text == "null" and self.result is not None else text

    def result_value(self, text: str | None) -> Any:
        if text is None:
            return None
        try:
            return value_of(self.result, text)
        except pydantic.ValidationError as error:
            told = f"the stored result of {self.name} is not what it is declared to return: {first_line(error)}"
            raise InvalidInput(told, code="RESULT_INVALID") from None


def inspect_handler(name: str, function: Callable[..., Any], options: Options, mode: str) -> Handler:
    """Read a function's signature once; what cannot be a handler is refused when it is declared."""
    if mode not in MODES:
        raise InvalidInput(f"run_in must be one of {', '.join(MODES)}, got {mode!r}", code="HANDLER_INVALID")
    is_async = inspect.iscoroutinefunction(function)
    if is_async and mode != "auto":
        raise InvalidInput(f"{name} is async and runs on the event loop; leave run_in out", code="HANDLER_INVALID")
    if options.capture_logs and mode == "process":
        told = f"{name}: what another process logs cannot be captured; leave capture_logs or run_in='process' out"
        raise InvalidInput(told, code="HANDLER_INVALID")
    signature = inspect.signature(function)
    hints = _hints(function)
    parameters = list(signature.parameters.values())
    takes_context = bool(parameters) and _is_context(parameters[0], hints)
    if takes_context:
        parameters = parameters[1:]
    free_form = any(p.kind is p.VAR_KEYWORD for p in parameters)
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if any(p.kind in (p.VAR_POSITIONAL, p.POSITIONAL_ONLY) for p in parameters):
        raise InvalidInput(f"{name}: arguments are passed by name; *args and / cannot be used", code="HANDLER_INVALID")
    result = hints.get("return", Any)
    return Handler(
        name=name,
        function=function,
        mode="loop" if is_async else ("thread" if mode == "auto" else mode),
        takes_context=takes_context,
        options=options,
        arguments=_model(name, named, hints, free_form) if named else None,
        result=_adapter(name, result),
        free_form=free_form,
        parameters=[p.name for p in named],
    )


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise InvalidInput(
            f"{function.__qualname__}: its annotation {error.name!r} cannot be resolved; import it at module level",
            code="HANDLER_INVALID",
        ) from None


def _is_context(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> bool:
    hint = hints.get(parameter.name)
    if isinstance(hint, type):
        return issubclass(hint, BaseContext)
    return parameter.name in ("ctx", "context") and hint is None


def _model(
    name: str, parameters: list[inspect.Parameter], hints: Mapping[str, Any], free_form: bool
) -> type[pydantic.BaseModel]:
    fields: dict[str, Any] = {
        f"{_FIELD}{n}": (
            hints.get(p.name, Any),
            pydantic.Field(... if p.default is p.empty else p.default, alias=p.name),
        )
        for n, p in enumerate(parameters)
    }
    config = pydantic.ConfigDict(extra="allow" if free_form else "forbid", protected_namespaces=(), **AS_IT_IS)
    try:
        return pydantic.create_model(f"{name} arguments", __config__=config, **fields)
    except NO_SCHEMA as error:
        raise InvalidInput(f"{name}: {first_line(error)}", code="HANDLER_INVALID") from None


def _dumped(checked: pydantic.BaseModel) -> dict[str, Any]:
    """What was given, as JSON. An object that was built past its own checks is checked in the form it is stored in."""
    given = checked.model_fields_set
    try:
        return checked.model_dump(mode="json", by_alias=True, include=given, warnings="error")
    except pydantic_core.PydanticSerializationError:
        dumped = checked.model_dump(mode="json", by_alias=True, include=given, warnings=False)
        type(checked).model_validate_json(json.dumps(dumped))
        return dumped


def _adapter(name: str, result: Any) -> Adapter | None:
    try:
        return adapter_of(result)
    except NO_SCHEMA as error:
        raise InvalidInput(f"{name}: its result: {first_line(error)}", code="HANDLER_INVALID") from None


def _sentence(name: str, error: pydantic.ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "payload"
    more = error.error_count() - 1
    return f"{name}: {where}: {first['msg']}" + (f" (and {more} more)" if more else "")


def _errors(error: pydantic.ValidationError) -> list[dict[str, Any]]:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [{"field": ".".join(str(part) for part in e["loc"]), "problem": e["msg"]} for e in found]
