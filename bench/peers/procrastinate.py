"""procrastinate: psycopg pool of 20, concurrency 10; rows and events are kept."""

import psycopg
from procrastinate import App, PsycopgConnector

from .counting import handled, picked_up
from .protocol import URL, Peer

CONCURRENCY = 10
app = App(connector=PsycopgConnector(conninfo=URL, min_size=4, max_size=20))


@app.task(name="noop", queue="q")
async def noop() -> None:
    handled()


@app.task(name="stamp", queue="q")
async def stamp(sent: float) -> None:
    picked_up(sent)


class ProcrastinatePeer(Peer):
    bulk = True

    async def open(self) -> None:
        await app.open_async()
        await app.schema_manager.apply_schema_async()
        self.side_connection = await psycopg.AsyncConnection.connect(URL, autocommit=True)

    async def reset(self) -> None:
        await self.side_connection.execute("TRUNCATE procrastinate_jobs CASCADE")

    async def enqueue(self, caller: int) -> None:
        await noop.defer_async()

    async def enqueue_batch(self, jobs: int) -> None:
        await noop.batch_defer_async(*[{}] * jobs)

    async def remaining(self) -> int:
        text = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
        row = await (await self.side_connection.execute(text)).fetchone()
        return int(row[0]) if row else 0

    async def enqueue_stamped(self, sent: float) -> None:
        await stamp.defer_async(sent=sent)

    async def close(self) -> None:
        await self.side_connection.close()
        await app.close_async()

    async def work(self) -> None:
        async with app.open_async():
            await app.run_worker_async(concurrency=CONCURRENCY, queues=["q"])


PEER = ProcrastinatePeer
