"""Django with real servers: gunicorn and uvicorn, and restarts of Postgres under a worker."""

import asyncio
import socket
from pathlib import Path

import httpx
import psycopg
import pytest

from support.django.shop import manage, process
from support.servers.databases import migrated
from support.servers.postgres import free_port, running
from support.waiting import until_now

ORDERS = 2_000
SLOTS = 8
DETENT_CONNECTIONS = 14
"""Of a worker process; see docs/operate/postgres.md."""
PLACE = """
import sys, django
django.setup()
from django.db import connection, transaction
from orders.models import Order
from orders.tasks import jobs, process_order
for _ in range(int(sys.argv[1])):
    with transaction.atomic():
        order = Order.objects.create(customer="eve@example.com", amount=100)
        process_order.enqueue_in_sync(connection, order_id=order.pk, amount=100)
jobs.sync.close()
"""
COUNTS = """SELECT (SELECT count(*) FROM detent.jobs WHERE state & 3 <> 3),
(SELECT count(*) FROM orders_order WHERE status = 'paid'),
(SELECT count(*) FROM detent.jobs JOIN detent.states s ON s.id = state WHERE s.status = 'succeeded'),
(SELECT count(*) FROM pg_stat_activity WHERE application_name = 'django'),
(SELECT count(*) FROM pg_stat_activity WHERE application_name = '' AND backend_type = 'client backend')"""


class Watch:
    """Counts over a connection of its own, which is replaced after a restart; keeps the peaks of open connections."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection | None = None
        self.django = self.detent = self.jobs = self.paid = self.unfinished = 0

    def look(self) -> "Watch":
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._url, autocommit=True, application_name="test")
        ((self.unfinished, self.paid, self.jobs, django, detent),) = self._connection.execute(COUNTS).fetchall()
        self.django, self.detent = max(self.django, django), max(self.detent, detent)
        return self

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@pytest.mark.drill
def test_postgres_is_restarted_twice_under_a_worker(tmp_path: Path) -> None:
    """Each order is a job and the task of its mail. No job fails for good; connections stay within the documented."""
    with running() as server:
        url = server.url()
        asyncio.run(migrated(url))
        manage(url, "manage.py", "migrate", "-v", "0")
        manage(url, "-c", PLACE, str(ORDERS))
        watch = Watch(url)
        log = tmp_path / "worker.log"
        with process(url, log, "manage.py", "detent", "worker", "--slots", str(SLOTS)) as worker:
            for paid, mode in ((ORDERS // 4, "fast"), (ORDERS * 3 // 5, "immediate")):
                until_now(lambda least=paid: watch.look().paid >= least, 300)
                watch.close()
                server.stop(mode)
                server.start()
            until_now(lambda: watch.look().unfinished == 0 or worker.poll() is not None, 300)
            assert worker.poll() is None, log.read_text()[-3_000:]
        with psycopg.connect(url) as connection:
            ((dead,),) = connection.execute("SELECT count(*) FROM detent.dead_letters").fetchall()
            ((retried,),) = connection.execute("SELECT count(*) FROM detent.jobs WHERE retries > 0").fetchall()
        print(f"{ORDERS} orders, {watch.jobs} jobs, {retried} retried, {dead} dead letters")
        print(f"at most {watch.django} connections of Django and {watch.detent} of Detent")
        assert (watch.paid, watch.jobs, dead) == (ORDERS, 2 * ORDERS, 0), "each mail is enqueued once"
        assert watch.django <= SLOTS and watch.detent <= DETENT_CONNECTIONS
        assert "no violations" in manage(url, "manage.py", "detent", "verify")
        watch.close()


GUNICORN = ("-m", "gunicorn", "--workers", "2", "--threads", "4")


@pytest.mark.drill
@pytest.mark.parametrize(
    "command",
    [
        (*GUNICORN, "shop.wsgi"),
        (*GUNICORN, "--preload", "shop.wsgi"),
        (*GUNICORN, "--preload", "--max-requests", "40", "shop.wsgi"),
        ("-m", "uvicorn", "shop.asgi:application"),
    ],
    ids=["prefork", "preload", "preload-recycled", "uvicorn"],
)
def test_orders_through_a_server(command: tuple[str, ...], tmp_path: Path) -> None:
    orders = 200
    with running() as server:
        url, port = server.url(), free_port()
        asyncio.run(migrated(url))
        manage(url, "manage.py", "migrate", "-v", "0")
        address = ("--port", str(port)) if "uvicorn" in command else ("--bind", f"127.0.0.1:{port}")
        log = tmp_path / "server.log"
        watch = Watch(url)
        with process(url, log, *command[:-1], *address, command[-1]) as started:
            until_now(lambda: listens(port))
            answers = asyncio.run(place(port, orders))
            assert answers == [201] * orders, log.read_text()[-3_000:]
            watch.look()
            print(f"{watch.django} connections of Django and {watch.detent} of Detent in all server processes")
            with process(url, tmp_path / "worker.log", "manage.py", "detent", "worker", "--slots", "8"):
                until_now(lambda: watch.look().jobs == 2 * orders, 120)
            assert started.poll() is None
        assert watch.paid == orders
        assert "no violations" in manage(url, "manage.py", "detent", "verify")
        watch.close()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def place(port: int, orders: int) -> list[int]:
    """Eight orders at a time. A worker process that is recycled may close a kept connection, so none is kept."""
    limit = asyncio.Semaphore(8)
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", timeout=60, headers={"Connection": "close"}
    ) as client:

        async def place_one() -> int:
            async with limit:
                answer = await client.post("/orders/", json={"customer": "eve@example.com", "amount": 100})
                return answer.status_code

        return await asyncio.gather(*(place_one() for _ in range(orders)))
