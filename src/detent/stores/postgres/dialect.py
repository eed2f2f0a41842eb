"""Query texts for Postgres: `:name` parameters become `$n`, {clock} (the current time) and {began} (the start of the
transaction) are filled in, claim statements are composed of named parts."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from detent.core.job import TIMEOUT_GRACE
from detent.stores.lanes import FIRST_SUSPECT_LANE, LANE_PLACEHOLDERS
from detent.stores.sql_files import in_namespace, load_queries
from detent.stores.tx_queries import fill_placeholders

from .names import RAW_ASSIGNMENTS, RAW_COLUMNS

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


_PROMOTES = {"{promoted}": "(SELECT count(*)::int FROM promoted)", "{version}": "(SELECT version FROM t)"}
_ORDINARY = {"{first}": "-1::bigint", "{last}": str(ORDINARY_LANES[1]), "{closed}": "", **_PROMOTES}
_SUSPECTS = {"{first}": f"{SUSPECT_LANES[0]}::bigint", "{last}": str(SUSPECT_LANES[1]), "{closed}": "", **_PROMOTES}
_FULL_CELLS = "\n        OR (h.lane & {cell_mask}) = ANY (CAST(:closed::text[] AS bigint[]))"
"""Skips the cells in which a limit was reached a moment ago."""
_CONSTANTS = {
    **LANE_PLACEHOLDERS,
    "{extended_lease}": "greatest(j.lease_until, least({clock} + :lease, j.updated_at + {longest_lease}))",
    "{times_out_at}": "updated_at + timeout_ms * 1000",
    "{longest_lease}": f"timeout_ms * 1000 + {TIMEOUT_GRACE}",
}
_FORMS = {
    "texts": "json_array_elements_text(:{0}::json)",
    "rows": "json_array_elements(:{0}::json)",
    "uuid": "CAST({0} AS uuid)",
    "uuid_or_null": f"CASE WHEN {{0}} ~ '^{_UUID.pattern}$' THEN CAST({{0}} AS uuid) END",
    "any": "= ANY (ARRAY({0}))",
    # OFFSET 0: the planner may not turn the probes into a join that reads the whole table.
    "join_job": "CROSS JOIN LATERAL (SELECT * FROM detent.job_list WHERE id = CAST({0} AS uuid) OFFSET 0) j",
    "after": "{0}.xid >=",
    "until": "{0}.xid <",
    "due_in": """CAST(substring({0} FROM '^\\{"due_at":([0-9]+)') AS bigint)""",
}
"""Form -> its text, see fill_placeholders."""
_FROM_LANE = {"{version}": "(SELECT version FROM t)", "{lock_ms}": "20"}
_USED_UP = "(SELECT count(*)::int FROM locked WHERE NOT fits)"
"""The number of meters with too little room."""
_WALK = ("part_promote", "part_walk")
_CLAIM_STATEMENTS: dict[str, tuple[tuple[str, ...], str, dict[str, str]]] = {
    "settle_and_claim": (
        ("part_now", "part_settle", "part_done", *_WALK, "part_pick", "part_claim", "part_log_both"),
        "part_answer",
        _ORDINARY,
    ),
    # While a lane is the only one with jobs: no walk and no promotion, a fifth of the cost. See LaneCache.only_lane.
    "settle_and_claim_from_lane": (
        ("part_now_lane", "part_settle_waiting", "part_done", "part_claim_lane", "part_log_both"),
        "part_answer",
        {**_FROM_LANE, "{promoted}": "0", "{wanted}": "(SELECT wanted FROM t)"},
    ),
    # The walk starts at rank :first instead of the highest priority.
    "settle_and_claim_from_rank": (
        ("part_now", "part_settle", "part_done", *_WALK, "part_pick", "part_claim", "part_log_both"),
        "part_answer",
        _ORDINARY | {"{first}": ":first::bigint"},
    ),
    # For workers with nothing to settle: every CTE costs time even if it has no rows.
    "claim": (
        ("part_now", *_WALK, "part_pick", "part_claim", "part_log_claimed"),
        "part_answer_claimed",
        _ORDINARY,
    ),
    "claim_suspect": (
        ("part_now", *_WALK, "part_pick", "part_claim", "part_log_claimed"),
        "part_answer_claimed",
        _SUSPECTS,
    ),
    "claim_by_id": (
        ("part_now_by_id", "part_settle", "part_done", "part_claim_by_id", "part_log_both"),
        "part_answer",
        {"{promoted}": "0", "{version}": "NULL::bigint"},
    ),
    # A claim within limits takes two statements. The first settles, promotes and reads the lanes, the leased jobs and
    # the meters; claim_plan.py computes quotas per lane; the second claims them if the meters still allow it.
    "settle_and_inspect": (
        ("part_now", "part_settle", "part_done", *_WALK, "part_log_settled", "part_inspect"),
        "part_answer_inspection",
        {"{first}": ":first::bigint", "{last}": ":last::bigint", "{closed}": _FULL_CELLS},
    ),
    # Both in one, while a lane is the only one with jobs: planned with the meters as the last claim left them.
    "settle_and_claim_limited": (
        (
            *("part_now_lane", "part_settle_waiting", "part_done", "part_meters", "part_claim_lane", "part_meter"),
            "part_log_both",
        ),
        "part_answer",
        {
            **_FROM_LANE,
            "{promoted}": _USED_UP,
            "{wanted}": f"(SELECT CASE {_USED_UP} WHEN 0 THEN wanted ELSE 0 END FROM t)",
        },
    ),
    # Here the column of promoted jobs is the number of meters that were used up.
    "claim_limited": (
        ("part_now_limited", "part_meters", "part_pick_limited", "part_claim", "part_meter", "part_log_claimed"),
        "part_answer_claimed",
        {"{promoted}": _USED_UP},
    ),
}
"""Statement -> its CTEs, its final SELECT, and what its placeholders stand for. See claim_parts.sql."""


def claim_statements(parts: Mapping[str, str]) -> dict[str, str]:
    """The claim statements, composed of named parts."""
    statements = {}
    lists = {f"{{{name.removeprefix('list_')}}}": text for name, text in parts.items() if name.startswith("list_")}
    for name, (ctes, answer, placeholders) in _CLAIM_STATEMENTS.items():
        text = "WITH RECURSIVE " + ", ".join(parts[part] for part in ctes) + "\n" + parts[answer]
        for placeholder, value in {**lists, **placeholders, **_CONSTANTS}.items():
            text = text.replace(placeholder, value)
        statements[name] = text
    return statements


@cache
def queries(own_clock: bool, schema: str = DEFAULT_SCHEMA) -> dict[str, str]:
    """All named queries. own_clock: the time is the parameter :now (tests), else the clock of the database."""
    postgres = load_queries(__package__)
    texts = {**load_queries(), **postgres, **claim_statements(postgres)}
    clock, began = (PARAMETER_CLOCK, PARAMETER_CLOCK) if own_clock else (DATABASE_CLOCK, TRANSACTION_CLOCK)
    placeholders = {
        **_CONSTANTS,
        "{clock}": clock,
        "{began}": began,
        "{raw_columns}": RAW_COLUMNS,
        "{raw_assignments}": RAW_ASSIGNMENTS,
        "{for_update}": "FOR UPDATE",
        "{for_update_skip_locked}": "FOR UPDATE SKIP LOCKED",
        "{probe}": "JOIN",
    }
    filled = {name: fill_placeholders(text, placeholders, _FORMS) for name, text in texts.items()}
    return {name: in_namespace(text, namespace_of(schema)) for name, text in filled.items()}
