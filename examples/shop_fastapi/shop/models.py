"""The tables, and the session of a request."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime

from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

URL = os.environ.get("DATABASE_URL", "postgresql://localhost/shop")
engine = create_engine(URL.replace("postgresql:", "postgresql+psycopg:"))


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    amount: Mapped[int]
    status: Mapped[str] = mapped_column(default="new")
    receipt: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(default=lambda: datetime.now(UTC))


class Report(Base):
    __tablename__ = "reports"

    day: Mapped[str] = mapped_column(primary_key=True)
    orders: Mapped[int]
    amount: Mapped[int]


def get_session() -> Iterator[Session]:
    """One transaction for a request: it commits if the endpoint returns."""
    with Session(engine) as session, session.begin():
        yield session
