"""Handlers that use a SQLAlchemy session: `detent worker examples/sqlalchemy_orm.py`, on the Postgres of $DETENT_URL.

One engine per process and one session per job. `pool_pre_ping` tests a connection before a job gets it and replaces it
if the server has been restarted; `pool_size` and `max_overflow` limit the connections, whatever the number of slots.
"""

import os

from sqlalchemy import create_engine, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.engine import make_url
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from detent import Detent

app = Detent()
engine = create_engine(
    make_url(os.environ["DETENT_URL"]).set(drivername="postgresql+psycopg"),
    pool_pre_ping=True,
    pool_size=4,
    max_overflow=0,
    connect_args={"application_name": "orders"},
)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "shop_orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    paid: Mapped[bool]


@app.job("pay", max_retries=0)
def pay(order: int) -> int:
    with Session(engine) as session, session.begin():
        values = {"id": order, "paid": True}
        session.execute(insert(Order).values(values).on_conflict_do_update(index_elements=["id"], set_=values))
        return session.scalar(select(func.count()).where(Order.id == order, Order.paid)) or 0
