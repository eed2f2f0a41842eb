"""`alembic revision --autogenerate` in an application that shares its database with Detent."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata, produce_migrations
from alembic.migration import MigrationContext
from sqlalchemy import Column, Connection, Integer, MetaData, Table, Text, create_engine

from support.servers.databases import Database, house, newest

UNFILTERED = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")
"""Without the filter, SQLAlchemy warns about indexes of Detent that it cannot read."""
PAGES = Path(__file__).parents[2] / "docs" / "operate"


def documented_filter(page: str, folder: Path) -> Callable[..., bool]:
    """The function include_name of a page of the documentation."""
    text = (PAGES / page).read_text("utf-8")
    (source,) = re.findall(r"```python\n(def include_name.*?\n)(?:\n\n|```)", text, re.DOTALL)
    file = folder / "include_name.py"
    file.write_text(source)
    return run_path(str(file))["include_name"]  # type: ignore[no-any-return]


@pytest.fixture
def database() -> Iterator[Database]:
    home = house(newest())
    database = home.database()
    yield database
    database.sql("DROP TABLE IF EXISTS public.jobs, public.orders; DROP SCHEMA IF EXISTS sales CASCADE")
    database.release()


@pytest.fixture
def connection(database: Database) -> Iterator[Connection]:
    """As an application's own role: the tests' role is called like the schema, whose path would begin with it."""
    url = database.url.replace("postgresql://", "postgresql+psycopg://")
    engine = create_engine(url, connect_args={"options": "-c search_path=public"})
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def application() -> MetaData:
    """Models with tables in two schemas; one has a name that Detent uses too."""
    metadata = MetaData()
    Table("jobs", metadata, Column("id", Integer, primary_key=True), Column("name", Text))
    Table("orders", metadata, Column("id", Integer, primary_key=True), schema="sales")
    return metadata


def proposed(connection: Connection, metadata: MetaData, **options: Any) -> list[Any]:
    context = MigrationContext.configure(connection, opts=options)
    operations = produce_migrations(context, metadata).upgrade_ops
    differences: list[Any] = compare_metadata(context, metadata)
    assert operations is not None and len(operations.ops) <= len(differences)
    return differences


def test_nothing_is_proposed_about_detent(connection: Connection, tmp_path: Path) -> None:
    metadata = application()
    connection.exec_driver_sql("CREATE SCHEMA sales")
    metadata.create_all(connection)
    include_name = documented_filter("postgres.md", tmp_path)
    assert proposed(connection, metadata, include_schemas=True, include_name=include_name) == []
    one_schema = MetaData()
    metadata.tables["jobs"].to_metadata(one_schema)
    assert proposed(connection, one_schema, include_schemas=False) == []
    connection.commit()


@UNFILTERED
def test_the_filter_is_what_keeps_detent_out(connection: Connection) -> None:
    """Without it, and with all schemas, all of Detent would be dropped."""
    dropped = {
        change[1].schema
        for change in proposed(connection, MetaData(), include_schemas=True)
        if change[0] == "remove_table"
    }
    assert dropped == {"detent"}


def test_changes_of_the_application_are_still_proposed(connection: Connection, tmp_path: Path) -> None:
    changes = proposed(
        connection, application(), include_schemas=True, include_name=documented_filter("postgres.md", tmp_path)
    )
    assert sorted((kind, table.fullname) for kind, table in changes) == [
        ("add_table", "jobs"),
        ("add_table", "sales.orders"),
    ]


@UNFILTERED
def test_nothing_is_proposed_about_detent_in_a_file(tmp_path: Path) -> None:
    from detent.core.contract.builtin import CONTRACTS
    from detent.stores.sqlite.store import SqliteStore

    path = tmp_path / "jobs.db"
    store = SqliteStore(str(path), inline=True)
    store.open_now(CONTRACTS)
    store.close_now()
    metadata = MetaData()
    application().tables["jobs"].to_metadata(metadata)
    engine = create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        metadata.create_all(connection)
        assert len(proposed(connection, metadata)) > 30
        assert proposed(connection, metadata, include_name=documented_filter("sqlite.md", tmp_path)) == []
    engine.dispose()
