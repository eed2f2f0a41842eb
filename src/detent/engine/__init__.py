"""The engine: every operation on jobs. Each runs in one store transaction; the job's contract decides each change."""

from detent.core.access import Scope

from .engine import BatchResult, Engine
from .execution.settle import Settlement
from .reads.views import History
from .submit.prepare import Submitted
from .submit.submission import Submission

__all__ = ["BatchResult", "Engine", "History", "Scope", "Settlement", "Submission", "Submitted"]
