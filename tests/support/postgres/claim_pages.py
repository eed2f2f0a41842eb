"""Writes docs/sql: the claim statements of Postgres as they are sent, with the comments of their parts.

`make sql` writes the pages; tests/test_tidy.py compares them with the statements.
"""

import re
from importlib.resources import files
from pathlib import Path

from detent.stores.postgres import dialect
from detent.stores.postgres.dialect import DATABASE_CLOCK, claim_statements, compiled

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "sql"
WIDTH = 120
USES = {
    "settle_and_claim": "One round of a worker: records successes and claims the next jobs, in one statement.",
    "settle_and_claim_from_lane": "The same while one lane is the only one with jobs: without the walk and promotion.",
    "settle_and_claim_from_rank": "The same, starting at a given rank instead of the highest priority.",
    "claim": "A round of a worker that has nothing to settle.",
    "claim_suspect": "Claims a suspect: a job whose last executions were lost. Its worker runs it alone.",
    "claim_by_id": "Claims the jobs that messages of a stream name, and records successes.",
    "settle_and_inspect": "Within limits, first half: records successes and reads lanes, leased jobs and meters.",
    "settle_and_claim_limited": "Within limits, both halves in one while one lane is the only one with jobs.",
    "claim_limited": "Within limits, second half: claims the planned numbers if the meters still allow them.",
}
"""Statement -> when it runs."""
_MARK = "--#"


def pages() -> dict[str, str]:
    """File name -> text."""
    parts, comments = _commented_parts()
    statements = claim_statements(parts)
    assert statements.keys() == USES.keys(), "describe every statement in USES"
    texts = {f"{name}.sql": _page(name, text, comments) for name, text in statements.items()}
    return {"README.md": _index(), **texts}


def code(text: str) -> str:
    """A statement without comments and with single spaces, to compare what is executed."""
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("--"))
    return re.sub(r"\s+", " ", " ".join(lines)).strip()


def _commented_parts() -> tuple[dict[str, str], list[str]]:
    """Part -> its text with a mark in place of each comment line, and these lines by number: placeholders are filled
    in the statement only, because their values would break comments."""
    source = files(dialect.__package__).joinpath("claim_parts.sql").read_text("utf-8")
    comments: list[str] = []
    parts: dict[str, str] = {}
    for block in source.split("-- name: ")[1:]:
        name, _, body = block.partition("\n")
        lines = []
        for line in body.strip().rstrip(";").splitlines():
            if line.startswith("--"):
                comments.append(line)
                line = f"{_MARK}{len(comments) - 1}"
            lines.append(line)
        parts[name.strip()] = "\n" + "\n".join(lines)
    return parts, comments


def _page(name: str, text: str, comments: list[str]) -> str:
    text = text.replace("{clock}", DATABASE_CLOCK)
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    shown = [comments[int(line.removeprefix(_MARK))] if line.startswith(_MARK) else line for line in lines]
    return "\n".join([*_head(name, text), "", *shown]) + ";\n"


def _head(name: str, text: str) -> list[str]:
    ctes, answer, placeholders = dialect._CLAIM_STATEMENTS[name]
    values = [f"{key} = {' '.join(value.split()) or '(nothing)'}" for key, value in placeholders.items()]
    head = [USES[name], f"Parts: {', '.join((*ctes, answer))}."]
    head += [f"Filled in: {'; '.join(values)}."] if values else []
    numbered = [f"${number} {parameter}" for number, parameter in enumerate(compiled(text).names, 1)]
    head.append(f"Parameters are sent by number: {', '.join(numbered)}.")
    return [line for sentence in head for line in _wrapped(sentence)]


def _wrapped(text: str) -> list[str]:
    lines = ["--"]
    for word in text.split():
        if len(lines[-1]) + 1 + len(word) > WIDTH:
            lines.append("--  ")
        lines[-1] += f" {word}"
    return lines


def _index() -> str:
    rows = "".join(f"| [{name}]({name}.sql) | {use} |\n" for name, use in USES.items())
    return f"""# The claim statements of Postgres

The statements that workers send to claim jobs, as they are sent: schema `detent`, clock of the database. They are
composed by `src/detent/stores/postgres/dialect.py` from the parts in `claim_parts.sql` beside it, whose comments are
kept here. Parameters have their names instead of numbers. Do not edit these files: change the parts and run `make
sql`; `make check` compares them.

| statement | when it runs |
|---|---|
{rows}
[ADR 0003](../adr/0003-claim-order.md) explains lanes and the order of claims, the tables are in
`src/detent/stores/postgres/schema.sql`.
"""


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    texts = pages()
    for file in FOLDER.iterdir():
        if file.name not in texts:
            file.unlink()
    for name, text in texts.items():
        (FOLDER / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
