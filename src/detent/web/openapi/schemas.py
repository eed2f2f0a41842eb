"""Pydantic models of request bodies, which are validated strictly, and of answers, which describe the OpenAPI document.

The fields of options come from core.options, the models of answers from engine.reads.responses.
"""

import re
from collections.abc import Callable, Collection
from functools import cache
from inspect import Parameter, Signature, signature
from types import UnionType
from typing import Annotated, Any, Literal, NotRequired, TypeVar, Union, get_args, get_origin, is_typeddict

from fastapi import Body, Path, Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, create_model, model_validator

from detent.core.options.option import PRINTABLE, REST, JsonSchema, options_of
from detent.engine.reads.responses import TIME

Model = TypeVar("Model", bound=BaseModel)
Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=PRINTABLE)]
Prose = Annotated[str, StringConstraints(max_length=2_000, pattern=r"^[^\x00]*$")]
VISIBLE = r"^[!-~]+$"
T = TypeVar("T")
ROLES = "x-detent-roles"
"""In OpenAPI: the least roles that may call the operation; roles that include one of them may as well."""
Several = Annotated[list[T], Field(min_length=1, max_length=50)]
"""A filter with several values, any of which may match; in a query the parameter is repeated: `?queue=a&queue=b`."""
Timestamp = Annotated[
    str,
    Field(
        description="ISO-8601 UTC",
        examples=["2030-01-31T12:00:00.000000Z"],
        json_schema_extra={"format": "date-time"},
    ),
]


def in_path(description: str, pattern: str = VISIBLE) -> Any:
    """A parameter in the path: the name or id of what the request is about."""
    return Path(min_length=1, max_length=200, pattern=pattern, description=description)


class QueryParameters(BaseModel):
    """Base of all query parameters: unknown ones are refused."""

    model_config = ConfigDict(extra="forbid")


def whole_number(value: Any) -> Any:
    """5 for 5.0, which is an integer in JSON schema; other values unchanged."""
    return int(value) if type(value) is float and value.is_integer() else value


class RequestBody(BaseModel):
    """Base of all request bodies: unknown fields are refused, values are not converted."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _with_whole_numbers(cls, body: Any) -> Any:
        free = {name for name, field in cls.model_fields.items() if field.annotation is Any}
        if not isinstance(body, dict):
            return body
        return {name: value if name in free else whole_number(value) for name, value in body.items()}


_TYPES = {"string": str, "integer": int, "number": float, "boolean": bool, "object": dict[str, Any]}
_CONSTRAINTS = {
    "minimum": "ge",
    "maximum": "le",
    "minLength": "min_length",
    "maxLength": "max_length",
    "pattern": "pattern",
}


def any_of(*alternatives: dict[str, Any]) -> ConfigDict:
    """The configuration of a body that must match one of these schemas beside its own fields.

    Within allOf, generators of clients ignore it. Without, they make a class of each alternative, with its fields only.
    """
    return ConfigDict(json_schema_extra={"allOf": [{"anyOf": [*alternatives]}]})


def one_of_fields(*names: str) -> ConfigDict:
    """The configuration of a body that needs exactly one of these fields."""
    given, null = {"type": ["string", "number"]}, {"type": "null"}
    return any_of(
        *({"required": [one], "properties": {name: given if name == one else null for name in names}} for one in names)
    )


def with_options(table: type, without: Collection[str] = ()) -> Callable[[type[Model]], type[Model]]:
    """Adds the options of a table in core.options to a request body; all of them may be null or left out."""
    rows = {name: row for name, row in options_of(table, REST).items() if name not in without}
    fields: dict[str, Any] = {
        name: (_type_of(row.schema) | None, Field(None, description=row.help)) for name, row in rows.items()
    }

    def extend(model: type[Model]) -> type[Model]:
        extended: type[Model] = create_model(model.__name__, __base__=model, __doc__=model.__doc__, **fields)
        return extended

    return extend


def _type_of(schema: JsonSchema) -> Any:
    """The type whose values the schema describes."""
    if "anyOf" in schema:
        return Union[tuple(_type_of(part) for part in schema["anyOf"])]  # noqa: UP007
    if "enum" in schema:
        return Literal[tuple(schema["enum"])]
    constraints = {_CONSTRAINTS[name]: value for name, value in schema.items() if name in _CONSTRAINTS}
    annotated: Any = Annotated  # mypy does not accept a type that is computed
    return annotated[_TYPES[schema["type"]], Field(**constraints)]


@cache
def model_of(answer: Any) -> Any:
    """The model of an answer, which is a TypedDict."""
    fields = {name: _model_field(hint) for name, hint in answer.__annotations__.items()}
    return create_model(answer.__name__, __doc__=answer.__doc__, **fields)


def is_list_type(returned: Any) -> bool:
    """Whether a handler with this return type answers a list: list[...] or Paged[...]."""
    origin: Any = get_origin(returned)
    return origin in (list, tuple)


def list_model(returned: Any) -> Any:
    """The model of a list: a handler returns list[...], or (list, cursor of the next page) if the list has pages."""
    is_page = get_origin(returned) is tuple
    items = get_args(returned)[0] if is_page else returned
    last = "Cursor of the next page; null on the last one." if is_page else "Always null: the list has one page."
    fields: dict[str, Any] = {"items": (_with_models(items), ...), "next_cursor": (str | None, Field(description=last))}
    if is_page and len(get_args(returned)) > 2:
        description = "Everything newer was searched; null: everything was."
        fields["searched_until"] = (Union[Timestamp, None], Field(description=description))  # noqa: UP007
    return create_model(f"{item_type(returned).__name__}List", **fields)


def list_signature(handler: Callable[..., Any], item: Any) -> Signature:
    """The signature of a handler of a list of such items, with `fields` among its query parameters: the fields of an
    item to answer.

    The handler's own query parameters, if it has some, are the model of its parameter `query`.
    """
    own = signature(handler)
    base = get_args(own.parameters["query"].annotation)[0] if "query" in own.parameters else QueryParameters
    names = tuple(item.__annotations__)
    choice: Any = Annotated[list[Literal[names]] | None, BeforeValidator(_split)]  # type: ignore[valid-type]
    description = "Answer only these fields of each item; repeated, or separated by commas. Default: all."
    model = create_model(base.__name__, __base__=base, fields=(choice, Field(None, description=description)))
    query = Parameter("query", Parameter.KEYWORD_ONLY, annotation=Annotated[model, Query()])
    others = [part for name, part in own.parameters.items() if name != "query"]
    return own.replace(parameters=[*(part.replace(kind=Parameter.KEYWORD_ONLY) for part in others), query])


def _split(values: Any) -> Any:
    return [part for value in values for part in value.split(",")] if isinstance(values, list) else values


def item_type(answer: Any) -> Any:
    """The type of an item of a list, which is the answer or its member `items`; None if there is no list."""
    part = answer.__annotations__.get("items") if is_typeddict(answer) else answer
    while get_origin(part) in (Annotated, tuple):
        part = get_args(part)[0]
    return get_args(part)[0] if get_origin(part) is list else None


def operation_id(handler_name: str) -> str:
    """`list_jobs` -> `listJobs`"""
    first, *rest = handler_name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def summary_of(handler: Callable[..., Any]) -> str:
    """The beginning of a handler's docstring, up to the first full stop, colon or semicolon."""
    return re.split(r"[.:;](?:\s|$)", (handler.__doc__ or "").strip(), maxsplit=1)[0]


def _model_field(hint: Any) -> Any:
    default: Any = ...
    if get_origin(hint) is NotRequired:
        (hint,), default = get_args(hint), None
    texts = [text for text in getattr(hint, "__metadata__", ()) if isinstance(text, str)]
    return _with_models(hint), Field(default, description=texts[0]) if texts else Field(default)


def _with_models(hint: Any) -> Any:
    """The type with the models of the answers in it, and without descriptions."""
    if is_typeddict(hint):
        return model_of(hint)
    if get_origin(hint) is Annotated:
        return Timestamp if TIME in hint.__metadata__ else _with_models(get_args(hint)[0])
    parts = tuple(_with_models(part) for part in get_args(hint))
    if isinstance(hint, UnionType):
        return Union[parts]  # noqa: UP007
    return get_origin(hint)[parts] if parts and get_origin(hint) is not Literal else hint


class Problem(BaseModel):
    """An error (RFC 9457). Depending on `code` it has further members, like `conflict_fields` or `limit`."""

    model_config = ConfigDict(extra="allow")
    type: str = Field(description="The address of the code in the documentation.")
    title: str = Field(description="The HTTP reason phrase.")
    status: int = Field(description="The HTTP status code.")
    detail: str = Field(description="What is wrong and what to do.")
    code: str = Field(description="Stable error code, to be compared by programs.")
    retryable: bool = Field(description="Whether the same request may succeed later.")
    trace_id: str = Field(description="Id of this request, in the header X-Request-Id and in the server log.")


_PROBLEM_DESCRIPTIONS = {
    400: "Bad request",
    401: "Token missing, unknown, expired or revoked",
    403: "Not allowed for this role, tenant or session",
    404: "Not found",
    408: "Request body not received in time",
    409: "Conflict with the current state",
    410: "The result of the first request with this Idempotency-Key was deleted",
    413: "Request body too large",
    415: "Request body is not JSON",
    422: "Invalid value",
    429: "Too many requests",
    503: "Database unavailable; retry later",
}
PROBLEM_MEDIA = "application/problem+json"
_PROBLEM = {PROBLEM_MEDIA: {"schema": {"$ref": "#/components/schemas/Problem"}}}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "content": _PROBLEM} for status, text in _PROBLEM_DESCRIPTIONS.items()
}


_OF_READS = (401, 403, 404, 422, 429, 503)


def problems_of(method: str) -> dict[int | str, dict[str, Any]]:
    """The errors that a request with this method can have."""
    return {status: PROBLEMS[status] for status in PROBLEMS if method != "GET" or status in _OF_READS}


def _header(description: str, example: str | None = None) -> dict[str, Any]:
    return {"description": description, "schema": {"type": "string"}} | ({"example": example} if example else {})


HEADERS = {
    "X-Request-Id": _header(
        "The id of this request: the X-Request-Id that the client sent if it is 1 to 128 visible ASCII characters, "
        "else a new one.",
    ),
    "RateLimit-Policy": _header("How many requests (q) the token may send within w seconds.", '"requests";q=10000;w=2'),
    "RateLimit": _header("How many requests are left (r); in t seconds all of them.", '"requests";r=9999;t=1'),
    "Retry-After": _header("Seconds to wait before the request is repeated.", "1"),
    "WWW-Authenticate": _header("Always Bearer.", "Bearer"),
    "Detent-Token-Expires": _header("When the token expires, if that is within 14 days."),
    "ETag": _header("Changes with every change of the object; for If-None-Match."),
    "Idempotency-Replayed": _header("true if the response to an earlier request with the Idempotency-Key is repeated."),
    "Location": _header("The path of the created object."),
}


def header_parameter(name: str, description: str, **schema: Any) -> dict[str, Any]:
    """An optional request header, for the OpenAPI document."""
    return {
        "name": name,
        "in": "header",
        "required": False,
        "description": description,
        "schema": {"type": "string", **schema},
    }


IDEMPOTENCY_KEY = header_parameter(
    "Idempotency-Key",
    "A repeated request with the same key gets the stored response and changes nothing again. 422 if the key was used "
    "with another request, 409 while the first request runs.",
    minLength=1,
    maxLength=255,
    pattern=VISIBLE,
)
IF_NONE_MATCH = header_parameter("If-None-Match", "The ETag of an earlier response: 304 if nothing has changed since.")


class ReasonRequest(RequestBody):
    """An optional reason, for the log. The actor is the person of the token."""

    reason: Prose | None = None


OptionalReason = Annotated[ReasonRequest | None, Body()]


class CancelRequest(ReasonRequest):
    force: bool = Field(False, description="Cancel a running job at once instead of requesting it from its worker.")


class DecisionRequest(ReasonRequest):
    digest: str | None = Field(
        None,
        min_length=8,
        max_length=200,
        description="Digest of the approval request that was reviewed, or its first 8 or more characters. "
        "409 APPROVAL_CHANGED if the job requests something else now.",
    )


class RequeueRequest(ReasonRequest):
    payload: dict[str, Any] | None = Field(default=None, description="Replaces the payload; null keeps it.")


class SignalRequest(RequestBody):
    name: Name
    data: Any = Field(None, description="JSON value that the waiting handler receives.")


class TransitionRequest(RequestBody):
    new_status: Name
