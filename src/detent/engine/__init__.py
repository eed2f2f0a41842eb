"""The engine: every operation on jobs. Each runs in one store transaction; the job's contract decides each change."""

from .engine import BatchResult, Engine
from .execution.settle import Settlement
from .reads.views import History
from .submit.prepare import Submitted
from .submit.submission import Submission

__all__ = ["BatchResult", "Engine", "History", "Settlement", "Submission", "Submitted"]
