"""SQLite: one file, several processes, no server."""

from .store import SqliteStore

__all__ = ["SqliteStore"]
