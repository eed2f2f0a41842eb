"""Detent: durable background jobs for Python, on one SQLite file or on Postgres.

    from detent import Context, Detent

    app = Detent("sqlite:///jobs.db")

    @app.job("greet")
    async def greet(ctx: Context, name: str) -> str:
        return f"hello {name}"

    handle = await greet.enqueue(name="world")
    print(await handle.result(timeout=10))

`detent worker FILE` runs the jobs of a file, `detent up FILE` adds the API and the dashboard. Start with
`help(Detent)`, `help(Detent.job)` and `help(Context)`. Tools for tests are in `detent.testing`.
"""

from detent.client.app import Detent
from detent.client.handles import Handle
from detent.client.job import JobDefinition
from detent.client.workflow import Workflow, WorkflowInvalid
from detent.core.approval_rules import ApprovalPolicy, ApprovalRule
from detent.core.contract.formal import FORMAL
from detent.core.contract.gate_b2 import GATE_B2
from detent.core.contract.men import MEN
from detent.core.contract.model import Contract, Edge, Move, Phase
from detent.core.contract.p3c import P3C
from detent.core.contract.replay import derive_status, replay
from detent.core.contract.standard import STANDARD
from detent.core.contract.streams import STREAMS
from detent.core.errors import DetentError, JobFailed, OnceUnfinished, StaleLease, StepMismatch, StepOrphaned
from detent.core.options.backoff import Exponential, Fixed
from detent.handler.approvals import ApprovalExpired, Decision
from detent.handler.children import Child, ChildFailed
from detent.handler.context import Context
from detent.handler.hooks import EndedExecution
from detent.handler.outcomes import Cancel, CancelRequested, Fail, Retry, Snooze, SoftTimeout, WaitTimeout
from detent.handler.sync_context import SyncContext
from detent.version import __version__

__all__ = [
    "FORMAL",
    "GATE_B2",
    "MEN",
    "P3C",
    "STANDARD",
    "STREAMS",
    "ApprovalExpired",
    "ApprovalPolicy",
    "ApprovalRule",
    "Cancel",
    "CancelRequested",
    "Child",
    "ChildFailed",
    "Context",
    "Contract",
    "Decision",
    "Detent",
    "DetentError",
    "Edge",
    "EndedExecution",
    "Exponential",
    "Fail",
    "Fixed",
    "Handle",
    "JobDefinition",
    "JobFailed",
    "Move",
    "OnceUnfinished",
    "Phase",
    "Retry",
    "Snooze",
    "SoftTimeout",
    "StaleLease",
    "StepMismatch",
    "StepOrphaned",
    "SyncContext",
    "WaitTimeout",
    "Workflow",
    "WorkflowInvalid",
    "__version__",
    "derive_status",
    "replay",
]
