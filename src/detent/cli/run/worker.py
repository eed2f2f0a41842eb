"""Commands that make and do work: `up`, `worker`, `enqueue`, `migrate`."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from detent.cli.connection import on_engine
from detent.cli.diagnose.database import describe, durability, scripts, shown_url
from detent.cli.loader import load_app
from detent.cli.options import (
    Actor,
    AppUrl,
    AsJson,
    LogForm,
    LogFormat,
    MaybeApp,
    Url,
    actor_or_user,
    json_value,
    option,
    seconds_or_moment,
)
from detent.cli.output import say, tell
from detent.client.connect import default_url
from detent.core.contract.model import Contract
from detent.core.errors import InvalidInput
from detent.engine import Engine, Submission, Submitted
from detent.engine.reads.views import submitted_view
from detent.observability.job_logs import set_up
from detent.observability.settings import load_settings

from .orchestrate import RedisUrl, Transport, VisibilityTimeout, transport_options
from .serve import Host, Port, told

DEMO = Path("examples/demo.py")


def worker(
    app: Annotated[str, typer.Argument(metavar="APP", envvar="DETENT_APP", help="module:app or file.py:app")],
    queues: Annotated[str | None, option("--queues", "Serve these queues only: a,b.")] = None,
    slots: Annotated[int | None, option("--slots", "How many jobs at once.", min=1)] = None,
    lease_seconds: Annotated[
        float | None, option("--lease-seconds", "How long a job stays ours without a sign of life.", min=0.1)
    ] = None,
    until_idle: Annotated[
        bool, option("--until-idle", "Stop when nothing is leased, claimable or due within 5 s.")
    ] = False,
    transport: Annotated[
        Transport, option("--transport", "Where the work comes from: the database itself, or Redis Streams.")
    ] = Transport.DATABASE,
    redis_url: RedisUrl = None,
    visibility_timeout_s: VisibilityTimeout = None,
    metrics_port: Annotated[
        int | None, option("--metrics-port", "Serve GET /metrics for Prometheus on this port.", min=0, max=65_535)
    ] = None,
    metrics_host: Annotated[str, option("--metrics-host", "The address to serve it on.")] = "127.0.0.1",
    config: Annotated[
        str | None, option("--config", "Alerts, sinks, retention: a TOML file; default detent.toml here.")
    ] = None,
    url: AppUrl = None,
    log_format: LogFormat = LogForm.TEXT,
    as_json: AsJson = False,
) -> int:
    """Run the jobs of an application in this process until SIGTERM or Ctrl-C."""
    set_up(log_format)
    application = load_app(app)
    if url:
        application.url = url
    options: dict[str, Any] = {"until_idle": until_idle, "queues": _names(queues)}
    options |= {"metrics_port": metrics_port, "metrics_host": metrics_host}
    if config is not None:
        options["config"] = load_settings(config)
    if slots is not None:
        options["slots"] = slots
    if lease_seconds is not None:
        options["lease_seconds"] = lease_seconds
    options |= transport_options(application, transport, redis_url, visibility_timeout_s)
    types = sorted(application.jobs)
    facts = {"url": shown_url(application.url), "job_types": types, "queues": options["queues"]}
    served = "every queue" if queues is None else f"queues {queues}"
    if transport is Transport.REDIS:
        served = f"stream {options['settings'].task_stream}"
    durable = durability(application.url)
    say_start = f"working on {facts['url']} ({durable}): {', '.join(types) or 'no jobs'} from {served}"
    tell(as_json, {**facts, "durability": durable}, say_start)
    return asyncio.run(application.run_worker(**options))


def up(
    app: MaybeApp = None,
    slots: Annotated[int, option("--slots", "How many jobs at once.", min=1)] = 64,
    url: AppUrl = None,
    until_idle: Annotated[
        bool, option("--until-idle", "Stop when nothing is leased, claimable or due within 5 s.")
    ] = False,
    no_screen: Annotated[bool, option("--no-screen", "Log instead of drawing a live view.")] = False,
    host: Host = "127.0.0.1",
    port: Port = 8400,
    log_format: LogFormat = LogForm.TEXT,
    as_json: AsJson = False,
) -> int:
    """Everything in one process: migrate, work, serve API and pages, run the application's companions, show it live."""
    from detent.web.http.serving import bind, check_address, run

    from .live import run_up

    application = load_app(app if app is not None else _demo())
    if url:
        application.url = url
    is_open = on_engine(application.url, lambda engine: check_address(engine, host), may_migrate=True)
    listening = bind(host, port)
    if no_screen or as_json:
        set_up(log_format)
    types = sorted(application.jobs)
    facts, serving = told(application, listening.getsockname(), durability(application.url), is_open)
    work = f"runs {', '.join(types) or 'no jobs'}; Ctrl-C stops in good order"
    said = f"up on {facts['url']} ({facts['durability']}): {work}"
    tell(as_json, {**facts, "job_types": types}, said, serving)
    drawn = not no_screen and not as_json
    return run(run_up(application, listening, slots=slots, until_idle=until_idle, screen=drawn, is_open=is_open))


def _demo() -> str:
    if not DEMO.is_file():
        advice = "name your application, like `detent up app.py` or `detent up package.module:app`"
        raise InvalidInput(f"{advice}; only in a checkout of Detent its demo runs without a name", code="APP_NOT_FOUND")
    return f"{DEMO}:app"


async def _nothing(engine: Engine) -> None:
    return None


def _names(text: str | None) -> list[str] | None:
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise typer.BadParameter("--queues names no queue; write them like a,b")
    return names


def enqueue(
    job_type: Annotated[str, typer.Argument(metavar="TYPE", help="The job type, as in @app.job(TYPE).")],
    payload: Annotated[
        str | None, option("--payload", "The arguments as a JSON object; - reads stdin, @FILE a file.")
    ] = None,
    contract: Annotated[str | None, option("--contract", "The contract the job lives under; default standard.")] = None,
    queue: Annotated[str, option("--queue", "The queue.")] = "default",
    key: Annotated[str | None, option("--key", "Idempotency key: the same key makes no second job.")] = None,
    scope: Annotated[str | None, option("--scope", "Where the key is unique, if the contract asks.")] = None,
    tenant: Annotated[str, option("--tenant", "Whose job it is.")] = "default",
    at: Annotated[str | None, option("--at", "Not before this moment: 2030-01-31T12:00:00Z.")] = None,
    delay: Annotated[float, option("--delay", "Not before this many seconds.", min=0)] = 0.0,
    max_retries: Annotated[int | None, option("--max-retries", "Tries after the first.", min=0)] = None,
    timeout_ms: Annotated[int | None, option("--timeout-ms", "How long one execution may take.", min=1)] = None,
    priority: Annotated[int, option("--priority", "-100 to 100; higher goes first.", min=-100, max=100)] = 0,
    limit_key: Annotated[str, option("--limit-key", "What limits per key count it under.")] = "",
    deadline: Annotated[
        str | None, option("--deadline", "It ends if nobody began it in so many seconds, or by then.")
    ] = None,
    task_id: Annotated[str | None, option("--task-id", "The task, for contracts that have tasks.")] = None,
    trace_id: Annotated[str | None, option("--trace-id", "The trace it belongs to.")] = None,
    hold: Annotated[bool, option("--hold", "Wait for approval before the first execution.")] = False,
    actor: Actor = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Submit one job. Needs no application: a type that no worker knows yet waits for one."""
    ask = Submission(
        job_type=job_type,
        payload=json_value(payload, "--payload"),
        contract=contract,
        queue=queue,
        tenant_id=tenant,
        idempotency_key=key,
        idempotency_scope=scope,
        task_id=task_id,
        scheduled_at=at,
        delay=delay,
        timeout_ms=timeout_ms,
        max_retries=max_retries,
        priority=priority,
        trace_id=trace_id,
        hold=hold,
        limit_key=limit_key,
        deadline=seconds_or_moment(deadline),
        actor=actor_or_user(actor),
    )

    async def act(engine: Engine) -> tuple[Contract, Submitted]:
        made = await engine.submit(ask)
        return engine.contract(made.job.contract), made

    its_contract, made = on_engine(url, act)
    known = " (the key was known: no new job)" if made.hit else ""
    tell(as_json, submitted_view(its_contract, made), f"{made.job.id} {made.job.status}{known}")


def migrate(
    sql: Annotated[bool, option("--sql", "Print the migrations instead of running them.")] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Bring the database to this version's schema; an empty one gets it whole."""
    target = url or default_url()
    if sql:
        texts = scripts(target)
        tell(as_json, {"migrations": [{"number": n, "sql": text} for n, text in texts]})
        if not as_json:
            for number, text in texts:
                say(f"-- migration {number:04}\n{text.rstrip()}")
        return
    before = describe(target).schema

    on_engine(target, _nothing, may_migrate=True)
    after = describe(target).schema
    said = f"schema {after} is in place" if before == after else f"schema {before or 'none'} -> {after}"
    tell(as_json, {"from": before, "schema": after, "migrated": before != after}, f"{shown_url(target)}: {said}")
