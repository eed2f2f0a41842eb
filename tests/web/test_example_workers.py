"""The example workers in Node and Python against a real server: a whole job, kill -9, cancel and drain."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.servers import programs
from support.waiting import until_now
from support.web.api import API
from support.web.served import serving

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WORKERS = [(lambda: sys.executable, "http_worker.py", ""), (programs.node, "http_worker.mjs", ".node")]


class Site:
    """A server with a worker process that speaks HTTP."""

    def __init__(self, at: str, client: httpx.Client, command: list[str], suffix: str) -> None:
        self.at, self.client, self.command, self.suffix = at, client, command, suffix

    @contextmanager
    def worker(self) -> Iterator["subprocess.Popen[str]"]:
        environment = {"LEASE_SECONDS": "1", "PATH": "/usr/bin:/bin"}
        worker = subprocess.Popen([*self.command, self.at], stdout=subprocess.PIPE, text=True, env=environment)
        try:
            yield worker
        finally:
            worker.kill()
            worker.wait()
            assert worker.stdout is not None
            worker.stdout.close()

    def submit(self, job_type: str, **payload: Any) -> str:
        body = {"job_type": job_type + self.suffix, "payload": payload}
        return str(self.client.post(f"{API}/jobs", json=body).json()["job"]["id"])

    def job(self, job_id: str) -> dict[str, Any]:
        job: dict[str, Any] = self.client.get(f"{API}/jobs/{job_id}").json()
        return job

    def wait(self, job_id: str, *statuses: str) -> dict[str, Any]:
        until_now(lambda: self.job(job_id)["status"] in statuses)
        return self.job(job_id)


@pytest.fixture(params=WORKERS, ids=["python", "node"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    program, script, suffix = request.param
    find: Callable[[], str] = program
    with serving(tmp_path, f"sqlite:///{tmp_path}/jobs.db") as at, httpx.Client(base_url=at) as client:
        yield Site(at, client, [find(), str(EXAMPLES / script)], suffix)


@pytest.mark.long
def test_a_worker_from_the_docs(site: Site) -> None:
    """Steps, a wait, children, progress, a kill -9 while it runs, a cancel, a drain; then verify is clean."""
    for script in ("http_worker.py", "http_worker.mjs"):
        assert len((EXAMPLES / script).read_text().splitlines()) < 200
    order, counting = site.submit("order", order=7, items=["cup", "pen"]), site.submit("count", to=15)
    with site.worker():
        site.wait(order, "parked")
        site.wait(counting, "running")  # killed while it holds this job
    site.client.post(f"{API}/jobs/{order}/signal", json={"name": "paid", "data": {"amount": 12}})
    with site.worker() as worker:
        packed = site.wait(order, "succeeded", "failed")
        assert packed["result"]["amount"] == 12 and packed["result"]["packed"] == ["cup in a box", "pen in a box"]
        counted = site.wait(counting, "succeeded", "failed")
        assert counted["result"] == 15 and counted["execution_no"] > 1
        endless = site.submit("count", to=100_000)
        site.wait(endless, "running")
        (row,) = [row for row in listed(site, "workers") if row["live"] and row["state"] == "working"]
        assert row["slots"] == 4 and [job["id"] for job in row["held"]] == [endless]
        site.client.post(f"{API}/jobs/{endless}/cancel", json={"reason": "enough"})
        assert site.wait(endless, "cancelled")["status"] == "cancelled"
        assert site.client.post(f"{API}/workers/{row['id']}/drain").status_code == 200
        assert worker.wait(20) == 0
    assert not [row for row in listed(site, "workers") if row["pid"] == worker.pid]
    events = listed(site, f"jobs/{order}/events")
    finished = [event["data"]["name"] for event in events if event["event"] == "step.finished"]
    assert finished == ["reserve"], "a recorded step does not run again"
    notes = {event["event"] for event in events if event["note"]}
    assert {"progress", "log"} <= notes
    for job_id in (order, counting, endless):
        report = site.client.get(f"{API}/jobs/{job_id}/verify").json()
        assert report["ok"], report


def listed(site: Site, path: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = site.client.get(f"{API}/{path}").json()["items"]
    return items
