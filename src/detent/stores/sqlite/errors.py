"""Translates apsw errors to Detent errors."""

import apsw

from detent.core.errors import StoreRefused, StoreUnavailable


def translate(error: BaseException) -> BaseException:
    """The Detent error for an apsw error. Locked, full, read-only and broken files all become StoreUnavailable."""
    if not isinstance(error, apsw.Error):
        return error
    if isinstance(error, apsw.ConstraintError):
        return StoreRefused(f"the database refused a row that violates a constraint: {error}")
    return StoreUnavailable(f"SQLite: {type(error).__name__}: {error}; check the file, its disk and its permissions")
