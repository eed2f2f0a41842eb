"""DBOS Transact on Postgres: a queue polled every 20 ms; one workflow row per job is kept."""

import threading

import psycopg
from dbos import DBOS, DBOSClient, DBOSConfig

from .counting import handled, picked_up
from .protocol import PART, STEPS, URL, Peer

POLL_SECONDS = 0.02
CONNECTIONS = 20
_LEFT = "SELECT count(*) FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING')"


@DBOS.workflow()
def noop() -> None:
    handled()


@DBOS.step()
def step(number: int) -> int:
    return number


@DBOS.workflow()
def stepped() -> None:
    for number in range(STEPS):
        step(number)
    handled()


@DBOS.workflow()
def stamp(sent: float) -> None:
    picked_up(sent)


def launch(executor: str) -> None:
    settings: DBOSConfig = {
        "name": "bench",
        "system_database_url": URL,
        "log_level": "WARNING",
        "application_version": "1",
        "executor_id": executor,
    }
    DBOS(config=settings)
    DBOS.launch()


class DbosPeer(Peer):
    has_steps = True

    def open(self) -> None:
        launch("schema")  # launch creates the tables
        DBOS.destroy()
        self.client = DBOSClient(system_database_url=URL)
        self.side_connection = psycopg.connect(URL, autocommit=True)

    def reset(self) -> None:
        self.side_connection.execute("TRUNCATE dbos.workflow_status CASCADE")

    def enqueue(self, caller: int) -> None:
        self.client.enqueue({"queue_name": "q", "workflow_name": noop.__qualname__})

    def enqueue_with_steps(self, jobs: int) -> None:
        for _ in range(jobs):
            self.client.enqueue({"queue_name": "q", "workflow_name": stepped.__qualname__})

    def remaining(self) -> int:
        row = self.side_connection.execute(_LEFT).fetchone()
        return int(row[0]) if row else 0

    def enqueue_stamped(self, sent: float) -> None:
        self.client.enqueue({"queue_name": "q", "workflow_name": stamp.__qualname__}, sent)

    def close(self) -> None:
        self.client.destroy()
        self.side_connection.close()

    def work(self) -> None:
        launch("worker")
        concurrency = CONNECTIONS if PART == "steps" else None  # with more than its pool size, steps time out
        DBOS.register_queue("q", polling_interval_sec=POLL_SECONDS, worker_concurrency=concurrency)
        threading.Event().wait()


PEER = DbosPeer
