"""Each failed execution is one WARNING line, each dead letter one ERROR line, with job id, type and traceback."""

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from detent import Cancel, Context, Detent, EndedExecution, Fail, Retry, Snooze, SyncContext
from detent.core.job import Failure
from detent.core.outcome import Failed
from detent.engine import Engine, Submission
from detent.observability.job_logs import JsonFormatter, TextFormatter
from detent.ports.listing import Filter
from detent.worker.reporting import ExecutionReporter
from support.clock import FakeClock
from support.stores import make_engine, open_place
from support.streams.harness import StreamHarness
from support.waiting import until
from support.worker.running import working

pytestmark = pytest.mark.anyio
SECRET = "the payload is not logged"


class Records(logging.Handler):
    """Collects the lines of the logger `detent`, formatted as JSON."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter())
        self.lines: list[dict[str, Any]] = []
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        assert "\n" not in text and SECRET not in text
        self.lines.append(json.loads(text))
        self.records.append(record)

    def of(self, level: str, logger: str = "detent") -> list[dict[str, Any]]:
        """Without a logger: all lines of Detent, alerts included."""
        return [line for line in self.lines if line["level"] == level and line["logger"].startswith(logger)]


@pytest.fixture
def logged() -> Iterator[Records]:
    handler = Records()
    logging.getLogger("detent").addHandler(handler)
    yield handler
    logging.getLogger("detent").removeHandler(handler)


@pytest.fixture
async def shop(url: str) -> AsyncIterator[Detent]:
    app = Detent(url)
    engine = app.make_engine(may_migrate=True)
    await engine.open()
    await engine.close()
    async with app:
        yield app


async def fail_at_random(app: Detent, jobs: int, logged: Records) -> None:
    """Run jobs that fail at random, and compare the lines with what the handlers did and with the dead letters."""
    draw, raised = random.Random(7), list[str]()

    def raise_something(job_id: str) -> None:
        luck = draw.random()
        if luck < 0.3:
            return
        if luck < 0.33:
            raise Snooze(0)
        if luck < 0.36:
            raise Cancel("not needed")
        raised.append(job_id)
        if luck < 0.7:
            raise ValueError("it does not\nwork")
        raise Fail("no", code="NO", retryable=False) if luck < 0.8 else Retry("later", after=0)

    @app.job("loop", backoff=[0])
    async def on_the_loop(ctx: Context, note: str) -> None:
        raise_something(ctx.job_id)

    @app.job("thread", backoff=[0])
    def in_a_thread(ctx: SyncContext, note: str) -> None:
        raise_something(ctx.job_id)

    for start in range(0, jobs, 1_000):
        payloads = [{"note": SECRET}] * min(1_000, jobs - start)
        await on_the_loop.enqueue_many(payloads[::2])
        await in_a_thread.enqueue_many(payloads[1::2])
    worker = await app.worker(until_idle=True)
    assert await worker.run(handle_signals=False) == 0
    warnings, errors = (logged.of(level, "detent.executions") for level in ("WARNING", "ERROR"))
    assert sorted(line["job_id"] for line in warnings) == sorted(raised)
    dead_letters = await (await app.ready()).dead_letters.list(Filter(limit=jobs))
    assert sorted(line["dlq_id"] for line in errors) == sorted(item.id for item in dead_letters)
    assert 0 < len(errors) < len(warnings)
    for line in (*warnings, *errors):
        assert line["job_type"] in ("loop", "thread") and line["job_type"] in line["message"]
        assert "Traceback" in line["error"] and "raise_something" in line["error"]
    for line in warnings:
        assert line["event"] == "execution_failed" and line["job_id"] in line["message"]
        assert ("retry_in_seconds" in line) == ("retry " in line["message"])


async def test_jobs_that_fail_at_random(shop: Detent, logged: Records) -> None:
    await fail_at_random(shop, 300, logged)


@pytest.mark.drill
async def test_ten_thousand_jobs_that_fail_at_random(shop: Detent, logged: Records) -> None:
    await fail_at_random(shop, 10_000, logged)


async def test_the_lines_of_one_job(app: Detent, logged: Records) -> None:
    """The retry with its delay, then the dead letter; each record has the exception, for Sentry."""

    @app.job("charge", backoff=[0.001], max_retries=1)
    async def charge(note: str) -> None:
        raise ValueError("no  such\naccount")

    handle = await charge.using(tenant="acme", trace_id="trace-7").enqueue(note=SECRET)
    async with working(app):
        await until(lambda: logged.of("ERROR"))
    first, second, last = logged.lines
    start = f"job {handle.id} (charge) failed: JOB_EXECUTION_FAILED: ValueError: no such account;"
    assert first["message"] == f"{start} retry 1 of 1 in 0.001 s" and first["retry_in_seconds"] == 0.001
    assert second["message"] == f"{start} no further execution, it is failed" and "retry_in_seconds" not in second
    assert (
        last["message"] == f"job {handle.id} (charge) is dead letter {last['dlq_id']}: " + start[:-1].split(": ", 1)[1]
    )
    fields = {"job_id": handle.id, "job_type": "charge", "queue": "default", "tenant_id": "acme", "trace_id": "trace-7"}
    for execution_no, line in ((1, first), (2, second), (2, last)):
        assert fields.items() <= line.items() and line["execution_no"] == execution_no
        assert line["logger"] == "detent.executions" and line["error_code"] == "JOB_EXECUTION_FAILED"
    for record in logged.records:
        assert record.exc_info and isinstance(record.exc_info[1], ValueError)
        text = TextFormatter().format(record)
        assert text.count("Traceback") == 1 and logging.Formatter().format(record).count("Traceback") == 1
    assert "worker/runner.py" not in first["error"], "the traceback begins in the handler"


async def test_a_timeout_is_one_line(app: Detent, logged: Records) -> None:
    @app.job("slow", timeout=0.05, max_retries=0)
    async def slow() -> None:
        await asyncio.sleep(60)

    async with working(app):
        await slow.enqueue()
        await until(lambda: logged.of("ERROR"))
    (warning,) = logged.of("WARNING")
    assert warning["error_code"] == "JOB_TIMEOUT" and "longer than its timeout of 0.05 s" in warning["message"]
    assert len(logged.of("ERROR")) == 1


async def test_a_commit_whose_answer_was_lost_is_one_line(
    app: Detent, logged: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is settled again, which changes nothing; the line is written then, and only then."""
    original, answers = Engine._settle_and_claim, list[str]()

    async def lose_answer(self: Engine, settled: Any, request: Any) -> Any:
        result = await original(self, settled, request)
        if settled and not answers:
            answers.append("lost")
            raise ConnectionError("the answer was lost")
        return result

    monkeypatch.setattr(Engine, "_settle_and_claim", lose_answer)

    @app.job("fails", max_retries=0)
    async def fails() -> None:
        raise ValueError("broken")

    async with working(app):
        await fails.enqueue()
        await until(lambda: logged.of("ERROR"))
    assert answers and len(logged.of("WARNING", "detent.executions")) == 1
    assert len(logged.of("ERROR")) == 1


async def test_settlements_that_are_settled_alone(
    app: Detent, logged: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that cannot be written is settled one by one; each end is still reported once."""
    succeeded = list[str]()

    async def refuse(*_: Any) -> Any:
        raise ValueError("one of them cannot be written")

    monkeypatch.setattr(Engine, "_settle_mixed_batch", refuse)

    @app.on_success
    async def note(ended: EndedExecution) -> None:
        succeeded.append(ended.job_id)

    @app.job("some")
    async def some(fails: bool) -> None:
        if fails:
            raise Fail("no", retryable=False)

    async with working(app):
        good, bad = await some.enqueue_many([{"fails": False}, {"fails": True}])
        await until(lambda: logged.of("ERROR") and succeeded)
    assert succeeded == [good.id]
    assert [(line["level"], line["job_id"]) for line in logged.lines] == [("WARNING", bad.id), ("ERROR", bad.id)]


async def test_an_outcome_that_is_refused(app: Detent, logged: Records) -> None:
    """The job fails for good instead: one WARNING and one ERROR, as for its neighbour in the batch."""

    @app.job("refused")
    async def refused(after: float) -> None:
        raise Retry("soon", after=after) if after else Fail("no", retryable=False)

    async with working(app):
        handles = await refused.enqueue_many([{"after": -1}, {"after": 0}])
        await until(lambda: len(logged.of("ERROR")) == 2)
    assert sorted(line["job_id"] for line in logged.of("WARNING")) == sorted(handle.id for handle in handles)
    assert {line["error_code"] for line in logged.of("ERROR")} == {"RETRY_DELAY_INVALID", "JOB_EXECUTION_FAILED"}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["sqlite-inline", "postgres"])
async def engine(request: pytest.FixtureRequest, tmp_path: Any, clock: FakeClock) -> AsyncIterator[Engine]:
    place = open_place(request.param, tmp_path)
    engine = make_engine(place, clock)
    await engine.open()
    engine.observer = ExecutionReporter()
    yield engine
    await engine.close()
    place.close()


@pytest.mark.parametrize("contract", ["standard", "gate-b2", "p3c", "streams", "formal"])
async def test_a_lost_lease_is_one_line(engine: Engine, clock: FakeClock, logged: Records, contract: str) -> None:
    """Whatever the contract does about it: a retry, a release, or a new holder."""
    job = (await engine.jobs.submit(Submission("work", contract=contract))).job
    (held,) = await engine.claim(engine.claim_request("dies", 1, 30, job_types=frozenset({"work"})))
    clock.advance(31)
    await engine.expire()
    await engine.claim(engine.claim_request("takes", 1, 30, job_types=frozenset({"work"}), reclaim=True))
    (line,) = logged.lines
    assert line["level"] == "WARNING" and line["event"] == "lease_lost" and line["job_id"] == job.id == held.id
    assert "the lease of worker dies expired" in line["message"]


async def test_a_dead_letter_of_a_lost_worker(engine: Engine, clock: FakeClock, logged: Records) -> None:
    """No execution fails here: the sweep gives the job up, and the process that sweeps says so."""
    await engine.jobs.submit(Submission("work", contract="gate-b2", max_retries=None))
    for _ in range(20):
        request = engine.claim_request("dies", 1, 30, job_types=frozenset({"work"}))
        if await engine.claim(request):
            clock.advance(31)
            await engine.expire()
        clock.advance(120)
        await engine.wake()
    (dead_letter,) = await engine.dead_letters.list()
    (line,) = logged.of("ERROR")
    assert line["dlq_id"] == dead_letter.id and line["event"] == "dead_letter"
    assert {warning["event"] for warning in logged.of("WARNING")} == {"lease_lost"}


async def test_a_worker_over_http(engine: Engine, logged: Records) -> None:
    """Its settlements are logged by the server; a repeated request is not logged again."""
    await engine.jobs.submit(Submission("work", max_retries=0))
    (held,) = await engine.claim(engine.claim_request("other", 1, 30, job_types=frozenset({"work"})))
    for _ in range(2):
        await engine.settle(held.id, held.token, Failed(Failure("DISK_FULL", "no space left")))
    assert [line["level"] for line in logged.lines] == ["WARNING", "ERROR"]
    assert "DISK_FULL: no space left" in logged.lines[0]["message"]


@pytest.fixture
async def harness(engine: Engine, clock: FakeClock) -> AsyncIterator[StreamHarness]:
    harness = StreamHarness(engine, clock)
    yield harness
    await harness.close()


async def test_stream_workers_and_the_orchestrator(harness: StreamHarness, logged: Records) -> None:
    """A Detent worker whose handler raises; a foreign worker that reports a failure; a message that is no task."""
    failing = await harness.submit("fail", max_retries=0)
    await harness.work()
    foreign = await harness.submit("add", max_retries=0)
    await harness.publish()
    message_id, _ = harness.read()
    harness.report("failed", message_id, foreign.id, error="boom", error_code="BOOM", retryable="true")
    harness.report("failed", "1-1", "01a1e528-3acd-7000-a261-6adc6563a14a", error="whose?")
    await harness.apply_results()
    warnings = [line for line in logged.of("WARNING") if "event" in line]
    assert [line["job_id"] for line in warnings] == [failing.id, foreign.id]
    assert "it does not work" in warnings[0]["error"] and "BOOM: boom" in warnings[1]["message"]
    dead_letters = await harness.engine.dead_letters.list()
    assert sorted(line["dlq_id"] for line in logged.of("ERROR")) == sorted(item.id for item in dead_letters)
    assert len(dead_letters) == 3
