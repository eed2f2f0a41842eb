"""The outcome of an execution: of the value that its handler returned, or of the exception that it raised."""

import traceback
from collections.abc import Mapping
from typing import Any

from detent.core.errors import DetentError
from detent.core.job import Failure
from detent.core.outcome import Cancelled, Failed, Outcome, Snoozed, Succeeded, Waits
from detent.core.times import SECOND
from detent.handler.handler import Handler
from detent.handler.outcomes import Cancel, Fail, Retry, Snooze, Suspend

MAX_MESSAGE = 2_000
MAX_TRACEBACK = 8_000
MAX_CODE = 200
_SUCCEEDED_WITHOUT_RESULT = Succeeded(None)
Codes = Mapping[str, str | None]


def succeeded(handler: Handler, value: Any) -> Outcome:
    if value is None and handler.result is None:
        return _SUCCEEDED_WITHOUT_RESULT
    return Succeeded(handler.result_text(value))


def outcome_of(error: BaseException, handler: Handler, codes: Codes) -> Outcome:
    """The outcome of an execution that ended with this exception. An exception whose str() raises is a failure too."""
    try:
        if isinstance(error, Suspend):
            return Waits(error.wait)
        if isinstance(error, Snooze):
            return Snoozed(int(error.seconds * SECOND))
        if isinstance(error, Cancel):
            return Cancelled(str(error.reason))
        return Failed(failure_of(error, handler, codes))
    except Exception as unreadable:
        name = type(error).__name__
        message = f"{name}, whose message cannot be read: {type(unreadable).__name__}: {unreadable}"
        return Failed(Failure(codes["execution_failed"] or "", message[:MAX_MESSAGE], name, False))


def failure_of(error: BaseException, handler: Handler, codes: Codes) -> Failure:
    """The failure to record for an exception: code, retryable or not, and the traceback, cut to a maximum length."""
    name = type(error).__name__
    message = (str(error) or name)[:MAX_MESSAGE]
    failed = codes["execution_failed"] or ""
    if isinstance(error, Fail):
        return Failure(str(error.code)[:MAX_CODE], message, name, error.retryable)
    if isinstance(error, Retry):
        after = None if error.after is None else int(error.after * SECOND)
        return Failure(failed, message, name, True, after=after)
    if isinstance(error, DetentError) and not error.retryable:
        code = (codes["payload_invalid"] if error.code == "PAYLOAD_INVALID" else error.code) or failed
        text = error.message[:MAX_MESSAGE] if code == error.code else message  # str(error) begins with the code
        return Failure(code, text, name, False)
    retryable = None
    if isinstance(error, handler.options.permanent_errors):
        retryable = False
    elif isinstance(error, handler.options.retryable_errors):
        retryable = True
    text = "".join(traceback.format_exception(error))[-MAX_TRACEBACK:]
    return Failure(failed, f"{name}: {message}" if message != name else name, name, retryable, text)
