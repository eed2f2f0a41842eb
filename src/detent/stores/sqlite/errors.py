"""Translates apsw errors to Detent errors."""

import apsw

from detent.core.errors import SchemaMismatch, StoreRefused, StoreUnavailable
from detent.stores.sql_files import SCHEMA_CHANGED

_SCHEMA_ERRORS = ("no such table", "no such column", "no such view", "has no column named")


def translate(error: BaseException) -> BaseException:
    """The Detent error for an apsw error. Locked, full, read-only and broken files all become StoreUnavailable."""
    if not isinstance(error, apsw.Error):
        return error
    if isinstance(error, apsw.ConstraintError):
        return StoreRefused(f"the database refused a row that violates a constraint: {error}")
    if isinstance(error, apsw.SQLError) and any(text in str(error) for text in _SCHEMA_ERRORS):
        return SchemaMismatch(SCHEMA_CHANGED.format(error))
    return StoreUnavailable(f"SQLite: {type(error).__name__}: {error}; check the file, its disk and its permissions")
