"""The engine: every act on a job, each one transaction on the store, each change decided by its contract."""

from .engine import BatchResult, Engine
from .execution.settle import Settlement
from .reads.views import History
from .submit.prepare import Submitted
from .submit.submission import Submission

__all__ = ["BatchResult", "Engine", "History", "Settlement", "Submission", "Submitted"]
