"""Postgres: many processes, many machines, one database."""

from .store import PostgresStore

__all__ = ["PostgresStore"]
