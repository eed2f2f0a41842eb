"""Named queries: what both dialects can share is written once, and every text is a statement of its database."""

import re
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import apsw
import apsw.ext
import asyncpg
import pytest

from detent.core.contract.builtin import CONTRACTS
from detent.stores import postgres, sqlite
from detent.stores.postgres.dialect import compiled, queries
from detent.stores.sql_files import load_queries
from detent.stores.sqlite.store import SqliteStore
from detent.stores.sqlite.tx import SQL
from support.servers.databases import house, newest

SIMILAR = {
    "insert_event": "hot path: Postgres stores the transaction, and reads the lane in the same probe",
    "cancellable_children": "Postgres locks raw rows, SQLite reads the view",
}
"""Queries that are written in both dialects although they look alike -> why."""
ON_POSTGRES = {name: text for name, text in queries(False).items() if not name.startswith(("part_", "list_"))}
_TOKEN = re.compile(r":?\w+|->>|[^\s\w()]")
_SPELLING = (
    (r"::\w+(\[\])?", ""),
    (r"json_\w*(each|elements)(_text)?\b", "json_each"),
    (r"= ANY \(ARRAY\(SELECT (json_each\(\S+?\))\)\)", r"IN (SELECT value FROM \1)"),
    (r"FOR UPDATE( SKIP LOCKED)?", ""),
    (r"\bxid\b", "n"),
)
"""What the dialects spell differently -> one spelling."""


def written(package: Any) -> dict[str, str]:
    return load_queries(package.__name__)


def likeness(one: str, other: str) -> float:
    """1.0: equal but for what the dialects spell differently."""
    tokens = []
    for text in (one, other):
        for pattern, spelling in _SPELLING:
            text = re.sub(pattern, spelling, text)
        tokens.append(_TOKEN.findall(text))
    return SequenceMatcher(None, *tokens, autojunk=False).ratio()


def test_a_shared_query_is_in_no_dialect() -> None:
    assert load_queries().keys() & {*written(postgres), *written(sqlite)} == set()


def test_queries_that_differ_by_spelling_are_shared() -> None:
    ours, theirs = written(postgres), written(sqlite)
    assert {name for name in ours.keys() & theirs if likeness(ours[name], theirs[name]) > 0.85} == SIMILAR.keys()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "DELETE FROM t WHERE id IN (SELECT value::uuid FROM json_array_elements_text(:ids::json))",
            "DELETE FROM t WHERE id IN (SELECT value FROM json_each(:ids))",
        ),
        (
            "SELECT a FROM t WHERE b = ANY (ARRAY(SELECT json_array_elements_text(:names::json))) LIMIT 1 FOR UPDATE",
            "SELECT a FROM t WHERE b IN (SELECT value FROM json_each(:names)) LIMIT 1",
        ),
    ],
)
def test_spelling_is_recognized(one: str, other: str) -> None:
    assert likeness(one, other) == 1.0
    assert likeness(one, other.replace(" t ", " another ")) < 1.0


def test_every_placeholder_is_filled() -> None:
    """{where} is filled by the caller."""
    texts = [*ON_POSTGRES.values(), *SQL.values()]
    assert {found for text in texts for found in re.findall(r"\{[a-z_]+", text)} == {"{where"}


def test_both_dialects_have_the_shared_queries() -> None:
    assert load_queries().keys() <= ON_POSTGRES.keys() & SQL.keys()


def test_sqlite_accepts_every_query(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "jobs.db"), inline=True, synchronous="OFF")
    store.open_now(CONTRACTS)
    store.close_now()
    connection = apsw.Connection(str(tmp_path / "jobs.db"))
    for name, text in SQL.items():
        try:
            apsw.ext.query_info(connection, text.replace("{where}", "true"))
        except apsw.SQLError as error:
            pytest.fail(f"{name}: {error}")


@pytest.mark.anyio
async def test_postgres_accepts_every_query() -> None:
    database = house(newest()).database()
    connection: Any = await asyncpg.connect(database.url)
    try:
        for name, text in ON_POSTGRES.items():
            try:
                await connection.prepare(compiled(text.replace("{where}", "true")).text)
            except asyncpg.PostgresError as error:
                pytest.fail(f"{name}: {error}")
    finally:
        await connection.close()
        database.release()
