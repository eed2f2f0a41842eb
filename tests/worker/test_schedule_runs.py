"""Four processes fire the same schedules and are killed at random: every fire submits exactly one job."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import detent
from detent.core.access import Scope
from detent.core.schedule import fires_between
from detent.core.times import SECOND, iso
from detent.engine import Engine
from detent.engine.schedules.request import ScheduleRequest
from detent.ports.listing import Filter
from detent.proof.verify.verify import verify
from support import SUPPORT
from support.worker.firer import NIGHT, FastClock, store_at

pytestmark = pytest.mark.anyio
REQUESTS = [
    ScheduleRequest(name, "mail", misfire="all", misfire_limit=100, **when)
    for name, when in {
        "berlin": {"cron": "* * * * *", "tz": "Europe/Berlin"},
        "howe": {"cron": "*/2 * * * *", "tz": "Australia/Lord_Howe"},
        "every": {"every": "1m"},
        "gap": {"cron": "30 2 * * *", "tz": "Europe/Berlin"},
    }.items()
]


@pytest.mark.parametrize("kills", [5, pytest.param(150, marks=pytest.mark.drill)])
async def test_every_fire_makes_one_job(url: str, kills: int) -> None:
    engine = Engine(store_at(url, FastClock()))
    await engine.open()
    for request in REQUESTS:
        await engine.schedules.add(request, Scope("ann"))
    command = [sys.executable, str(SUPPORT / "worker" / "firer.py"), url, str(kills), "7"]
    environment = os.environ | {"PYTHONPATH": str(Path(detent.__file__).parent.parent)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60 + kills, check=False)
    assert done.returncode == 0, done.stderr
    await check(engine)
    await engine.close()


async def check(engine: Engine) -> None:
    """The fire times of each schedule, up to its next fire, equal the fire times of the stored jobs."""
    number_of_jobs = 0
    for request in REQUESTS:
        schedule = await engine.schedules.get(request.name)
        assert schedule.next_fire_at is not None
        expected = list(fires_between(schedule, schedule.created_at + 1, schedule.next_fire_at - 1))
        fires = await engine.store.read(lambda tx, s=schedule: tx.fires.list_fires(s.id, None, None, 100_000))
        assert sorted(fire.fire_at for fire in fires) == expected, request.name
        jobs = [await engine.jobs.get(fire.job_id) for fire in fires]
        assert [job.scheduled_at for job in jobs] == [fire.fire_at for fire in fires]
        assert (schedule.fires, schedule.last_error) == (len(fires), None)
        number_of_jobs += len(fires)
    assert len(await engine.jobs.list(Filter(limit=100_000))) == number_of_jobs > 15
    [gap] = [fire.fire_at for fire in await engine.schedules.fires("gap")]
    assert iso(gap) == "2026-03-29T01:00:00Z" and gap - NIGHT == 5 * 60 * SECOND
    report = await verify(engine.store, engine.contracts)
    assert report.ok, report.violations[:3]
    print(f"\n{number_of_jobs} fires, one job each")
