"""Handlers: a user's function with its name, options, and the types its arguments and result are checked against."""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, ParamSpec, get_type_hints

import pydantic
import pydantic_core

from detent.core.errors import InvalidInput
from detent.core.options.backoff import Backoff
from detent.core.options.job_options import DeclaredOptions, JobOptions
from detent.core.options.option import fields_of_python
from detent.ports.listing import Declaration

from .base_context import PARK_SECONDS, BaseContext
from .hooks import Hooks
from .json_values import JSON_ERRORS, KEEP_NAN, SCHEMA_ERRORS, Adapter, adapter_of, first_line, from_json, to_json

P = ParamSpec("P")
MODES = ("auto", "thread", "process")
HAND_BACK_SECONDS = 900.0
_FIELD = "argument_"
"""Prefix of field names in the argument model. The argument's name is the alias, so that it may be `json` or `copy`."""


class Arguments(Generic[P]):
    """The checked arguments of one job for `enqueue_many`, made by `JobDefinition.arguments`."""

    def __init__(self, payload: dict[str, Any]) -> None:
        self.payload = payload


class PayloadNotBound(InvalidInput, code="PAYLOAD_INVALID"):
    """The stored payload does not fit the parameters of the handler in this process."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `@app.job`; an enqueue can override some of them with `using`."""

    queue: str | None = None
    contract: str | None = None
    max_retries: int | None = None
    timeout: float | None = None
    priority: int | None = None
    backoff: Backoff | None = None
    soft_timeout: float | None = None
    """Seconds after which SoftTimeout is raised in the handler."""
    give_up_on: tuple[type[BaseException], ...] = ()
    retry_on: tuple[type[BaseException], ...] = ()
    capture_logs: bool = False
    """True: log lines of an execution are stored with its job, up to a limit."""
    park_seconds: float = PARK_SECONDS
    """A wait that may last longer than this is parked."""
    strict_steps: bool = False
    """True: a recorded step that the code no longer calls is an error instead of a note."""
    hand_back_seconds: float = HAND_BACK_SECONDS
    """How long a job whose payload does not fit is handed back to other workers before it fails."""


@dataclass(slots=True)
class Handler:
    """One declared job. `mode` is where its function runs: `loop`, `thread` or `process`."""

    name: str
    function: Callable[..., Any]
    mode: str
    takes_context: bool
    options: Options
    arguments: "type[pydantic.BaseModel] | None"
    """None: the function takes no arguments besides the context."""
    result: Adapter | None
    """None: the result is not annotated and is stored as plain JSON."""
    free_form: bool = False
    """True: the function has **kwargs, so any argument name is accepted."""
    parameters: Sequence[str] = field(default_factory=tuple)
    hooks: Hooks = field(default_factory=Hooks)
    """Those of the application; its middleware surrounds the function."""

    def payload(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as the JSON object that is stored. Wrong arguments raise PAYLOAD_INVALID, at the enqueue."""
        named = self._bind(args, kwargs)
        if self.arguments is None:
            return named
        try:
            return _dumped(self.arguments.model_validate(named))
        except pydantic.ValidationError as error:
            raise _invalid_payload(self.name, error) from None
        except ValueError as error:
            raise InvalidInput(f"{self.name}: {first_line(error)}", code="PAYLOAD_INVALID") from None

    def payloads(self, arguments: Sequence[Mapping[str, Any] | Arguments[...]]) -> list[dict[str, Any]]:
        """The payloads of several jobs. Raises PAYLOAD_INVALID with the `index` of the first that is wrong."""
        payloads = []
        for index, values in enumerate(arguments):
            try:
                payloads.append(values.payload if isinstance(values, Arguments) else self.payload((), values))
            except InvalidInput as error:
                extra = {**error.extra, "index": index}
                raise InvalidInput(f"item {index}: {error.message}", code=error.code, **extra) from None
        return payloads

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if len(args) > len(self.parameters):
            message = f"{self.name} takes {len(self.parameters)} arguments, got {len(args)}"
            raise InvalidInput(message, code="PAYLOAD_INVALID")
        named = dict(zip(self.parameters, args, strict=False))
        repeated = named.keys() & kwargs.keys()
        unknown = [] if self.free_form else sorted(kwargs.keys() - set(self.parameters))
        if repeated or unknown:
            problem = f"{', '.join(sorted(repeated) or unknown)} is {'given twice' if repeated else 'not known'}"
            message = f"{self.name}: argument {problem}; it takes ({', '.join(self.parameters)})"
            raise InvalidInput(message, code="PAYLOAD_INVALID")
        return {**named, **kwargs}

    def call_arguments(self, payload: str) -> dict[str, Any]:
        """The stored payload as keyword arguments, in the annotated types. Raises PayloadNotBound."""
        if self.arguments is None:
            arguments: dict[str, Any] = json.loads(payload) if payload != "{}" else {}
            if arguments and not self.free_form:
                raise PayloadNotBound(f"{self.name} takes no arguments, got {sorted(arguments)}")
            return arguments
        try:
            checked = self.arguments.model_validate_json(payload)
        except pydantic.ValidationError as error:
            raise _invalid_payload(self.name, error, PayloadNotBound) from None
        named = {name: getattr(checked, f"{_FIELD}{n}") for n, name in enumerate(self.parameters)}
        return {**named, **(checked.model_extra or {})}

    def declared_fields(self) -> dict[str, Any]:
        """The declared options as fields of a submission."""
        options = {name: getattr(self.options, name) for name in ("contract", *DeclaredOptions.__annotations__)}
        return fields_of_python(JobOptions, {name: value for name, value in options.items() if value is not None})

    def declaration(self) -> Declaration:
        """The declaration that workers publish, so that other processes can check payloads and know the options."""
        schema: dict[str, Any] | None = {"type": "object", "additionalProperties": self.free_form}
        if self.arguments is not None:
            try:
                schema = self.arguments.model_json_schema()
            except pydantic.errors.PydanticInvalidForJsonSchema:
                schema = None
        options = json.dumps(self.declared_fields(), sort_keys=True)
        return Declaration(self.name, options, None if schema is None else json.dumps(schema))

    def result_text(self, value: Any) -> str | None:
        """The result as stored JSON. Raises RESULT_INVALID, which fails the job for good."""
        if value is None and self.result is None:
            return None
        try:
            text = to_json(self.result, value)
        except JSON_ERRORS as error:
            message = f"the result of {self.name} does not fit its return annotation, or is not JSON"
            raise InvalidInput(f"{message}: {first_line(error)}", code="RESULT_INVALID") from None
        return None if text == "null" and self.result is not None else text

    def result_value(self, text: str | None) -> Any:
        """The stored result in the type of the return annotation. Raises RESULT_INVALID if it does not fit."""
        if text is None:
            return None
        try:
            return from_json(self.result, text)
        except pydantic.ValidationError as error:
            message = f"the stored result of {self.name} does not fit its return annotation: {first_line(error)}"
            raise InvalidInput(message, code="RESULT_INVALID") from None


def inspect_handler(name: str, function: Callable[..., Any], options: Options, mode: str) -> Handler:
    """Make a handler of a function by reading its signature. Raises HANDLER_INVALID for what cannot be a handler."""
    if mode not in MODES:
        raise InvalidInput(f"run_in must be one of {', '.join(MODES)}, got {mode!r}", code="HANDLER_INVALID")
    is_async = inspect.iscoroutinefunction(function)
    if is_async and mode != "auto":
        raise InvalidInput(f"{name} is async and runs on the event loop; leave run_in out", code="HANDLER_INVALID")
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
    return Handler(
        name=name,
        function=function,
        mode="loop" if is_async else ("thread" if mode == "auto" else mode),
        takes_context=takes_context,
        options=options,
        arguments=_argument_model(name, named, hints, free_form) if named else None,
        result=_result_adapter(name, hints.get("return", Any)),
        free_form=free_form,
        parameters=[p.name for p in named],
    )


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        problem = f"the annotation {error.name!r} cannot be resolved; import it at module level"
        raise InvalidInput(f"{function.__qualname__}: {problem}", code="HANDLER_INVALID") from None


def _is_context(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> bool:
    hint = hints.get(parameter.name)
    if isinstance(hint, type):
        return issubclass(hint, BaseContext)
    return parameter.name in ("ctx", "context") and hint is None


def _argument_model(
    name: str, parameters: list[inspect.Parameter], hints: Mapping[str, Any], free_form: bool
) -> "type[pydantic.BaseModel]":
    fields: dict[str, Any] = {}
    for n, p in enumerate(parameters):
        field = pydantic.Field(... if p.default is p.empty else p.default, alias=p.name)
        fields[f"{_FIELD}{n}"] = (hints.get(p.name, Any), field)
    extra: Literal["allow", "forbid"] = "allow" if free_form else "forbid"
    config: pydantic.ConfigDict = {**KEEP_NAN, "extra": extra, "protected_namespaces": ()}
    try:
        return pydantic.create_model(f"{name} arguments", __config__=config, **fields)
    except SCHEMA_ERRORS as error:
        raise InvalidInput(f"{name}: {first_line(error)}", code="HANDLER_INVALID") from None


def _dumped(checked: "pydantic.BaseModel") -> dict[str, Any]:
    """The arguments that were passed, as JSON; defaults are left out.

    An object built without validation may not serialize as its type: then its JSON form is validated instead.
    """
    passed = checked.model_fields_set
    try:
        return checked.model_dump(mode="json", by_alias=True, include=passed, warnings="error")
    except pydantic_core.PydanticSerializationError:
        dumped = checked.model_dump(mode="json", by_alias=True, include=passed, warnings=False)
        type(checked).model_validate_json(json.dumps(dumped))
        return dumped


def _result_adapter(name: str, annotation: Any) -> Adapter | None:
    try:
        return adapter_of(annotation)
    except SCHEMA_ERRORS as error:
        raise InvalidInput(f"{name}: return annotation: {first_line(error)}", code="HANDLER_INVALID") from None


def _invalid_payload(
    name: str, error: pydantic.ValidationError, kind: type[InvalidInput] = InvalidInput
) -> InvalidInput:
    errors = [
        {"field": ".".join(map(str, problem["loc"])), "problem": problem["msg"]}
        for problem in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    message = f"{name}: {errors[0]['field'] or 'payload'}: {errors[0]['problem']}{more}"
    return kind(message, code="PAYLOAD_INVALID", errors=errors)
