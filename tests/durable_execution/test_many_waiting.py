"""Many waiting jobs do not slow down claims, do not enlarge workers, and do not delay the wake-up by a signal."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

import detent
from detent.client.app import Detent
from detent.core.access import Scope
from detent.core.outcome import Succeeded
from detent.engine import Engine, Settlement, Submission
from detent.ports.claims import Claimed
from support.postgres.crowd import forget
from support.servers.databases import house, newest

from .test_waits import SCRIPT
from .waiting_app import app as remote

pytestmark = [pytest.mark.anyio, pytest.mark.drill]
BATCH, JOBS, ROUND, ROUNDS = 100, 3_000, 1_000, 41
WAITS = (
    "wait_name = 'go', wait_kind = 'signal', wait_parked = {yes}, due_at = NULL, execution_no = 1,"
    " started_at = created_at, token = 'gone'"
)
WAITS_IN_SQLITE = (
    "UPDATE detent_jobs SET state = (SELECT id FROM detent_states WHERE contract = 'standard' AND status = 'parked'),"
    " ready = 0, " + WAITS.format(yes=1)
)
WAITS_IN_POSTGRES = (
    "UPDATE detent.jobs SET state = (SELECT id FROM detent.states WHERE contract = 'standard' AND status = 'parked'), "
    + WAITS.format(yes="true")
)


class Place:
    """A database, with or without many waiting jobs."""

    def __init__(self, kind: str, folder: Path, name: str) -> None:
        self.postgres = house(newest()).database() if kind == "postgres" else None
        self.url = self.postgres.url if self.postgres else f"sqlite:///{folder / name}.db"
        self.app = Detent(self.url)

    async def crowd(self, size: int) -> list[str]:
        """Make `size` jobs wait; returns the ids of a few of them, spread over all."""
        engine, ids = self.app.engine, []
        for done in range(0, size, 5_000):
            submitted = await engine.jobs.submit_many([Submission("woken")] * min(5_000, size - done))
            ids.append(submitted[0].job.id)
        if self.postgres:
            self.postgres.sql(WAITS_IN_POSTGRES)
            self.postgres.sql("TRUNCATE detent.queue")
            self.postgres.sql("VACUUM ANALYZE detent.jobs")  # one UPDATE of all rows leaves a dead row for each
        else:
            await engine.store.write(_all_wait)
            connection = apsw.Connection(self.url.removeprefix("sqlite:///"))
            connection.pragma("wal_checkpoint(truncate)")
            connection.close()
        return ids[:: max(1, len(ids) // 9)]

    async def close(self) -> None:
        await self.app.close()
        if self.postgres:
            forget(self.postgres)
            self.postgres.release()


async def _all_wait(tx: Any) -> None:
    tx.queries.connection.execute(WAITS_IN_SQLITE)


@pytest.mark.parametrize(("kind", "size"), [("sqlite", 100_000), ("postgres", 100_000), ("postgres", 1_000_000)])
async def test_many_waiting_jobs(kind: str, size: int, tmp_path: Path) -> None:
    places = [Place(kind, tmp_path, name) for name in ("alone", "crowded")]
    try:
        for place in places:
            await place.app.open()
        crowded = places[1]
        waiting = await crowded.crowd(size)
        slower = await _slower([place.app.engine for place in places])
        peaks = [await _largest(place, tmp_path) for place in places]
        delay = await _woken(crowded, waiting, tmp_path)
        print(f"{kind}, {size:,} wait: claims {slower:.2f} ×, {peaks} KiB, woken in {delay * 1_000:.1f} ms")
        assert slower < 1.1
        assert peaks[1] < 1.1 * peaks[0], peaks
        assert delay < 0.05
    finally:
        for place in places:
            await place.close()


async def _slower(engines: list[Engine]) -> float:
    """Time of the second engine divided by that of the first: the median of many short rounds in alternating order."""
    ratios = []
    for number in range(ROUNDS):
        spent = {}
        for engine in engines if number % 2 else reversed(engines):
            await engine.jobs.submit_many([Submission("noop")] * ROUND)
            started = time.monotonic()
            await _drain(engine)
            spent[engine] = time.monotonic() - started
        ratios.append(spent[engines[1]] / spent[engines[0]])
    return statistics.median(ratios)


async def _drain(engine: Engine) -> None:
    held: list[Claimed] = []
    while True:
        settlements = [Settlement(c.id, c.token, c.contract, Succeeded(None)) for c in held]
        held = (await engine.settle_and_claim(settlements, engine.claim_request("drill", BATCH))).claimed
        if not held:
            return


async def _largest(place: Place, folder: Path) -> int:
    """The peak memory of a worker process over a few thousand jobs, in KiB."""
    await place.app.engine.jobs.submit_many([Submission("noop")] * JOBS)
    return int(_worker(place.url, folder, "idle").communicate(timeout=120)[0].split()[-1])


def _worker(url: str, folder: Path, *words: str) -> "subprocess.Popen[bytes]":
    environment = os.environ | {"DETENT_URL": url, "PYTHONPATH": str(Path(detent.__file__).parent.parent)}
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, str(SCRIPT), *words], env=environment, stdout=subprocess.PIPE, stderr=log
        )


async def _woken(place: Place, waiting: list[str], folder: Path) -> float:
    """Seconds from the signal until the handler continues in another process; the median of a few."""
    from support.waiting import until

    place.app.jobs.setdefault("woken", remote.jobs["woken"])
    process = _worker(place.url, folder)
    engine, spans = place.app.engine, []
    try:
        await until(_worker_registered(engine))
        for job_id in waiting:
            sent = time.time()
            await engine.jobs.signal(job_id, "go", Scope("test"), 1)
            handle = await place.app.handle(job_id)
            spans.append(float(await handle.result(timeout=30)) - sent)
    finally:
        process.kill()
        process.communicate()
    return statistics.median(spans)


def _worker_registered(engine: Engine) -> Callable[[], Any]:
    async def is_registered() -> bool:
        return bool(await engine.store.read(lambda tx: tx.workers.list_workers()))

    return is_registered
