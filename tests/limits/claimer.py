"""A process that claims, holds for a moment, settles: `claimer.py URL NAME SEED DIES_AT`, started by a line on stdin.

Some of its jobs fail and come back. After DIES_AT jobs, if that is not 0, it kills itself with jobs in its hands.
With BLIND in the environment it has a planted bug: what it counted is not compared again under the lock.
"""

import asyncio
import os
import random
import signal
import sys

from detent.client.connect import store_from
from detent.core.job import Failure
from detent.core.outcome import Failed, Outcome, Succeeded
from detent.engine import Engine, Settlement

LEASE_SECONDS = 1.0
POLL_SECONDS = 0.02


def plant(engine: Engine) -> None:
    texts = engine.store._texts  # type: ignore[attr-defined]
    honest = "u.take <= u.room - (m.taken - u.seen) AS fits"
    assert honest in texts["claim_limited"]
    engine.store._texts = {**texts, "claim_limited": texts["claim_limited"].replace(honest, "true AS fits")}  # type: ignore[attr-defined]


async def main(url: str, name: str, seed: int, dies_at: int) -> None:
    engine = Engine(store_from(url))
    if "BLIND" in os.environ:
        plant(engine)
    await engine.open()
    luck = random.Random(seed)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    held: list[Settlement] = []
    ran = 0
    while True:
        request = engine.claim_request(name, luck.randint(1, 24), LEASE_SECONDS)
        done = await engine.settle_and_claim(held, request)
        ran += len(done.claimed)
        if dies_at and ran >= dies_at and done.claimed:
            os.kill(os.getpid(), signal.SIGKILL)
        held = [Settlement(job.id, job.token, job.contract, _outcome(luck)) for job in done.claimed] + done.later
        if held:
            await asyncio.sleep(luck.random() * 0.004)
            continue
        await engine.expire(200)
        if not await _left(engine):
            break
        await engine.store.watch().changed(POLL_SECONDS)
    await engine.close()


def _outcome(luck: random.Random) -> Outcome:
    return Failed(Failure("BOOM", "try again", after=1_000)) if luck.random() < 0.02 else Succeeded(None)


async def _left(engine: Engine) -> bool:
    counts = await engine.store.read(lambda tx: tx.stats.counts())
    return any(phase != "final" and number for _, _, phase, number in counts)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
