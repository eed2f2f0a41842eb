"""Log lines in a handler name their job, as text and as JSON; captured lines are stored with the job, bounded."""

import asyncio
import contextvars
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import detent
from detent import Context, Detent, Fail
from detent.engine import Submission
from detent.engine.reads.views import CAPTURED
from detent.observability.job_logs import MAX_LINE, MAX_LINES, JsonFormatter, TextFormatter, current_job
from detent.proof.verify.verify import verify
from support.waiting import until
from support.worker.running import working

pytestmark = pytest.mark.anyio
library = logging.getLogger("some.library")


@pytest.fixture
async def app(tmp_path: Path) -> Any:
    async with Detent(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        yield app


class Lines(logging.Handler):
    """Collects the lines of the root logger, formatted in the context they were logged in."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def log_lines() -> Any:
    handler = Lines(JsonFormatter())
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.INFO)
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)
    root.setLevel(before)


async def test_every_line_of_a_handler_names_its_job(app: Detent, log_lines: Lines) -> None:
    @app.job("loop", queue="fast")
    async def on_the_loop(ctx: Context) -> None:
        library.info("from a library")
        ctx.log.info("from the context")
        await asyncio.create_task(_later())
        await asyncio.to_thread(library.info, "from another thread")

    @app.job("thread")
    def in_a_thread() -> None:
        library.info("from a plain handler")

    async def _later() -> None:
        library.info("from a task")

    async with working(app):
        first = await on_the_loop.using(trace_id="trace-7", tenant="acme").enqueue()
        second = await in_a_thread.enqueue()
        await first.result(10)
        await second.result(10)
    lines = [json.loads(line) for line in log_lines.lines]
    by_message = {line["message"]: line for line in lines}
    for message in ("from a library", "from the context", "from a task", "from another thread"):
        line = by_message[message]
        assert (line["job_id"], line["execution_no"], line["trace_id"]) == (first.id, 1, "trace-7"), message
        assert (line["job_type"], line["queue"], line["tenant_id"]) == ("loop", "fast", "acme")
    assert by_message["from a plain handler"]["job_id"] == second.id
    assert by_message["from a library"]["logger"] == "some.library"


async def test_lines_of_concurrent_jobs_are_not_mixed_up(app: Detent, log_lines: Lines) -> None:
    @app.job("chat")
    async def chat(ctx: Context, n: int) -> None:
        for _ in range(3):
            library.info("%s number %d", ctx.job_id, n)
            await asyncio.sleep(0)

    async with working(app, slots=8):
        for handle in await chat.enqueue_many([{"n": n} for n in range(20)]):
            await handle.result(10)
    lines = [json.loads(line) for line in log_lines.lines if "number" in line]
    assert len(lines) == 60
    assert all(line["message"].startswith(line["job_id"]) for line in lines)


def test_text_and_json_format() -> None:
    contextvars.Context().run(check_formats_outside_a_job)


def check_formats_outside_a_job() -> None:
    record = logging.LogRecord("a.b", logging.WARNING, "x.py", 1, "it is %s", ("late",), None)
    assert TextFormatter().format(record).endswith("WARNING a.b: it is late")
    record.job_id, record.execution_no = "j1", 2
    assert TextFormatter().format(record).endswith("it is late [job=j1 execution=2]")
    try:
        raise ValueError("broken")
    except ValueError as error:
        record.exc_info = (ValueError, error, error.__traceback__)
    line = json.loads(JsonFormatter().format(record))
    assert line["level"] == "WARNING" and line["job_id"] == "j1" and "ValueError: broken" in line["error"]
    assert current_job.get() is None


async def notes(handle: Any) -> list[dict[str, Any]]:
    return [event for event in await handle.events() if event["event"] == CAPTURED]


async def test_captured_lines_are_stored_even_of_a_failed_job(app: Detent, log_lines: Lines) -> None:
    @app.job("talks", capture_logs=True, max_retries=0)
    async def talks(ctx: Context, well: bool) -> None:
        library.info("working on it")
        await asyncio.to_thread(library.warning, "nearly there \x00 \ud800")
        if not well:
            raise Fail("no", code="NO", retryable=False)

    @app.job("quiet")
    async def quiet() -> None:
        library.info("not captured")

    async with working(app):
        good = await talks.enqueue(well=True)
        bad = await talks.enqueue(well=False)
        other = await quiet.enqueue()
        for handle in (good, bad, other):
            await until(lambda handle=handle: _ended(handle))
    for handle in (good, bad):
        (note,) = await notes(handle)
        assert [line["message"] for line in note["data"]["lines"]] == ["working on it", "nearly there \\x00 \\ud800"]
        assert note["execution_no"] == 1 and note["note"]
    assert await notes(other) == []
    assert (await verify((await app.ready()).store)).ok


async def test_lines_of_a_handler_that_never_waits_are_stored(app: Detent, log_lines: Lines) -> None:
    """It ends before any other task of the event loop has run."""

    @app.job("hasty", capture_logs=True, max_retries=0)
    async def hasty(ctx: Context) -> None:
        library.info("the only line")

    async with working(app):
        handle = await hasty.enqueue()
        await handle.result(10)
    (note,) = await notes(handle)
    assert [line["message"] for line in note["data"]["lines"]] == ["the only line"]


async def test_lines_are_stored_while_the_job_runs(app: Detent, log_lines: Lines) -> None:
    release = asyncio.Event()

    @app.job("long", capture_logs=True)
    async def long(ctx: Context) -> None:
        library.info("begun")
        await release.wait()
        library.info("done")

    async def messages() -> list[str]:
        store = (await app.ready()).store
        return [line.message for line in await store.read(lambda tx: tx.output.last_log_lines(handle.id, 10))]

    async with working(app):
        handle = await long.enqueue()
        await until(messages)
        assert await messages() == ["begun"] and not await _ended(handle)
        release.set()
        await handle.result(10)
    assert await messages() == ["begun", "done"]


async def _ended(handle: Any) -> bool:
    return (await handle.job()).finished_at is not None


async def test_captured_lines_are_bounded(app: Detent, log_lines: Lines) -> None:
    @app.job("floods", capture_logs=True)
    def floods(lines: int, width: int) -> None:
        for n in range(lines):
            library.info("%s", str(n % 10) * width)

    async with working(app):
        many = await floods.enqueue(lines=MAX_LINES + 50, width=1)
        wide = await floods.enqueue(lines=30, width=10_000)
        await many.result(10)
        await wide.result(10)
    (note,) = await notes(many)
    assert len(note["data"]["lines"]) == MAX_LINES and note["data"]["left_out"] == 50
    (note,) = await notes(wide)
    assert all(len(line["message"]) == MAX_LINE for line in note["data"]["lines"])
    assert len(json.dumps(note["data"])) < 50_000 and note["data"]["left_out"] > 0


async def test_the_command_line_logs_json(tmp_path: Path) -> None:
    """A worker process with a handler in a pool process: each line is a JSON object that names its job."""
    (tmp_path / "talker.py").write_text(
        "import logging\nfrom detent import Detent\napp = Detent('sqlite:///jobs.db')\n"
        "@app.job('loop')\nasync def loop():\n    logging.getLogger('lib').info('on the loop')\n"
        "@app.job('far', run_in='process')\ndef far():\n    logging.getLogger('lib').info('in a process')\n"
    )
    run = [sys.executable, "-m", "detent"]
    environment = {**os.environ, "PYTHONPATH": str(Path(detent.__file__).parent.parent)}
    async with Detent(f"sqlite:///{tmp_path}/jobs.db") as app:
        await (await app.ready()).jobs.submit_many([Submission("loop"), Submission("far")])
    ended = subprocess.run(
        [*run, "worker", "talker.py", "--until-idle", "--log-format", "json"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    lines = [json.loads(line) for line in ended.stderr.splitlines()]
    log_lines = {line["message"]: line for line in lines}
    assert log_lines["on the loop"]["job_type"] == "loop" and log_lines["in a process"]["job_type"] == "far"
