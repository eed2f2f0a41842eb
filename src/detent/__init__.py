"""Detent: durable jobs that can only be where their contract allows."""

from .app import Detent, Handle, JobDefinition
from .context import Context, SyncContext
from .core.contract import Contract, Edge, Move, Phase
from .core.errors import DetentError, JobFailed, OnceUnfinished, StaleLease, StepMismatch, StepOrphaned
from .outcomes import Cancel, Fail, Retry, Snooze, WaitTimeout
from .version import __version__

__all__ = [
    "Cancel",
    "Context",
    "Contract",
    "Detent",
    "DetentError",
    "Edge",
    "Fail",
    "Handle",
    "JobDefinition",
    "JobFailed",
    "Move",
    "OnceUnfinished",
    "Phase",
    "Retry",
    "Snooze",
    "StaleLease",
    "StepMismatch",
    "StepOrphaned",
    "SyncContext",
    "WaitTimeout",
    "__version__",
]
