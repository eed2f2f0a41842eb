"""The example workers in Node and Python against a real server: a whole job, kill -9, cancel and drain."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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


JSON, PROBLEM, PAGE = "application/json", "application/problem+json", "text/html"


@pytest.mark.parametrize(("program", "script", "suffix"), WORKERS, ids=["python", "node"])
def test_a_worker_goes_on_after_half_an_answer_and_a_refusal(
    program: Callable[[], str], script: str, suffix: str
) -> None:
    """A proxy may answer, and only the first half may arrive. A refused outcome becomes a failure without a retry."""
    job = {"id": "j1", "token": "t1", "job_type": f"pack{suffix}", "payload": {"item": "cup"}}
    refusal = {"code": "RESULT_TOO_LARGE", "detail": "too large", "retryable": False}
    answers: dict[str, list[tuple[int, str, Any]]] = {
        "claim": [
            (502, PAGE, None),
            (200, JSON, {"jobs": [job], "command": None}),
            (200, JSON, {"jobs": [], "command": "drain"}),
        ],
        "settle": [(422, PROBLEM, refusal), (200, JSON, {"status": "failed"})],
        "deregister": [(200, JSON, {})],
    }
    settled: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            action, body = self.path.rpartition("/")[2], self.rfile.read(int(self.headers["Content-Length"]))
            if action == "settle":
                settled.append(json.loads(body))
            status, media, answer = answers[action].pop(0)
            text = b"" if answer is None else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", media)
            self.send_header("Content-Length", str(len(text) or 100))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        at = f"http://127.0.0.1:{server.server_address[1]}"
        worker = subprocess.run([program(), str(EXAMPLES / script), at], capture_output=True, text=True, timeout=30)
        server.shutdown()
        thread.join()
    assert worker.returncode == 0 and worker.stdout.splitlines() == ["j1 failed", "drained"], worker.stderr
    assert [each["outcome"] for each in settled] == ["succeed", "fail"]
    assert (settled[1]["code"], settled[1]["retryable"]) == ("RESULT_TOO_LARGE", False)
