"""Reads .sql files of named queries: `-- name: x` starts a query, which ends at the next such line."""

from functools import cache
from importlib.resources import files


@cache
def load_queries(package: str = __name__.rpartition(".")[0]) -> dict[str, str]:
    """Query name -> text, for all .sql files of a package. Lines that start with `--` are left out of the text."""
    queries: dict[str, list[str]] = {}
    lines: list[str] = []
    for file in files(package).iterdir():
        if not file.name.endswith(".sql"):
            continue
        for line in file.read_text("utf-8").splitlines():
            if line.startswith("-- name:"):
                lines = queries.setdefault(line.removeprefix("-- name:").strip(), [])
            elif not line.startswith("--"):
                lines.append(line)
    return {name: "\n".join(body).strip().rstrip(";") for name, body in queries.items()}
