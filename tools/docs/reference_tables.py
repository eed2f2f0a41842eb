"""The pages of settings, events, metrics and the SQL schema."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import detent
from detent.client.connect import CONTRACT_VARIABLES
from detent.core.alerts import DEFAULT_RULES
from detent.core.contract.builtin import CONTRACTS
from detent.core.options.job_options import JobOptions
from detent.core.options.option import PYTHON, options_of
from detent.core.options.schedule_options import ScheduleOptions
from detent.observability import settings as observability
from detent.ports.stream import StreamSettings
from detent.web.http import settings as web

from .markdown import WARNING, code, sentence, table
from .reference_python import _attributes

STORES = Path(detent.__file__).parent / "stores"
_ENVIRONMENT = (
    (
        "DETENT_URL",
        "The database: `sqlite:///jobs.db` or `postgresql://user@host/database`. Default `sqlite:///detent.db`.",
    ),
    ("DETENT_SCHEMA", "The Postgres schema of Detent's tables. Default `detent`; `?schema=` in the URL wins."),
    (
        "DETENT_APP",
        "The application that `detent worker`, `detent up` and `detent serve` load: FILE, MODULE or MODULE:NAME.",
    ),
    ("DETENT_CONFIG", "The settings file. Default: `detent.toml` in the working directory, if it exists."),
    ("DETENT_REDIS_URL", "The Redis or Valkey server for jobs of the contract `streams`: `redis://host:6379/0`."),
    ("DETENT_GUARD", "A TOML file with approval rules that hold jobs before they start."),
    ("DETENT_JSON", "`1`: commands print JSON, as with `--json`."),
    ("DETENT_TRACEBACK", "`1`: the command line prints the Python traceback of an error."),
    ("DETENT_DASHBOARD_URL", "The address of the dashboard, for links in alerts and in the output of commands."),
    (
        "DETENT_DOCS_URL",
        "Where the documentation is served, for the links of error codes. Default `https://detent.example/docs`.",
    ),
    ("DETENT_TOKEN", "The token that commands and examples send to the API."),
    (
        "DETENT_INJECT",
        "Failures that `detent.testing.failure_injection` raises, as JSON; needs `DETENT_ALLOW_INJECTION=1`.",
    ),
    ("DETENT_ALLOW_INJECTION", "`1`: failures may be injected into this process. Never set it in production."),
    ("DETENT_MAX_RETRIES", "Retries of jobs of the contract `streams`; also read as `MAX_RETRIES`."),
    (
        "DETENT_RETRY_BACKOFF_S",
        "Seconds before each retry of jobs of the contract `streams`; also read as `RETRY_BACKOFF_S`.",
    ),
)
"""Variables that no option and no table of the code describes."""
INTERNAL_VARIABLES = {"DETENT_SUPERVISOR_FD", "DETENT_SUPERVISOR_METRICS"}
"""Set by Detent for its own processes."""
SETTINGS = f"""{WARNING}
# Settings

Detent reads settings in this order, the first wins: arguments in Python and options of a command, environment variables, the settings
file, the defaults below. Every option of a command has an environment variable; those are on the page of the
[commands](commands.md).

The settings file is `detent.toml` in the working directory, or the file of `--config` or `$DETENT_CONFIG`. It has the tables `[worker]`,
`[alerts]`, `[retention]` and `[contracts.NAME]`; [Alerts](../operate/alerts.md) and
[Observability](../operate/observability.md) show examples.
"""


def settings_page() -> str:
    stream = {f"DETENT_{name.upper()}": row for name, row in _rows(StreamSettings).items() if name != "url"}
    parts = [
        SETTINGS,
        _section("Environment variables", "variable", {name: ("", text) for name, text in _ENVIRONMENT}),
        _section("Settings of a worker", "`[worker]` in the settings file", _rows(observability.WorkerSettings)),
        _section(
            "Alerts, retention and contracts", "`detent.Detent(config=Settings(…))`", _rows(observability.Settings)
        ),
        "## Alert rules\n\n" + table(["rule", "kind", "severity", "threshold"], _alert_rules()) + "\n",
        "## Settings of the API and the dashboard\n\n`create_app(app, Settings(…))` takes all of them. Those with a variable can be set"
        " in the environment of `detent serve` and `detent up`.\n\n"
        + table(["setting", "default", "meaning", "variable"], _web_rows())
        + "\n",
        _section("Redis Streams", "variable", stream),
        "## Variables of contracts\n\n"
        + table(
            ["variable", "contract", "option"],
            [
                [code(name), code(where[0]), code(f"{where[1]}.{where[2]}")]
                for name, where in CONTRACT_VARIABLES.items()
            ],
        )
        + "\n",
        "## Options of a job\n\n`@app.job(…)`, `job.using(…)`, `detent enqueue --…` and `POST /jobs` take these; the name in JSON is the"
        " second column.\n\n" + table(["option", "in JSON", "default", "meaning"], _options(JobOptions)) + "\n",
        "## Options of a schedule\n\n`@app.schedule(…)`, `detent schedules add --…` and `POST /schedules` take these.\n\n"
        + table(["option", "in JSON", "default", "meaning"], _options(ScheduleOptions))
        + "\n",
    ]
    return "\n".join(parts)


def _section(title: str, name: str, rows: Mapping[str, tuple[str, str]]) -> str:
    return (
        f"## {title}\n\n" + table([name, "default", "meaning"], [[code(key), *row] for key, row in rows.items()]) + "\n"
    )


def _rows(settings: type) -> dict[str, tuple[str, str]]:
    """Field -> (default, meaning) of a dataclass of settings."""
    meanings = _attributes(settings)
    return {
        row.name: (_default(row), sentence(meanings.get(row.name, "")) or _words(row.name)) for row in fields(settings)
    }


def _words(name: str) -> str:
    return name.replace("_", " ").capitalize() + "."


def _default(row: Any) -> str:
    if row.default is MISSING or (
        isinstance(row.default, tuple) and row.default and not isinstance(row.default[0], str)
    ):
        return ""
    return (
        code(row.default if row.default not in ((), "") else "—")
        if not hasattr(row.default, "__dataclass_fields__")
        else ""
    )


def _web_rows() -> Iterator[list[str]]:
    from_environment = {*web.FROM_ENVIRONMENT, "docs", "internal", "known_types_only"}
    for name, (default, meaning) in _rows(web.Settings).items():
        yield [code(name), default, meaning, code(f"DETENT_{name.upper()}") if name in from_environment else ""]


def _alert_rules() -> Iterator[list[str]]:
    for rule in DEFAULT_RULES:
        yield [code(rule.name), code(rule.kind), rule.severity, f"{rule.threshold:g}"]


def _options(options: type) -> Iterator[list[str]]:
    defaults = {row.name: row.default for row in fields(options)}
    for name, row in options_of(options, PYTHON).items():
        default = defaults[name]
        yield [code(row.name), code(name), "" if default is None else code(str(default) or '""'), sentence(row.help)]


EVENTS = f"""{WARNING}
# Events

Each change of a job's status writes one event to its log, in the same commit. The contract of the job says which: this page lists the
events of the built-in contracts. An event has the job's id, a number without gaps within the job, the time, the status before and after,
the actor (worker or person), and for failures the error code. Read them with `detent jobs events ID`, `GET /jobs/{{id}}/events`,
`app.events()` and, live, `GET /events/stream`.

A *note* is an entry of the log that changes no status: a heartbeat of a stream worker, a refused move, a step that starts or ends.
"""


def events_page() -> str:
    return "\n".join([EVENTS, *(_events_of(name) for name in CONTRACTS)])


def _events_of(name: str) -> str:
    contract = CONTRACTS[name]
    rows = []
    for event in dict.fromkeys(edge.event for edge in contract.edges):
        edges = [edge for edge in contract.edges if edge.event == event]
        moves = ", ".join(dict.fromkeys(code(edge.move) if edge.move else "replay only" for edge in edges))
        sources = ", ".join(dict.fromkeys(code(edge.source) if edge.source else "(created)" for edge in edges))
        targets = ", ".join(dict.fromkeys(code(edge.target) for edge in edges))
        rows.append([code(event), moves, sources, targets])
    notes = {*contract.approval_notes.values(), contract.heartbeat_note}
    notes |= {contract.dead_letters.note} if contract.dead_letters else set()
    listed = ", ".join(sorted(code(note) for note in notes if note)) or "none of its own"
    text = table(["event", "move", "from", "to"], rows)
    return f"## {name}\n\n{text}\n\nNotes: {listed}. [The contract](../understand/contracts.md#{name}).\n"


METRICS = f"""{WARNING}
# Metrics

`GET /metrics` of `detent serve` and `detent up`, and of a worker with `--metrics-port`, in the text format of Prometheus. Counters and gauges,
`detent_job_wait_seconds` and `detent_job_run_seconds` are read from the database and have the same value in every process: aggregate them with
`max by`, not with `sum`. The other histograms count what this process did: aggregate them with `sum by`. [Observability](../operate/observability.md) shows queries and alerts.
"""


def metrics_page() -> str:
    rows = [[code(name), kind, ", ".join(map(code, labels)), sentence(text)] for name, kind, labels, text in metrics()]
    return METRICS + "\n" + table(["metric", "type", "labels", "meaning"], rows) + "\n"


def metrics() -> list[tuple[str, str, tuple[str, ...], str]]:
    """(name as Prometheus shows it, type, labels, help) of every metric."""
    from .metric_families import families

    return families()


SCHEMA = f"""{WARNING}
# SQL schema

The tables as `detent migrate` creates them. They are yours to read: with the database's own tools, with the
[views](../understand/contracts.md) that have the names of the contracts, or with `job_list`. Do not write to them: a job changes through the engine
only, and triggers refuse what its contract does not allow. All times are microseconds since 1970-01-01 UTC.

On Postgres the tables are in the schema `detent`, on SQLite their names begin with `detent_`.
"""
FILES = ("schema.sql", "schema_features.sql", "schema_partitions.sql", "schema_views.sql")


def schema_page() -> str:
    parts = [SCHEMA]
    for store, title in (("postgres", "Postgres"), ("sqlite", "SQLite")):
        texts = {name: STORES / store / name for name in FILES if (STORES / store / name).exists()}
        tables = [row for path in texts.values() for row in tables_of(path.read_text("utf-8"))]
        parts.append(f"## {title}\n\n{table(['table or view', 'what it holds'], tables)}\n")
        parts += [
            f"### {title}: {name}\n\n```sql\n{path.read_text('utf-8').rstrip()}\n```\n" for name, path in texts.items()
        ]
    return "\n".join(parts)


def tables_of(text: str) -> Iterator[list[str]]:
    """(name, the comment above it) of each table and view."""
    pattern = re.compile(
        r"((?:^--[^\n]*\n)*)^CREATE (?:TABLE|VIEW|UNLOGGED TABLE)(?: IF NOT EXISTS)? ([\w.]+)", re.MULTILINE
    )
    for comment, name in pattern.findall(text):
        yield [code(name), sentence(" ".join(line.removeprefix("--").strip() for line in comment.splitlines()))]
