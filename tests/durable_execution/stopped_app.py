"""The application of the worker processes that are stopped and resumed: `python stopped_app.py '{"slots": 4}'`.

$DETENT_URL is the database. $DIARY is a file with one line for each call of a step's function: job, step, and in
microseconds the time when the lease had been checked and the time of the call.
"""

import asyncio
import json
import os
import random
import sys
import threading
import time

from detent import Detent, SyncContext

app = Detent()
checked = threading.local()
_check_lease = SyncContext._check_lease


def now() -> int:
    return time.time_ns() // 1_000


def check_lease(self: SyncContext, what: str) -> None:
    _check_lease(self, what)
    checked.at = now()


SyncContext._check_lease = check_lease  # type: ignore[method-assign]


def act(job_id: str, number: int) -> int:
    called = now()
    with open(os.environ["DIARY"], "a") as diary:
        diary.write(f"{job_id} {number} {checked.at} {called}\n")
    time.sleep(random.random() * 0.05)  # so that stops hit the inside of a step as often as the time between two
    return number


@app.job("steps", contract="p3c")
def steps(ctx: SyncContext, count: int) -> int:
    for number in range(count):
        ctx.step(f"step-{number}", act, ctx.job_id, number)
        time.sleep(random.random() * 0.05)
    return count


if __name__ == "__main__":
    sys.exit(asyncio.run(app.run_worker(**json.loads(sys.argv[1]))))
