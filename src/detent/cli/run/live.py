"""`detent up`: worker, HTTP server, companions and a live terminal view in one process."""

import asyncio
import logging
import socket
from functools import partial

from rich.console import Group
from rich.panel import Panel

from detent.cli.output import make_table, redraw
from detent.client.app import Detent
from detent.core.times import iso
from detent.engine import Engine
from detent.ports.listing import Filter
from detent.system.backoff import Backoff, Sleep
from detent.system.clock import SystemClock
from detent.web.http.serving import make_server
from detent.web.http.settings import Settings
from detent.worker.worker import Worker

from .orchestrate import Part, stream_parts

log = logging.getLogger("detent.cli.run.live")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0


async def run_up(
    app: Detent,
    listening: socket.socket,
    settings: Settings,
    slots: int,
    grace_seconds: float | None,
    *,
    until_idle: bool,
    screen: bool,
) -> int:
    """Run the worker and the server until stopped; with a screen, redraw it twice per second."""
    engine = await app.ready()
    background, excluded = await stream_parts(app, slots)
    worker = await app.worker(
        slots=slots, grace_seconds=grace_seconds, until_idle=until_idle, exclude_contracts=excluded
    )
    server = make_server(app, settings, own_signals=False)
    serving = asyncio.create_task(server.serve([listening]))
    helpers = [asyncio.create_task(keep_running(start)) for start in (*app.companions, *background)]
    if screen:
        helpers.append(asyncio.create_task(redraw(partial(_render, app, engine, worker), 0.5)))
    try:
        return await worker.run()
    finally:
        server.should_exit = True
        for task in helpers:
            task.cancel()
        await asyncio.gather(*helpers, serving, return_exceptions=True)
        await app.close()


async def keep_running(start: Part, sleep: Sleep = asyncio.sleep) -> None:
    """Run a companion until it returns. One that raises is logged and started again, after pauses up to 30 s."""
    name = getattr(getattr(start, "func", start), "__qualname__", repr(start))
    backoff, clock = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, sleep=sleep), SystemClock()
    while True:
        began = clock.monotonic()
        try:
            await start()
            return
        except Exception:
            if clock.monotonic() - began > _LONGEST_PAUSE:  # it ran without errors for a while
                backoff.reset()
            log.exception("the companion %s failed, starting it again in %g s", name, backoff.seconds)
            await backoff.pause()


async def _render(app: Detent, engine: Engine, worker: Worker) -> Group:
    counts = await engine.store.read(lambda tx: tx.stats.counts())
    jobs = await engine.jobs.list(Filter(limit=12))
    dead_letters = await engine.dead_letters.list(Filter(limit=3))
    head = (
        f"database {app.url} · worker {worker.id} · {worker.done} settled · "
        f"{len(worker.state.held)}/{worker.state.slots} slots busy · Ctrl-C stops gracefully"
    )
    return Group(
        Panel(head, title="detent"),
        make_table(("contract", "status", "phase", ">jobs"), sorted(counts), title="jobs by status"),
        make_table(
            ("job", "type", "status", ">attempts", "updated"),
            ((job.id, job.job_type, job.status, job.execution_no, iso(job.updated_at)) for job in jobs),
            title="newest jobs  (detent jobs why ID)",
        ),
        make_table(
            ("dead letter", "type", "code", "message"),
            ((item.id, item.job_type, item.error_code, item.error_message) for item in dead_letters),
            title="dead letters  (detent dlq list)",
        ),
    )
