"""A process that claims and settles until nothing is left: `claimer.py URL NAME DIES_AT`, started by a line on stdin.

Prints one line for each job it was given, `id token`, before it settles it: what it says it ran, it ran. After DIES_AT
jobs, if that is not 0, it kills itself while its next cycle is under way.
"""

import asyncio
import os
import signal
import sys

from detent.core.outcome import Succeeded
from detent.engine import Engine, Settlement
from detent.stores.postgres.store import PostgresStore

BATCH = 100
LEASE_SECONDS = 2.0


async def main(url: str, name: str, dies_at: int) -> None:
    engine = Engine(PostgresStore(url))
    await engine.open()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    held: list[Settlement] = []
    refused = ran = 0
    while True:
        done = await engine.settle_and_claim(held, engine.claim_request(name, BATCH, LEASE_SECONDS))
        refused += len(done.refused)
        if done.claimed:
            print("\n".join(f"{job.id} {job.token}" for job in done.claimed), flush=True)
        ran += len(done.claimed)
        if dies_at and ran >= dies_at:
            asyncio.get_running_loop().call_later(0.002, os.kill, os.getpid(), signal.SIGKILL)
        held = [Settlement(job.id, job.token, job.contract, Succeeded(None)) for job in done.claimed]
        held += done.later
        if not held:
            lost = await engine.expire(200)
            left = await engine.store.read(lambda tx: tx.due.any_leased_or_due(["noop"], 10_000_000))
            if not lost and not left and not await engine.claim(engine.claim_request(name, 0)):
                break
            await engine.store.watch().changed(0.05) if not lost else None
    await engine.close()
    print(f"refused {refused}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
