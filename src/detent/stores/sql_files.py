"""Reads .sql files of named queries: `-- name: x` starts a query, which ends at the next such line.

Every table is written as `detent.jobs`; `in_namespace` puts a Postgres schema or the prefix of SQLite there.
"""

from functools import cache
from importlib.resources import files


def load_migrations(package: str) -> list[tuple[int, str]]:
    """(number, SQL) in order: number 1 is the schema of the package, the files of its folder migrations follow.

    The schema is schema.sql and, if there are any, schema_*.sql.
    """
    folder = files(package)
    schema = sorted(f.name for f in folder.iterdir() if _is_schema(f.name))
    later = folder.joinpath("migrations")
    numbered = [(int(f.name[:4]), f) for f in later.iterdir() if f.name.endswith(".sql")] if later.is_dir() else []
    first = "\n".join(folder.joinpath(name).read_text("utf-8") for name in schema)
    return [(1, first), *((number, file.read_text("utf-8")) for number, file in sorted(numbered))]


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
