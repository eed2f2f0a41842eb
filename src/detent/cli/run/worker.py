"""The commands `worker`, `up`, `enqueue` and `migrate`."""

import asyncio
import os
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from detent.cli.diagnose.database import describe, scripts
from detent.cli.loader import load_app
from detent.cli.option_groups import ActorOptions, ConnectionOptions, LogOptions, TableOptions
from detent.cli.options import App, AppUrl, AsJson, LogLevel, OptionalApp, actor_or_user, option
from detent.cli.output import print_result, print_warning
from detent.client.connect import default_url, shown_url
from detent.core.contract.model import Contract
from detent.core.errors import InvalidInput
from detent.engine import Engine, Submission, Submitted
from detent.engine.reads.views import submitted_view
from detent.observability.settings import load_settings

from .orchestrate import RedisUrl, Transport, VisibilityTimeout, transport_options
from .serve import Host, KnownTypesOnly, Port, start_message
from .supervisor import SupervisionOptions

DEMO = Path("examples/demo.py")
GraceSeconds = Annotated[
    float | None, option("Seconds that running jobs get to end after SIGTERM; default 25.", min=0.0)
]


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """Fields of WorkerSettings; None: as in the settings file."""

    grace_seconds: GraceSeconds = None
    handler_processes: Annotated[
        int | None, option('The most processes for handlers with run_in="process"; default: one per CPU.', min=1)
    ] = None
    max_jobs_per_process: Annotated[int | None, option("Replace a handler process after so many jobs.", min=1)] = None
    max_memory_mb: Annotated[int | None, option("Kill a handler process that uses more memory.", min=1)] = None


def worker(
    app: Annotated[str, typer.Argument(metavar="APP", envvar="DETENT_APP", help="module:app or file.py:app")],
    queues: Annotated[str | None, option("Only claim from these queues: a,b.")] = None,
    slots: Annotated[int | None, option("How many jobs run concurrently.", min=1)] = None,
    lease_seconds: Annotated[
        float | None, option("Seconds without a heartbeat after which other workers may reclaim a job.", min=0.1)
    ] = None,
    until_idle: Annotated[bool, option("Exit when no job is leased, claimable or due within 5 s.")] = False,
    transport: Annotated[
        Transport, option("The source of tasks: the database, or Redis Streams.")
    ] = Transport.DATABASE,
    redis_url: RedisUrl = None,
    visibility_timeout_s: VisibilityTimeout = None,
    block_warning_seconds: Annotated[
        float | None, option("Warn of a handler that blocks the event loop for this long; 0: never. Default: 1.", min=0)
    ] = None,
    config: Annotated[
        str | None, option("The settings file for alerts, sinks and retention; default: detent.toml in this folder.")
    ] = None,
    url: AppUrl = None,
    *,
    logs: LogOptions,
    as_json: AsJson = False,
    limits: LimitOptions,
    supervision: SupervisionOptions,
) -> int:
    """Run the jobs of an application until SIGTERM or Ctrl-C; what runs then may end within the grace."""
    logs.configure()
    if config is not None:
        os.environ["DETENT_CONFIG"] = config  # handlers in other processes read it, too
    if supervision.is_needed:
        return supervision.run(app, until_idle=until_idle)
    application = load_app(app, url)
    application.config = application.config if config is None else load_settings(config)
    options: dict[str, Any] = {"until_idle": until_idle, "queues": _queue_names(queues)}
    options |= supervision.metrics_options()
    given = {"slots": slots, "lease_seconds": lease_seconds, "block_warning_seconds": block_warning_seconds}
    given |= asdict(limits)
    options |= {name: value for name, value in given.items() if value is not None}
    options |= transport_options(application, transport, redis_url, visibility_timeout_s)
    types = sorted(application.jobs)
    view = {"url": shown_url(application.url), "job_types": types, "queues": options["queues"]}
    source = "all queues" if queues is None else f"queues {queues}"
    if transport is Transport.REDIS:
        source = f"stream {options['settings'].task_stream}"
    durable = describe(application.url).durability
    message = f"working on {view['url']} ({durable}): {', '.join(types) or 'no job types'} from {source}"
    print_result(as_json, {**view, "durability": durable}, message)
    return asyncio.run(application.run_worker(**options))


def up(
    app: OptionalApp = None,
    slots: Annotated[int, option("How many jobs run concurrently.", min=1)] = 64,
    grace_seconds: GraceSeconds = None,
    url: AppUrl = None,
    until_idle: Annotated[bool, option("Exit when no job is leased, claimable or due within 5 s.")] = False,
    no_screen: Annotated[bool, option("Print log lines instead of the live view.")] = False,
    host: Host = "127.0.0.1",
    port: Port = 8400,
    known_types_only: KnownTypesOnly = False,
    *,
    logs: LogOptions,
    as_json: AsJson = False,
) -> int:
    """Migrate, then run worker, API, dashboard, live view and the application's companions in one process."""
    from detent.web.http.serving import bind, prepare_access, run
    from detent.web.http.settings import Settings

    from .live import run_up

    screen = not no_screen and not as_json
    if screen:  # below the live view: what needs attention
        logs = replace(logs, log_level=max(logs.log_level, LogLevel.WARNING, key=list(LogLevel).index))
    logs.configure()
    application = load_app(app if app is not None else _demo(), url)
    person, connection = actor_or_user(None), ConnectionOptions(application.url)
    with bind(host, port) as listening:
        access = connection.run(lambda engine: prepare_access(engine, host, person), may_migrate=True, wait=True)
        types = sorted(application.jobs)
        durable = describe(application.url).durability
        view, lines = start_message(application, listening.getsockname(), durable, access)
        work = f"runs {', '.join(types) or 'no job types'}; Ctrl-C stops gracefully"
        message = f"up on {view['url']} ({view['durability']}): {work}"
        print_result(as_json, {**view, "job_types": types}, message, *lines)
        settings = Settings.from_environment(open_without_tokens=access.is_open, known_types_only=known_types_only)
        live = partial(run_up, application, listening, settings, slots, grace_seconds)
        return run(live(until_idle=until_idle, screen=screen))


def _demo() -> str:
    if not DEMO.is_file():
        advice = "name your application, like `detent up app.py` or `detent up package.module:app`"
        raise InvalidInput(f"{advice}; without APP, `up` runs {DEMO}, which does not exist here", code="APP_NOT_FOUND")
    return f"{DEMO}:app"


def _queue_names(text: str | None) -> list[str] | None:
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise typer.BadParameter("--queues is empty; write it like a,b")
    return names


def enqueue(
    job_type: Annotated[str, typer.Argument(metavar="TYPE", help="The job type, as in @app.job(TYPE).")],
    options: Annotated[dict[str, Any], TableOptions(Submission)],
    actor: ActorOptions,
    app: App = None,
    known_types_only: KnownTypesOnly = False,
    *,
    connection: ConnectionOptions,
) -> None:
    """Enqueue one job. Needs no application: workers declare their job types in the database.

    Options that are not set are those of the declaration, and the payload is checked against it. A job whose type no
    worker declares waits for one.
    """
    application = load_app(app) if app else None
    requested = Submission(job_type, **options, actor=actor.scope().actor)

    async def act(engine: Engine) -> tuple[Contract, Submitted]:
        if application is not None:
            engine.declarations.own = application.declaration_of
        submission, warning = await engine.declarations.apply(requested, options, known_only=known_types_only)
        submitted = await engine.jobs.submit(submission)
        return engine.contract(submitted.job.contract), replace(submitted, warnings=(warning,) if warning else ())

    job_contract, submitted = connection.with_app(application).run(act)
    for warning in submitted.warnings:
        print_warning(warning["message"])
    existing = " (existing job with this key; no new job was created)" if submitted.hit else ""
    message = f"{submitted.job.id} {submitted.job.status}{existing}"
    connection.print_result(submitted_view(job_contract, submitted), message)


def migrate(
    sql: Annotated[bool, option("Print the SQL of the migrations instead of running it.")] = False,
    *,
    connection: ConnectionOptions,
) -> None:
    """Create the schema in an empty database, or upgrade it to this version."""
    target = connection.url or default_url()
    if sql:
        texts = scripts(target)
        lines = [f"-- migration {number:04}\n{text.rstrip()}" for number, text in texts]
        connection.print_result({"migrations": [{"number": n, "sql": text} for n, text in texts]}, *lines)
        return
    before = describe(target).schema
    ConnectionOptions(target).run(lambda _: asyncio.sleep(0), may_migrate=True)
    after = describe(target).schema
    migrated = f"schema {after} created" if before is None else f"migrated from schema {before} to {after}"
    outcome = f"schema {after} is up to date" if before == after else migrated
    view = {"from": before, "schema": after, "migrated": before != after}
    connection.print_result(view, f"{shown_url(target)}: {outcome}")
