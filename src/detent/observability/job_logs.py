"""Log lines that know their job: text for people, JSON for programs, and kept beside the job if it asks for that."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from detent.core.job import Micros, Note
from detent.core.times import iso
from detent.engine import Engine
from detent.ports.claims import Claimed
from detent.ports.tx import Tx

TEXT, JSON = "text", "json"
FORMATS = (TEXT, JSON)
CAPTURED = "log"
"""The name of the note that holds what an execution logged."""
MAX_LINES = 200
MAX_BYTES = 32_768
MAX_LINE = 2_000

bound: ContextVar[Claimed | None] = ContextVar("detent_job", default=None)
"""The job whose handler runs here: on its task, on tasks it starts, in its thread or process."""
_capture: ContextVar["Capture | None"] = ContextVar("detent_capture", default=None)


def set_up(form: str, level: int = logging.INFO) -> None:
    """Let the root logger write to stderr in this form, unless the application has set it up otherwise."""
    chosen[:] = [form]
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLine() if form == JSON else TextLine())
    logging.basicConfig(level=level, handlers=[handler])


chosen: list[str] = []
"""The form this process was set up with, for the processes it starts."""


class TextLine(logging.Formatter):
    """2030-01-31T12:00:00.000Z INFO detent.worker: message [job=… execution=2 trace=…]"""

    def format(self, record: logging.LogRecord) -> str:
        about = _about(record)
        short = {"job": about.get("job_id"), "execution": about.get("execution_no"), "trace": about.get("trace_id")}
        told = " ".join(f"{name}={value}" for name, value in short.items() if value is not None)
        line = f"{_at(record)} {record.levelname} {record.name}: {record.getMessage()}"
        line = f"{line} [{told}]" if told else line
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonLine(logging.Formatter):
    """One JSON object a line: at, level, logger, message, and what is known of the job."""

    def format(self, record: logging.LogRecord) -> str:
        line = {"at": _at(record), "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        line |= _about(record)
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def _at(record: logging.LogRecord) -> str:
    return iso(int(record.created * 1_000_000)) or ""


_FIELDS = ("job_id", "job_type", "queue", "tenant_id", "execution_no", "trace_id")


def _about(record: logging.LogRecord) -> dict[str, Any]:
    """What a line says of its job itself, else the job whose handler runs here."""
    job = bound.get()
    known = {} if job is None else {name: getattr(job, "id" if name == "job_id" else name) for name in _FIELDS}
    said = {name: record.__dict__[name] for name in _FIELDS if name in record.__dict__}
    return {name: value for name, value in (known | said).items() if value is not None}


class Capture:
    """What one execution logged: the first lines, up to a bound, and how many were left out."""

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
        self.lines.append({"at": _at(record), "level": record.levelname, "logger": record.name, "message": message})

    def note(self, claimed: Claimed, seq: int, worker: str | None, now: Micros) -> Note:
        data: dict[str, Any] = {"lines": self.lines}
        if self.left_out:
            data["left_out"] = self.left_out
        return Note(claimed.id, seq, CAPTURED, now, worker, claimed.execution_no, data)


class _Catcher(logging.Handler):
    """At the root: hands each line to the capture of the execution it belongs to."""

    def emit(self, record: logging.LogRecord) -> None:
        capture = _capture.get()
        if capture is not None:
            try:
                capture.add(record)
            except Exception:
                self.handleError(record)


_catcher = _Catcher()


@contextmanager
def capturing() -> Iterator[Capture]:
    """Lines logged inside, wherever the context goes along, are kept."""
    root = logging.getLogger()
    if _catcher not in root.handlers:
        root.addHandler(_catcher)
    capture = Capture()
    token = _capture.set(capture)
    try:
        yield capture
    finally:
        _capture.reset(token)


async def keep(engine: Engine, claimed: Claimed, capture: Capture) -> None:
    """Write the captured lines beside the job's log, while the job is still ours."""

    async def act(tx: Tx) -> None:
        row = (await tx.lock([claimed.id])).get(claimed.id)
        if row is not None and row.token == claimed.token and row.worker:
            await tx.add_notes([capture.note(claimed, row.version, row.worker, max(tx.now, row.updated_at))])

    await engine.store.write(act)
