"""Events and progress reports of jobs, encoded as server-sent events."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from detent.core.contract.model import Contract, Phase
from detent.engine.payload_access import redact_entry, redact_job
from detent.engine.reads.views import event_view, progress_view, published
from detent.ports.tail import JobProgress, Position, TailEvent

PROGRESS = "job.progress"
_DATA = b"\ndata: "
_NAMES = ("job_type", "contract", "queue", "tenant_id")


@dataclass(frozen=True, slots=True)
class Frame:
    """A server-sent event: `full`, and `redacted` for tokens that may not see payloads."""

    job_id: str
    job_type: str
    contract: str
    queue: str
    tenant_id: str
    full: bytes
    redacted: bytes


@dataclass(frozen=True, slots=True)
class EventFrame(Frame):
    """An event of the log."""

    position: Position
    has_envelopes: bool
    is_final: bool
    """Whether the job is finished after this event."""


FrameFilter = Callable[[Frame], bool]
FrameEncoder = Callable[[Frame], bytes]
"""The bytes of a frame that a client gets; empty if the event is not sent to it."""


def encode_event(frame: Frame, *, payloads: bool) -> bytes:
    """The event as the job's log shows it, or the progress report."""
    return frame.full if payloads else frame.redacted


def encode_envelope(frame: Frame, *, payloads: bool) -> bytes:
    """The event under the name and with the body that its contract publishes; contracts publish no progress."""
    if not isinstance(frame, EventFrame):
        return b""
    view = json.loads(encode_event(frame, payloads=payloads).partition(_DATA)[2])
    message = published(view, has_envelopes=frame.has_envelopes)
    return _server_sent(message[0], message[1], frame.position) if message else b""


def frame_of(contract: Contract, tail_event: TailEvent) -> EventFrame:
    job, event = tail_event.job, tail_event.event
    full = _encode(contract, tail_event)
    redacted = _encode(contract, TailEvent(tail_event.position, redact_entry(event), redact_job(job)))
    names = {name: getattr(job, name) for name in _NAMES}
    return EventFrame(
        job.id,
        **names,
        full=full,
        redacted=full if redacted == full else redacted,
        position=tail_event.position,
        has_envelopes=contract.envelope is not None,
        is_final=job.phase is Phase.FINAL,
    )


def _encode(contract: Contract, tail_event: TailEvent) -> bytes:
    job = tail_event.job
    names = {name: getattr(job, name) for name in _NAMES}
    data = {"job_id": job.id, **names, **event_view(contract, job, tail_event.event)}
    return _server_sent(tail_event.event.event, data, tail_event.position)


def progress_frame(report: JobProgress) -> Frame:
    """Without an id: a client that reconnects continues after the last event of the log."""
    names = {name: getattr(report, name) for name in _NAMES}
    job_id = report.progress.job_id
    full, redacted = (
        _server_sent(PROGRESS, {"job_id": job_id, **names, **(progress_view(report.progress, payloads=payloads) or {})})
        for payloads in (True, False)
    )
    return Frame(job_id, **names, full=full, redacted=redacted)


def _server_sent(name: str, data: Mapping[str, Any], position: Position | None = None) -> bytes:
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    head = ("" if position is None else f"id: {position}\n") + f"event: {''.join(name.splitlines())}"
    return head.encode("utf-8", "backslashreplace") + _DATA + text.encode("utf-8", "backslashreplace") + b"\n\n"
