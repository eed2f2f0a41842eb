"""Named values in Postgres: `:name` becomes `$n`, once per query; and the clock the statements read."""

import re
from dataclasses import dataclass
from functools import cache

from ..cold import filled
from ..named_sql import load_queries

DATABASE_CLOCK = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
GIVEN_CLOCK = ":now::bigint"
_LOCKS = re.compile(r"\s+FOR UPDATE( SKIP LOCKED)?")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_VALUE = re.compile(r"(?<![:\w]):([a-z_]+)")


def is_uuid(text: str) -> bool:
    """As Detent writes them: the server would take capitals too, and answer with another text."""
    return isinstance(text, str) and _UUID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Query:
    """Text for the server and the values it wants, in order."""

    text: str
    names: tuple[str, ...]


@cache
def compiled(text: str) -> Query:
    names = tuple(dict.fromkeys(_VALUE.findall(text)))
    return Query(_VALUE.sub(lambda found: f"${names.index(found[1]) + 1}", text), names)


@cache
def reading(text: str) -> str:
    """The same query without its locks, for transactions that may not write."""
    return _LOCKS.sub("", text)


@cache
def queries(own_clock: bool) -> dict[str, str]:
    """Every named query, reading the database's clock or the one a test brings along as :now."""
    texts = {**load_queries(), **load_queries(__package__)}
    clock = GIVEN_CLOCK if own_clock else DATABASE_CLOCK
    return {name: filled(text).replace("{clock}", clock) for name, text in texts.items()}
