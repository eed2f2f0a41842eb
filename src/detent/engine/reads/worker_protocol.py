"""The JSON objects of the worker protocol over HTTP about a running job, declared as in `responses`."""

from typing import Annotated, Any, TypedDict

from .responses import Timestamp


class RecordedStep(TypedDict):
    """A step that the job has recorded."""

    name: str
    digest: Annotated[str, "The digest of its arguments, as the worker sent it."]
    result: Any
    finished: Annotated[bool, "False: it was begun and its end was not recorded."]
    execution_no: Annotated[int, "The execution that recorded it."]
    at: Timestamp


class ReceivedSignal(TypedDict):
    """A signal that was sent to the job, or a wait that timed out."""

    name: str
    data: Any
    timed_out: Annotated[bool, "True: no signal came before the timeout of the wait. Later ones do not change that."]
    at: Timestamp


class EnqueuedChild(TypedDict):
    """A child of the running job and its state."""

    name: str
    id: str
    job_type: str
    status: str
    ended: Annotated[bool, "True if it is finished."]
    succeeded: Annotated[bool, "True if it finished with a result."]
    result: Any
    error_code: str | None
    error_message: str | None


class ProgressResponse(TypedDict):
    cancel_requested: Annotated[bool, "True: clean up and settle with the outcome cancel."]


class LogResponse(TypedDict):
    stored: Annotated[int, "Number of lines of this call that were stored."]
    left_out: Annotated[int, "Number of lines of this call that were not: the last 200 lines and 32 KiB are kept."]


class DeregisterResponse(TypedDict):
    worker: Annotated[str, "The worker's id."]
