"""Named values in Postgres: `:name` becomes `$n`, once per query; and the clock the statements read."""

import re
from dataclasses import dataclass
from functools import cache

from detent.stores.sql_files import load_queries
from detent.stores.tx_queries import filled

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
    own = load_queries(__package__)
    texts = {**load_queries(), **own, **_claims(own["settle_and_claim"], own["look_rest"], own["claim_limited"])}
    clock = GIVEN_CLOCK if own_clock else DATABASE_CLOCK
    return {name: filled(text).replace("{clock}", clock) for name, text in texts.items()}


def _claims(settle_and_claim: str, look: str, taking: str) -> dict[str, str]:
    """A plain cycle, one that begins at a lower priority, one that has nothing to settle, and the two halves of a
    planned claim, made of its parts."""
    return {
        "settle_and_claim": _walking(settle_and_claim, "-1::bigint"),
        "settle_and_claim_in_turn": _walking(settle_and_claim, ":first::bigint"),
        "claim": _walking(_bare(settle_and_claim), "-1::bigint"),
        "look": _walking(_before(settle_and_claim, "picked"), ":first::bigint", _CLOSED)
        + look.replace("{logged}", _logging(settle_and_claim, "settled")),
        "claim_limited": taking.replace("{claimed}", _part(settle_and_claim, "claimed"))
        .replace("{logged}", _logging(settle_and_claim, "claimed"))
        .replace("{answer}", _answer(settle_and_claim).replace("FROM promoted)", "FROM locked WHERE NOT fits)")),
    }


_CLOSED = "\n        OR (h.lane & 36028797018963967) = ANY (CAST(:closed::text[] AS bigint[]))"


def _walking(text: str, first: str, closed: str = "") -> str:
    return text.replace("{first}", first).replace("{closed}", closed)


def _before(settle_and_claim: str, part: str) -> str:
    """The statement up to where this part of it begins."""
    return settle_and_claim[: _start(settle_and_claim, part)]


def _part(settle_and_claim: str, part: str) -> str:
    """One part of the statement, so that a planned claim writes its rows word for word like a plain one."""
    start = _start(settle_and_claim, part)
    return settle_and_claim[start : settle_and_claim.index("\n), ", start + 1)]


def _logging(settle_and_claim: str, rows: str) -> str:
    """The part that writes events, for one kind of rows only."""
    start = _start(settle_and_claim, "logged")
    lines = settle_and_claim[start : settle_and_claim.index("\n)\n", start + 1)].splitlines()
    own = next(line for line in lines if f"FROM {rows}" in line).removesuffix(") e")
    head = lines[: next(number for number, line in enumerate(lines) if "FROM settled" in line)]
    return "\n".join([*head, f"{own}) e"])


def _bare(settle_and_claim: str) -> str:
    """The claim alone: a worker that waits has nothing to settle, and every part costs before its first row."""
    begins, goes_on = _start(settle_and_claim, "held"), _start(settle_and_claim, "due")
    return f"{settle_and_claim[:begins]}{_before(settle_and_claim, 'logged')[goes_on:]}{_logging(settle_and_claim, 'claimed')}\n)\n{_answer(settle_and_claim)}"


def _answer(settle_and_claim: str) -> str:
    """What the statement tells where nothing was settled."""
    head, _, claims = settle_and_claim[settle_and_claim.index("\n)\nSELECT NULL") + 3 :].partition("\nUNION ALL\n")
    told = re.sub(r"CASE WHEN .* END,", "NULL,", head, flags=re.DOTALL)
    told = told.replace("(SELECT count(*)::int FROM settled)", "0")
    return f"{told}\nUNION ALL\n{claims}"


def _start(settle_and_claim: str, part: str) -> int:
    return settle_and_claim.index(f"\n), {part} AS ")
