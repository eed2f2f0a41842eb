"""Log lines with the id of their job: as text or JSON on stderr, and stored with the job if it captures logs."""

import asyncio
import json
import logging
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context, ContextVar
from threading import Lock
from typing import Any

from detent.core.errors import DetentError
from detent.core.job import LogLine, Micros
from detent.core.times import iso
from detent.engine import Engine
from detent.engine.execution.executions import MAX_LINE_BYTES, MAX_LINES
from detent.ports.claims import Claimed
from detent.ports.tx import OutputTable
from detent.system.tasks import wait_for_event

log = logging.getLogger("detent.observability.job_logs")

TEXT, JSON = "text", "json"
STORE_SECONDS = 1.0
"""How often the new lines of a running execution are stored."""
MAX_LINE = 2_000

current_job: ContextVar[Claimed | None] = ContextVar("detent_job", default=None)
"""The job whose handler runs here: in its task, in tasks it starts, in its thread or process."""
_capture: ContextVar["Capture | None"] = ContextVar("detent_capture", default=None)


def configure_logging(log_format: str, level: str = "info") -> None:
    """Make the root logger write to stderr in this format. Does nothing if the application has configured it."""
    configured_formats[:] = [(log_format, level)]
    handler = _StderrHandler()
    handler.setFormatter(JsonFormatter() if log_format == JSON else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])


configured_formats: list[tuple[str, str]] = []
"""Format and level of this process, for the processes it starts; empty if logging was not configured here."""


class _StderrHandler(logging.StreamHandler[Any]):
    """Writes to what `sys.stderr` is at that time: a live view on the terminal replaces it."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


class TextFormatter(logging.Formatter):
    """2030-01-31T12:00:00.000Z INFO detent.worker: message [job=… execution=2 trace=…]"""

    def format(self, record: logging.LogRecord) -> str:
        fields = _job_fields(record)
        short = {"job": fields.get("job_id"), "execution": fields.get("execution_no"), "trace": fields.get("trace_id")}
        suffix = " ".join(f"{name}={value}" for name, value in short.items() if value is not None)
        line = f"{_time(record)} {record.levelname} {record.name}: {record.getMessage()}"
        line = f"{line} [{suffix}]" if suffix else line
        return "\n".join([line, *filter(None, (_traceback(self, record), record.stack_info))])


class JsonFormatter(logging.Formatter):
    """One JSON object per line: at, level, logger, message, the fields of the job and of the event, the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        line = {"at": _time(record), "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        line |= _job_fields(record)
        texts = {name: record.__dict__.get(name) for name in _EVENT_FIELDS}
        texts |= {"error": _traceback(self, record), "stack": record.stack_info}
        line |= {name: value for name, value in texts.items() if value is not None}
        return json.dumps(line, ensure_ascii=False, default=str)


def _time(record: logging.LogRecord) -> str:
    return iso(int(record.created * 1_000_000)) or ""


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str | None:
    """As it was formatted in the process of the handler, or of the exception of this record."""
    text = record.exc_text or (formatter.formatException(record.exc_info) if record.exc_info else None)
    return text.rstrip("\n") if text else None


_EVENT_FIELDS = ("event", "error_code", "retry_in_seconds", "dlq_id", "blocked_seconds", "request_id")
_FIELDS = ("job_id", "job_type", "queue", "tenant_id", "execution_no", "trace_id")


def _job_fields(record: logging.LogRecord) -> dict[str, Any]:
    """Fields of the job: those the log call passed in `extra`, else those of the job whose handler runs here."""
    job = current_job.get()
    running = {} if job is None else {name: getattr(job, "id" if name == "job_id" else name) for name in _FIELDS}
    extra = {name: record.__dict__[name] for name in _FIELDS if name in record.__dict__}
    return {name: value for name, value in (running | extra).items() if value is not None}


class Capture:
    """Holds the last log lines of one execution, up to MAX_LINES and MAX_LINE_BYTES. Threads may add to it."""

    def __init__(self, execution_no: int) -> None:
        self.lines: deque[LogLine] = deque()
        self._execution_no = execution_no
        self._count = self._bytes = 0
        self._lock = Lock()

    def add(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            message = f"{message} ({type(record.exc_info[1]).__name__}: {record.exc_info[1]})"
        message = message[:MAX_LINE].encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")
        self._append(int(record.created * 1_000_000), record.levelname, record.name, message)

    def _append(self, at: Micros, level: str, logger: str, message: str) -> None:
        with self._lock:
            self._count += 1
            self._bytes += len(message)
            self.lines.append(LogLine(self._execution_no, self._count, at, level, logger, message))
            while len(self.lines) > MAX_LINES or (self._bytes > MAX_LINE_BYTES and len(self.lines) > 1):
                self._bytes -= len(self.lines.popleft().message)

    def lines_after(self, n: int) -> list[LogLine]:
        with self._lock:
            return [line for line in self.lines if line.n > n]

    def take_over(self, lines: Iterable[LogLine]) -> None:
        for line in lines:
            self._append(line.at, line.level, line.logger, line.message)


class _CaptureHandler(logging.Handler):
    """On the root logger: adds each record to the Capture of the execution it was logged in."""

    def emit(self, record: logging.LogRecord) -> None:
        capture = _capture.get()
        if capture is not None:
            try:
                capture.add(record)
            except Exception:
                self.handleError(record)


_handler = _CaptureHandler()


@contextmanager
def capturing(execution_no: int) -> Iterator[Capture]:
    """Collect the lines logged inside, also in tasks and threads that run with a copy of this context."""
    root = logging.getLogger()
    if _handler not in root.handlers:
        root.addHandler(_handler)
    capture = Capture(execution_no)
    token = _capture.set(capture)
    try:
        yield capture
    finally:
        _capture.reset(token)


def merge_captured(lines: Iterable[LogLine]) -> None:
    """Add what another process captured to the Capture of the execution that runs here."""
    capture = _capture.get()
    if capture is not None:
        capture.take_over(lines)


@asynccontextmanager
async def storing_logs(engine: Engine, claimed: Claimed) -> AsyncIterator[None]:
    """Capture the lines logged inside and store them with the job: new ones every second, the rest at the end."""
    with capturing(claimed.execution_no) as capture:
        writer = _LogWriter(engine, claimed, capture)
        task = asyncio.create_task(writer.run(), context=Context())
        try:
            yield
        finally:
            writer.stop.set()
            await task


class _LogWriter:
    """Stores the lines of one execution while it holds its lease. A failure is logged only: it must not cost the
    result of the job, and the next try stores the same lines."""

    def __init__(self, engine: Engine, claimed: Claimed, capture: Capture) -> None:
        self.stop = asyncio.Event()
        self._engine = engine
        self._claimed = claimed
        self._capture = capture
        self._stored = 0

    async def run(self) -> None:
        ended = False
        while not ended:
            ended = await wait_for_event(self.stop, STORE_SECONDS)  # lines logged while storing need another round
            try:
                await self._store_new()
            except DetentError as error:
                if ended:
                    log.warning("captured log lines could not be stored: %s", error)

    async def _store_new(self) -> None:
        lines = self._capture.lines_after(self._stored)
        if lines:
            first = self._capture.lines[0].n
            await self._engine.store.write(lambda tx: store_lines(tx.output, self._claimed, lines, first))
            self._stored = lines[-1].n


async def store_lines(output: OutputTable, claimed: Claimed, lines: Sequence[LogLine], first: int) -> bool:
    """Add these lines of an execution, and delete those before line `first`; False if it no longer holds the lease."""
    stored = await output.add_log_lines(claimed.id, lines, claimed.token)
    if stored and first > 1:
        await output.trim_log_lines(claimed.id, claimed.execution_no, first)
    return stored
