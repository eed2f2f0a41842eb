"""Progress on the event stream: sent to those who may see the job, read once a second however often a job reports."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from detent.core.contract.builtin import CONTRACTS
from detent.core.outcome import Succeeded
from detent.engine import Engine
from detent.engine.execution.steps import record_progress
from detent.handler.context import Context
from detent.ports.claims import Claimed
from detent.system.clock import SystemClock
from detent.web.live import progress_reports
from support.servers.databases import house, newest
from support.web.api import API, Api
from support.web.served import serving
from support.web.streams import Follower, following, listening

pytestmark = pytest.mark.anyio
READ_SECONDS = 0.1


@pytest.fixture(autouse=True)
def read_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_reports, "_READ_SECONDS", READ_SECONDS)


@asynccontextmanager
async def other_process(api: Api) -> AsyncIterator[Engine]:
    """An engine with its own connections, as a worker process has."""
    engine = Engine(api.place.store(SystemClock()), CONTRACTS)
    await engine.open()
    yield engine
    await engine.close()


async def claimed_jobs(api: Api, engine: Engine, *jobs: dict[str, Any]) -> dict[str, Claimed]:
    for job in jobs:
        await api.submit(**job)
    claimed = await engine.claim(engine.claim_request("w", len(jobs), 60.0))
    return {job.queue: job for job in claimed}


async def reports(stream: Follower, number: int) -> list[dict[str, Any]]:
    received: list[dict[str, Any]] = []
    while len(received) < number:
        event = await stream.next()
        received += [event] if event["name"] == "job.progress" else []
    return received


async def test_reports_of_other_processes_are_sent_without_an_id(api: Api) -> None:
    async with other_process(api) as engine, listening(api) as at, httpx.AsyncClient(base_url=at) as client:
        held = await claimed_jobs(api, engine, {"queue": "a", "tenant_id": "acme"})
        async with following(client, "0") as stream:
            assert [event["name"] for event in await stream.read(2)] == ["job.created", "job.claimed"]
            last = stream.last
            assert await record_progress(engine, held["a"], 0.25, "one of four")
            report = await stream.next()
            assert await record_progress(engine, held["a"], 0.5, "two of four")
            assert (await stream.next())["share"] == 0.5
            assert stream.last == last, "a client that reconnects continues after the last event of the log"
            await engine.settle(held["a"].id, held["a"].token, Succeeded(None))
            assert (await stream.next())["name"] == "job.succeeded"
    assert report.pop("at") > "2026"
    assert report == {
        "id": None, "name": "job.progress", "job_id": held["a"].id, "job_type": "mail", "contract": "standard",
        "queue": "a", "tenant_id": "acme", "execution_no": 1, "share": 0.25, "message": "one of four",
    }  # fmt: skip


async def test_reports_have_the_filters_and_the_reach_of_events(api: Api) -> None:
    people = {
        "all": (await api.person("all", "viewer"), {}),
        "tenant": (await api.person("bound", "viewer", tenant="own"), {}),
        "queue": (await api.person("q", "viewer", queues=["a"]), {}),
        "blind": (await api.person("blind", "viewer", payloads=False), {"queue": "b"}),
    }
    boss = await api.person("boss", "admin")
    for queue, tenant in (("a", "own"), ("b", "own"), ("c", "foreign")):
        await api.submit(boss, queue=queue, tenant_id=tenant)
    held = {job.queue: job for job in await api.engine.claim(api.engine.claim_request("w", 3, 60.0))}
    expected = {"all": "abc", "tenant": "ab", "queue": "a", "blind": "b"}
    async with listening(api) as at:
        for name, (person, query) in people.items():
            client = httpx.AsyncClient(base_url=at, headers=person.headers)
            async with client, following(client, **query) as stream:
                for claimed in held.values():
                    await record_progress(api.engine, claimed, 0.5, f"the secret of {claimed.queue}")
                received = await reports(stream, len(expected[name]))
                assert "".join(sorted(report["queue"] for report in received)) == expected[name]
                secrets = {report["message"] for report in received}
                assert secrets == ({""} if name == "blind" else {f"the secret of {queue}" for queue in expected[name]})


async def test_streams_without_progress_do_not_read_it(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unexpected(*_: Any) -> bool:
        raise AssertionError("nobody follows the progress")

    monkeypatch.setattr(progress_reports.ProgressReports, "read", unexpected)
    (claimed,) = (await claimed_jobs(api, api.engine, {"queue": "a"})).values()
    async with listening(api) as at, httpx.AsyncClient(base_url=at) as client:
        for query in ({"progress": "false"}, {"format": "envelope"}):
            async with following(client, **query) as stream:
                await record_progress(api.engine, claimed, 0.5, "")
                await api.submit()
                assert (await stream.next())["name"] == "job.created"


async def test_many_reports_are_read_and_sent_at_intervals(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three jobs report 40 times each, past the limit of ctx.progress; a page of two is read again until the end."""
    monkeypatch.setattr(progress_reports, "_PAGE", 2)
    pages = 0
    read_page = progress_reports.ProgressReports._read_page

    async def counted(self: progress_reports.ProgressReports, engine: Engine) -> bool:
        nonlocal pages
        pages += 1
        return await read_page(self, engine)

    monkeypatch.setattr(progress_reports.ProgressReports, "_read_page", counted)
    held = await claimed_jobs(api, api.engine, *({"queue": queue} for queue in "abc"))
    async with listening(api) as at, httpx.AsyncClient(base_url=at) as client, following(client) as stream:
        start = asyncio.get_running_loop().time()
        for number in range(40):
            await asyncio.gather(*(record_progress(api.engine, job, number / 40, str(number)) for job in held.values()))
        received: list[dict[str, Any]] = []
        while len({report["queue"] for report in received if report["message"] == "39"}) < 3:
            received.append(await stream.next())
        seconds = asyncio.get_running_loop().time() - start
    reads = seconds / READ_SECONDS + 2
    assert pages <= reads * 3, (pages, seconds)
    assert len(received) <= reads * 3, "one report of each job in each read"


async def test_a_job_that_reports_often_writes_once_a_second(api: Api) -> None:
    (claimed,) = (await claimed_jobs(api, api.engine, {"queue": "a"})).values()
    ctx = Context(claimed, api.engine, 60.0)
    for number in range(1_000):
        await ctx.progress(number / 1_000)
    stored = (await api.engine.store.read(lambda tx: tx.output.progress_of([claimed.id])))[claimed.id]
    assert stored.share < 0.5, "calls within the second were not written"


@pytest.mark.long
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_a_server_process_sends_what_a_worker_process_reports(tmp_path: Path, database: str) -> None:
    postgres = house(newest()).database() if database == "postgres" else None
    url = postgres.url if postgres else f"sqlite:///{tmp_path}/jobs.db"
    with serving(tmp_path, url) as at:
        async with httpx.AsyncClient(base_url=at) as client:
            job = (await client.post(f"{API}/jobs", json={"job_type": "mail"})).json()["job"]
            lease = {"worker": "w", "job_types": ["mail"]}
            (held,) = (await client.post(f"{API}/worker/claim", json=lease)).json()["jobs"]
            report = {"job_id": held["id"], "token": held["token"], "share": 0.5, "message": "half"}
            async with following(client, job_id=job["id"]) as stream:
                assert (await client.post(f"{API}/worker/progress", json=report)).status_code == 200
                (received,) = await reports(stream, 1)
    assert (received["share"], received["message"]) == (0.5, "half")
    if postgres:
        postgres.release()
