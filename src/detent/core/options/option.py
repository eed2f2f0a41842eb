"""One option of a job or a schedule: its default, its help text, and the JSON schema of its values."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

JsonSchema = Mapping[str, Any]
MAX_NAME = 200
PRINTABLE = r"^[^\x00-\x1f\x7f]*[^\x00-\x20\x7f\s][^\x00-\x1f\x7f]*$"
NAME: JsonSchema = {"type": "string", "minLength": 1, "maxLength": MAX_NAME, "pattern": PRINTABLE}
NAME_OR_EMPTY: JsonSchema = {**NAME, "minLength": 0, "pattern": f"^$|{PRINTABLE}"}
LINE: JsonSchema = {"type": "string", "minLength": 1, "maxLength": 200, "pattern": r"^[ -~]+$"}
OBJECT: JsonSchema = {"type": "object", "additionalProperties": True}
FLAG: JsonSchema = {"type": "boolean"}
PYTHON, COMMAND, REST = "python", "command", "rest"
_OPTION = "option"
_NAME, _SURROGATE = re.compile(PRINTABLE), re.compile("[\ud800-\udfff]")


def is_name(value: Any) -> bool:
    """Whether it is text without control characters that is not blank. Half a surrogate pair is not text."""
    return isinstance(value, str) and bool(_NAME.fullmatch(value)) and not _SURROGATE.search(value)


def integer(low: int, high: int) -> JsonSchema:
    return {"type": "integer", "minimum": low, "maximum": high}


def number(low: float, high: float | None = None) -> JsonSchema:
    return {"type": "number", "minimum": low} | ({} if high is None else {"maximum": high})


@dataclass(frozen=True, slots=True)
class Option:
    """What the interfaces need to know about an option besides its type and its default."""

    help: str
    schema: JsonSchema
    name: str = ""
    """Its name in Python and on the command line; default: the name of the field."""
    interfaces: tuple[str, ...] = (PYTHON, COMMAND, REST)
    """Those that have this option."""
    code: str = ""
    """The error code for a number out of its range."""
    convert: Callable[[Any], Any] | None = None
    """Makes the stored value of one from Python."""

    def stored(self, value: Any) -> Any:
        """A value from Python in the form of the column."""
        return value if self.convert is None or value is None else self.convert(value)


def option(default: Any, help: str, schema: JsonSchema, **rest: Any) -> Any:
    """A dataclass field that is an option; `rest` are the further fields of Option."""
    return field(default=default, metadata={_OPTION: Option(help, schema, **rest)})


def options_of(table: type, interface: str) -> dict[str, Option]:
    """The options of a dataclass that an interface has, by field: the name in REST and of the column."""
    rows = {row.name: row.metadata[_OPTION] for row in fields(table) if _OPTION in row.metadata}
    return {name: replace(row, name=row.name or name) for name, row in rows.items() if interface in row.interfaces}


def fields_of_python(table: type, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with the names and units of Python as fields of the table; other names are kept."""
    field_of = {row.name: (name, row) for name, row in options_of(table, PYTHON).items()}
    renamed = {}
    for name, value in options.items():
        target, row = field_of.get(name, (name, None))
        renamed[target] = value if row is None else row.stored(value)
    return renamed
