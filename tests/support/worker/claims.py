"""Claims and batch results for tests of WorkerState, which uses no store."""

from detent.core.times import SECOND
from detent.engine import BatchResult
from detent.handler.lease import Reading
from detent.ports.claims import Claimed

CODES = {"standard": "TIMEOUT", "men": "TASK_TIMEOUT"}


def claimed(job_id: str = "a", token: str = "t1", contract: str = "standard", timeout_ms: int | None = None) -> Claimed:
    return Claimed(
        job_id, token, contract, "mail", "default", "default", "{}", 1, 0, 2, timeout_ms, None, job_id, None, None
    )


def at(seconds: float) -> Reading:
    """Both clocks after this time."""
    return Reading(seconds, round(seconds * SECOND))


def answer(*ids: str, token: str = "t1") -> BatchResult:
    return BatchResult([claimed(job_id, token) for job_id in ids])
