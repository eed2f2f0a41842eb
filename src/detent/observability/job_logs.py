"""Log lines with the id of their job: as text or JSON on stderr, and stored with the job if it captures logs."""

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from detent.core.times import iso
from detent.engine import Engine
from detent.engine.execution.steps import add_note
from detent.ports.claims import Claimed

TEXT, JSON = "text", "json"
CAPTURED = "log"
"""The name of the note that holds the captured lines of an execution."""
MAX_LINES = 200
MAX_BYTES = 32_768
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


_EVENT_FIELDS = ("event", "error_code", "retry_in_seconds", "dlq_id", "blocked_seconds")
_FIELDS = ("job_id", "job_type", "queue", "tenant_id", "execution_no", "trace_id")


def _job_fields(record: logging.LogRecord) -> dict[str, Any]:
    """Fields of the job: those the log call passed in `extra`, else those of the job whose handler runs here."""
    job = current_job.get()
    running = {} if job is None else {name: getattr(job, "id" if name == "job_id" else name) for name in _FIELDS}
    extra = {name: record.__dict__[name] for name in _FIELDS if name in record.__dict__}
    return {name: value for name, value in (running | extra).items() if value is not None}


class Capture:
    """Collects the first log lines of one execution, up to MAX_LINES and MAX_BYTES, and counts the others."""

    def __init__(self) -> None:
        self.lines: list[dict[str, str]] = []
        self.left_out = 0
        self._bytes = 0

    def add(self, record: logging.LogRecord) -> None:
        if len(self.lines) >= MAX_LINES or self._bytes >= MAX_BYTES:
            self.left_out += 1
            return
        message = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            message = f"{message} ({type(record.exc_info[1]).__name__}: {record.exc_info[1]})"
        message = message[:MAX_LINE].encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")
        self._bytes += len(message)
        self.lines.append({"at": _time(record), "level": record.levelname, "logger": record.name, "message": message})


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
def capturing() -> Iterator[Capture]:
    """Collect the lines logged inside, also in tasks and threads that run with a copy of this context."""
    root = logging.getLogger()
    if _handler not in root.handlers:
        root.addHandler(_handler)
    capture = Capture()
    token = _capture.set(capture)
    try:
        yield capture
    finally:
        _capture.reset(token)


def merge_captured(other: Capture) -> None:
    """Add what another process captured to the Capture of the execution that runs here."""
    capture = _capture.get()
    if capture is not None:
        capture.lines += other.lines
        capture.left_out += other.left_out


async def store_lines(engine: Engine, claimed: Claimed, capture: Capture) -> None:
    """Store the captured lines as a note of the job, if this execution still holds the lease."""
    data = {"lines": capture.lines, **({"left_out": capture.left_out} if capture.left_out else {})}
    await add_note(engine, claimed, CAPTURED, data)
