"""Postgres: many processes, many machines, one database."""

from detent.system.extras import extra_imports

with extra_imports():
    from .store import PostgresStore

__all__ = ["PostgresStore"]
