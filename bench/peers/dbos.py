"""DBOS Transact on Postgres: a queue polled every 20 ms; one workflow row a job is kept."""

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
def piece(number: int) -> int:
    return number


@DBOS.workflow()
def stepped() -> None:
    for number in range(STEPS):
        piece(number)
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


class OnDbos(Peer):
    has_steps = True

    def open(self) -> None:
        launch("schema")  # launching makes the tables
        DBOS.destroy()
        self.client = DBOSClient(system_database_url=URL)
        self.aside = psycopg.connect(URL, autocommit=True)

    def reset(self) -> None:
        self.aside.execute("TRUNCATE dbos.workflow_status CASCADE")

    def one(self, caller: int) -> None:
        self.client.enqueue({"queue_name": "q", "workflow_name": noop.__qualname__})

    def stepped(self, jobs: int) -> None:
        for _ in range(jobs):
            self.client.enqueue({"queue_name": "q", "workflow_name": stepped.__qualname__})

    def left(self) -> int:
        row = self.aside.execute(_LEFT).fetchone()
        return int(row[0]) if row else 0

    def stamp(self, sent: float) -> None:
        self.client.enqueue({"queue_name": "q", "workflow_name": stamp.__qualname__}, sent)

    def close(self) -> None:
        self.client.destroy()
        self.aside.close()

    def work(self) -> None:
        launch("worker")
        at_once = CONNECTIONS if PART == "steps" else None  # more than its pool has run into timeouts
        DBOS.register_queue("q", polling_interval_sec=POLL_SECONDS, worker_concurrency=at_once)
        threading.Event().wait()


PEER = OnDbos
