"""A process that claims and settles its share of jobs: `claimer.py FILE NAME SHARE`, started by a line on stdin."""

import asyncio
import json
import sys

from detent.core.outcome import Succeeded
from detent.engine import Engine, Settlement
from detent.stores.sqlite.store import SqliteStore

BATCH = 100


async def main(path: str, name: str, share: int) -> None:
    engine = Engine(SqliteStore(path, inline=True))
    await engine.open()
    print("ready", flush=True)
    sys.stdin.readline()
    held: list[Settlement] = []
    claims: list[tuple[str, str]] = []
    refused = 0
    while True:
        wanted = min(BATCH, share - len(claims))
        request = engine.claim_request(name, wanted) if wanted else None
        done = await engine.settle_and_claim(held, request)
        refused += len(done.refused)
        claims += [(job.id, job.token) for job in done.claimed]
        held = [Settlement(job.id, job.token, job.contract, Succeeded(None)) for job in done.claimed]
        if not held:
            break
    await engine.close()
    print(json.dumps({"claims": claims, "refused": refused}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
