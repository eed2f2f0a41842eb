"""Reads .sql files of named queries (`-- name: x` starts a query, which ends at the next such line) and migrations.

Every table is written as `detent.jobs`; `in_namespace` puts a Postgres schema or the prefix of SQLite there.
"""

from functools import cache
from importlib.resources import files
from typing import NamedTuple

from detent.core.errors import SchemaMismatch

_BREAKING = "-- breaking"
SCHEMA_CHANGED = (
    "the tables in the database are not those of this version of Detent ({}): they were upgraded by a newer version, or"
    " changed by hand; restart this process with the newer version"
)
"""The message of SchemaMismatch in a process that was running when the tables changed."""


def load_migrations(package: str) -> list[tuple[int, str]]:
    """(number, SQL) in order: number 1 is the schema of the package, the files of its folder migrations follow.

    The schema is schema.sql and, if there are any, schema_*.sql. A migration whose first line is `-- breaking` also
    records its number as a negative one, so that older programs refuse the database (ADR 0018).
    """
    folder = files(package)
    schema = sorted(f.name for f in folder.iterdir() if _is_schema(f.name))
    later = folder.joinpath("migrations")
    names = sorted(f.name for f in later.iterdir() if f.name.endswith(".sql")) if later.is_dir() else []
    first = "\n".join(folder.joinpath(name).read_text("utf-8") for name in schema)
    return [(1, first), *(_migration(int(name[:4]), later.joinpath(name).read_text("utf-8")) for name in names)]


def _migration(number: int, text: str) -> tuple[int, str]:
    if not text.startswith(_BREAKING):
        return number, text
    return number, f"{text.rstrip()}\nINSERT INTO detent.schema (version) VALUES ({-number});"


class SchemaState(NamedTuple):
    """What a database says of its schema.

    version: the number of the last migration, 0 without tables of Detent. oldest: the number that a program must know
    at least. outdated: the tables have the layout of a development version, which no migration reads.
    """

    version: int
    oldest: int = 0
    outdated: bool = False

    def needs_migration(self, newest: int, *, may_migrate: bool) -> bool:
        """True if the schema is older than this program's. Raises SchemaMismatch if the program cannot use it."""
        have = self.version
        if self.outdated:
            raise SchemaMismatch(
                "the tables were made by a development version of Detent and cannot be read or upgraded; use a new"
                " database, or remove these tables",
                have=have,
                want=newest,
            )
        if have >= newest:
            # Older programs work with additive migrations; a breaking one records the oldest schema it allows.
            if self.oldest <= newest:
                return False
            message = f"the database has schema {have}, this Detent knows {newest}; upgrade Detent"
            raise SchemaMismatch(message, have=have, want=newest)
        if not may_migrate:
            what = f"has schema {have}" if have else "is empty"
            message = f"the database {what}, this Detent needs schema {newest}; run `detent migrate`"
            raise SchemaMismatch(message, have=have, want=newest)
        return True


def _is_schema(name: str) -> bool:
    return name.startswith("schema") and name.endswith(".sql")


def in_namespace(sql: str, namespace: str) -> str:
    """The statement with the tables of one installation: namespace is a schema and a dot, or a prefix of the names."""
    return sql.replace("detent.", namespace)


@cache
def load_queries(package: str = __name__.rpartition(".")[0]) -> dict[str, str]:
    """Query name -> text, for all .sql files of a package. Lines that start with `--` are left out of the text."""
    queries: dict[str, list[str]] = {}
    lines: list[str] = []
    for file in files(package).iterdir():
        if not file.name.endswith(".sql") or _is_schema(file.name):
            continue
        for line in file.read_text("utf-8").splitlines():
            if line.startswith("-- name:"):
                lines = queries.setdefault(line.removeprefix("-- name:").strip(), [])
            elif not line.startswith("--"):
                lines.append(line)
    return {name: "\n".join(body).strip().rstrip(";") for name, body in queries.items()}
