"""huey on SQLite: one worker thread, polled every 10 ms; at most once. Variant fsync: a sync at every commit."""

from huey import SqliteHuey

from .counting import handled, picked_up
from .protocol import URL, VARIANT, Peer, exec_program

app = SqliteHuey("q", filename=URL, **({"fsync": True} if VARIANT == "fsync" else {}))


@app.task()
def noop() -> None:
    handled()


@app.task()
def stamp(sent: float) -> None:
    picked_up(sent)


class HueyPeer(Peer):
    def reset(self) -> None:
        app.flush()

    def enqueue(self, caller: int) -> None:
        noop()

    def remaining(self) -> int:
        return int(app.pending_count())

    def enqueue_stamped(self, sent: float) -> None:
        stamp(sent)

    def work(self) -> None:
        exec_program("huey_consumer", "bench.peers.huey.app", "-w", "1", "-k", "thread", "-d", "0.01", "-q")


PEER = HueyPeer
