"""Detent: durable jobs that can only be where their contract allows."""

from .app import Detent, Handle, JobDefinition
from .children import Child, ChildFailed
from .context import Context, SyncContext
from .core.contract import Contract, Edge, Move, Phase
from .core.errors import DetentError, JobFailed, OnceUnfinished, StaleLease, StepMismatch, StepOrphaned
from .decisions import ApprovalExpired, Decision
from .guard import Guard, Rule
from .outcomes import Cancel, Fail, Retry, Snooze, WaitTimeout
from .version import __version__
from .workflow import Workflow, WorkflowInvalid

__all__ = [
    "ApprovalExpired",
    "Cancel",
    "Child",
    "ChildFailed",
    "Context",
    "Contract",
    "Decision",
    "Detent",
    "DetentError",
    "Edge",
    "Fail",
    "Guard",
    "Handle",
    "JobDefinition",
    "JobFailed",
    "Move",
    "OnceUnfinished",
    "Phase",
    "Retry",
    "Rule",
    "Snooze",
    "StaleLease",
    "StepMismatch",
    "StepOrphaned",
    "SyncContext",
    "WaitTimeout",
    "Workflow",
    "WorkflowInvalid",
    "__version__",
]
