"""Callers with a connection of their own, all driven by the same words."""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import asyncpg
import psycopg
from psycopg.rows import dict_row
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from detent import JobDefinition


class Caller(Protocol):
    """One connection, one transaction at a time; the caller's own table is `orders`."""

    async def open(self, url: str) -> None: ...

    async def begin(self, level: str = "read committed") -> None: ...

    async def order(self, number: int) -> None: ...

    async def enqueue(self, job: JobDefinition[..., Any], **arguments: Any) -> Any: ...

    async def run(self, statement: str) -> None:
        """Run a statement of the application."""
        ...

    async def commit(self) -> None: ...

    async def rollback(self) -> None: ...

    async def close(self) -> None: ...


class WithAsyncpg:
    async def open(self, url: str) -> None:
        self.connection: Any = await asyncpg.connect(url)

    async def begin(self, level: str = "read committed") -> None:
        self._transaction = self.connection.transaction(isolation=level.replace(" ", "_"))
        await self._transaction.start()

    async def order(self, number: int) -> None:
        await self.connection.execute("INSERT INTO orders VALUES ($1)", number)

    async def enqueue(self, job: JobDefinition[..., Any], **arguments: Any) -> Any:
        return await job.enqueue_in(self.connection, **arguments)

    async def run(self, statement: str) -> None:
        await self.connection.execute(statement)

    async def commit(self) -> None:
        await self._transaction.commit()

    async def rollback(self) -> None:
        await self._transaction.rollback()

    async def close(self) -> None:
        await self.connection.close()


class WithPsycopg:
    async def open(self, url: str) -> None:
        self.connection: Any = await psycopg.AsyncConnection.connect(url, row_factory=dict_row)

    async def begin(self, level: str = "read committed") -> None:
        """It begins by itself with the first statement."""
        await self.connection.set_isolation_level(psycopg.IsolationLevel[level.upper().replace(" ", "_")])

    async def order(self, number: int) -> None:
        await self.connection.execute("INSERT INTO orders VALUES (%s)", [number])

    async def enqueue(self, job: JobDefinition[..., Any], **arguments: Any) -> Any:
        return await job.enqueue_in(self.connection, **arguments)

    async def run(self, statement: str) -> None:
        await self.connection.execute(statement)

    async def commit(self) -> None:
        await self.connection.commit()

    async def rollback(self) -> None:
        await self.connection.rollback()

    async def close(self) -> None:
        await self.connection.close()


class WithPsycopgSync:
    async def open(self, url: str) -> None:
        self.connection: Any = psycopg.connect(url)

    async def begin(self, level: str = "read committed") -> None:
        self.connection.set_isolation_level(psycopg.IsolationLevel[level.upper().replace(" ", "_")])

    async def order(self, number: int) -> None:
        self.connection.execute("INSERT INTO orders VALUES (%s)", [number])

    async def enqueue(self, job: JobDefinition[..., Any], **arguments: Any) -> Any:
        return job.enqueue_in_sync(self.connection, **arguments)

    async def run(self, statement: str) -> None:
        self.connection.execute(statement)

    async def commit(self) -> None:
        self.connection.commit()

    async def rollback(self) -> None:
        self.connection.rollback()

    async def close(self) -> None:
        self.connection.close()


class WithSqlalchemy:
    """An AsyncSession or AsyncConnection; SQLAlchemy begins with the first statement."""

    def __init__(self, kind: type[AsyncSession] | type[AsyncConnection], dialect: str) -> None:
        self._kind = kind
        self._dialect = dialect

    async def open(self, url: str) -> None:
        engine = create_async_engine(url.replace("postgresql:", f"postgresql+{self._dialect}:"), poolclass=NullPool)
        self.connection: Any = await self._kind(engine).__aenter__()

    async def begin(self, level: str = "read committed") -> None:
        options = {"isolation_level": level.upper()}
        if self._kind is AsyncSession:
            await self.connection.connection(execution_options=options)
        else:
            await self.connection.execution_options(**options)

    async def order(self, number: int) -> None:
        await self.connection.execute(text("INSERT INTO orders VALUES (:number)"), {"number": number})

    async def enqueue(self, job: JobDefinition[..., Any], **arguments: Any) -> Any:
        return await job.enqueue_in(self.connection, **arguments)

    async def run(self, statement: str) -> None:
        await self.connection.execute(text(statement))

    async def commit(self) -> None:
        await self.connection.commit()

    async def rollback(self) -> None:
        await self.connection.rollback()

    async def close(self) -> None:
        await self.connection.close()


class WithSqlalchemySync:
    """A blocking Session or Connection, from a plain function or from a coroutine."""

    def __init__(self, kind: type[Session] | type[Connection], *, awaits: bool) -> None:
        self._kind = kind
        self._awaits = awaits

    async def open(self, url: str) -> None:
        engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=NullPool)
        self.connection: Any = self._kind(engine)

    async def begin(self, level: str = "read committed") -> None:
        options = {"isolation_level": level.upper()}
        if self._kind is Session:
            self.connection.connection(execution_options=options)
        else:
            self.connection.execution_options(**options)

    async def order(self, number: int) -> None:
        self.connection.execute(text("INSERT INTO orders VALUES (:number)"), {"number": number})

    async def enqueue(self, job: JobDefinition[..., Any], **arguments: Any) -> Any:
        if self._awaits:
            return await job.enqueue_in(self.connection, **arguments)
        return job.enqueue_in_sync(self.connection, **arguments)

    async def run(self, statement: str) -> None:
        self.connection.execute(text(statement))

    async def commit(self) -> None:
        self.connection.commit()

    async def rollback(self) -> None:
        self.connection.rollback()

    async def close(self) -> None:
        self.connection.close()


CALLERS: dict[str, Callable[[], Caller]] = {
    "asyncpg": WithAsyncpg,
    "psycopg": WithPsycopg,
    "psycopg-sync": WithPsycopgSync,
    "async-session-asyncpg": partial(WithSqlalchemy, AsyncSession, "asyncpg"),
    "async-session-psycopg": partial(WithSqlalchemy, AsyncSession, "psycopg"),
    "async-connection-asyncpg": partial(WithSqlalchemy, AsyncConnection, "asyncpg"),
    "session": partial(WithSqlalchemySync, Session, awaits=False),
    "session-awaited": partial(WithSqlalchemySync, Session, awaits=True),
    "connection": partial(WithSqlalchemySync, Connection, awaits=False),
}
