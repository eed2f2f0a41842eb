"""Query texts for Postgres: `:name` parameters become `$n`, {clock} (the current time) and {began} (the start of the
transaction) are filled in, claim statements are assembled."""

import re
from dataclasses import dataclass
from functools import cache

from detent.stores.lanes import FIRST_SUSPECT_LANE
from detent.stores.sql_files import in_namespace, load_queries
from detent.stores.tx_queries import fill_placeholders

DATABASE_CLOCK = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
TRANSACTION_CLOCK = "(extract(epoch FROM transaction_timestamp()) * 1000000)::bigint"
PARAMETER_CLOCK = ":now::bigint"
_LOCKS = re.compile(r"\s+FOR UPDATE( SKIP LOCKED)?")
ORDINARY_LANES = (-1, FIRST_SUSPECT_LANE - 1)
"""Where the walk of an ordinary claim starts and ends: (position before the first lane, last lane)."""
SUSPECT_LANES = (FIRST_SUSPECT_LANE - 1, (1 << 63) - 1)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")


def is_uuid(text: str) -> bool:
    """True for lower-case UUIDs only: the server accepts upper case too, but returns another text."""
    return isinstance(text, str) and _UUID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Query:
    """A query text for asyncpg, and the names of its parameters in order."""

    text: str
    names: tuple[str, ...]


@cache
def compiled(text: str) -> Query:
    names = tuple(dict.fromkeys(_PARAMETER.findall(text)))
    return Query(_PARAMETER.sub(lambda match: f"${names.index(match[1]) + 1}", text), names)


@cache
def without_locks(text: str) -> str:
    """The query without FOR UPDATE, for read-only transactions."""
    return _LOCKS.sub("", text)


DEFAULT_SCHEMA = "detent"


def namespace_of(schema: str) -> str:
    """What stands before the name of a table: the quoted schema and a dot."""
    return "detent." if schema == DEFAULT_SCHEMA else '"' + schema.replace('"', '""') + '".'


@cache
def queries(own_clock: bool, schema: str = DEFAULT_SCHEMA) -> dict[str, str]:
    """All named queries. own_clock: the time is the parameter :now (tests), else the clock of the database."""
    postgres = load_queries(__package__)
    claims = _claim_statements(postgres["settle_and_claim"], postgres["inspect_rest"], postgres["claim_limited"])
    texts = {**load_queries(), **postgres, **claims}
    clock, began = (PARAMETER_CLOCK, PARAMETER_CLOCK) if own_clock else (DATABASE_CLOCK, TRANSACTION_CLOCK)
    return {
        name: in_namespace(fill_placeholders(text), namespace_of(schema))
        .replace("{clock}", clock)
        .replace("{began}", began)
        for name, text in texts.items()
    }


def _claim_statements(settle_and_claim_sql: str, inspect_sql: str, claim_limited_sql: str) -> dict[str, str]:
    """The variants of settle_and_claim.sql.

    settle_and_claim_from_rank: the walk starts at rank :first instead of the highest priority.
    claim: without the CTEs that settle.
    claim_suspect: the same, over the lanes of suspects.
    settle_and_inspect, claim_limited: the two statements of a claim within limits.
    """
    head_and_claims = _result_without_settled(settle_and_claim_sql)
    return {
        "settle_and_claim": _with_walk(settle_and_claim_sql, "-1::bigint"),
        "settle_and_claim_from_rank": _with_walk(settle_and_claim_sql, ":first::bigint"),
        "claim": _with_walk(_without_settling(settle_and_claim_sql), "-1::bigint"),
        "claim_suspect": _with_walk(
            _without_settling(settle_and_claim_sql), f"{SUSPECT_LANES[0]}::bigint", last=str(SUSPECT_LANES[1])
        ),
        "settle_and_inspect": _with_walk(
            _before_cte(settle_and_claim_sql, "picked"), ":first::bigint", _FULL_CELLS, last=":last::bigint"
        )
        + inspect_sql.replace("{logged}", _logged_cte(settle_and_claim_sql, "settled")),
        "claim_limited": claim_limited_sql.replace("{claimed}", _cte(settle_and_claim_sql, "claimed"))
        .replace("{logged}", _logged_cte(settle_and_claim_sql, "claimed"))
        .replace("{answer}", head_and_claims.replace("FROM promoted)", "FROM locked WHERE NOT fits)")),
    }


_FULL_CELLS = "\n        OR (h.lane & 36028797018963967) = ANY (CAST(:closed::text[] AS bigint[]))"
"""Skips the cells in which a limit was reached a moment ago."""


def _with_walk(sql: str, first: str, closed: str = "", last: str = str(ORDINARY_LANES[1])) -> str:
    """Fill in where the walk over the lanes starts and ends, and which lanes it skips."""
    return sql.replace("{first}", first).replace("{closed}", closed).replace("{last}", last)


def _before_cte(sql: str, name: str) -> str:
    return sql[: _cte_start(sql, name)]


def _cte(sql: str, name: str) -> str:
    """One CTE of the statement, so that claims within limits write their rows exactly like plain ones."""
    start = _cte_start(sql, name)
    return sql[start : sql.index("\n), ", start + 1)]


def _logged_cte(settle_and_claim_sql: str, rows: str) -> str:
    """The CTE that inserts events, reduced to the rows of `settled` or of `claimed`."""
    start = _cte_start(settle_and_claim_sql, "logged")
    lines = settle_and_claim_sql[start : settle_and_claim_sql.index("\n)\n", start + 1)].splitlines()
    select = next(line for line in lines if f"FROM {rows}" in line).removesuffix(") e")
    head = lines[: next(number for number, line in enumerate(lines) if "FROM settled" in line)]
    return "\n".join([*head, f"{select}) e"])


def _without_settling(sql: str) -> str:
    """The claim alone, for workers with nothing to settle: every CTE costs time even if it has no rows."""
    before_held, from_due_on = _before_cte(sql, "held"), _before_cte(sql, "logged")[_cte_start(sql, "due") :]
    return f"{before_held}{from_due_on}{_logged_cte(sql, 'claimed')}\n)\n{_result_without_settled(sql)}"


def _result_without_settled(settle_and_claim_sql: str) -> str:
    """The final SELECT of the statement, with constants instead of what it reads from the CTE `settled`."""
    start = settle_and_claim_sql.index("\n)\nSELECT NULL") + 3
    head, _, claims = settle_and_claim_sql[start:].partition("\nUNION ALL\n")
    head = re.sub(r"CASE WHEN .* END,", "NULL,", head, flags=re.DOTALL)
    head = head.replace("(SELECT count(*)::int FROM settled)", "0")
    return f"{head}\nUNION ALL\n{claims}"


def _cte_start(sql: str, name: str) -> int:
    return sql.index(f"\n), {name} AS ")
