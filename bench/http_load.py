"""Load on the REST API over real sockets: enqueue compared with a no-op route, and many followers of the event stream.

python -m bench.http_load enqueue --url postgresql://… [--clients 32] [--seconds 5]
python -m bench.http_load follow [--clients 1000] [--events 2000]
"""

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from time import perf_counter
from typing import Any

API = "/api/v1"
JOB = json.dumps({"job_type": "noop", "payload": {"n": 1}}).encode()


def serve(url: str) -> None:
    """Serve the API like `detent serve`, with an additional no-op route behind the same authentication and checks."""
    from detent import Detent
    from detent.core.access import Power
    from detent.web.app import create_app
    from detent.web.http.route import ApiRequest, Router
    from detent.web.http.serving import Server, bind, config_of, run
    from detent.web.http.settings import Settings

    router = Router()

    body_schema = {"requestBody": {"content": {"application/json": {}}}}

    @router.route_for("POST", "/noop", Power.OPERATE, responses={200: {"description": "nothing"}}, extra=body_schema)
    async def noop(request: ApiRequest) -> object:
        return await request.json()

    app = create_app(Detent(url), Settings(open_without_tokens=True))
    app.router.routes[:0] = router.routes
    listening = bind("127.0.0.1", 0)
    print(json.dumps({"at": f"http://127.0.0.1:{listening.getsockname()[1]}"}), flush=True)
    run(Server(config_of(app)).serve([listening]))


@asynccontextmanager
async def server(url: str) -> AsyncIterator[tuple[str, int, int]]:
    """Run a server in a separate process; yields (host, port, pid)."""
    command = [sys.executable, "-m", "bench.http_load", "serve", "--url", url]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        text = b""
        while b"}" not in text:
            text += await process.stdout.readline()
        host, _, port = json.loads(text)["at"].removeprefix("http://").rpartition(":")
        yield host, int(port), process.pid
    finally:
        process.terminate()
        await process.wait()


def request(method: str, path: str, body: bytes = b"", headers: str = "") -> bytes:
    length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
    return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{length}{headers}\r\n".encode() + body


async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, message: bytes) -> int:
    """Send a request on a keep-alive connection; returns the status code of the response."""
    writer.write(message)
    head = await reader.readuntil(b"\r\n\r\n")
    lower = head.lower()
    start = lower.index(b"content-length: ") + 16
    await reader.readexactly(int(lower[start : lower.index(b"\r\n", start)]))
    return int(head[9:12])


async def rate(host: str, port: int, message: bytes, expected: int, clients: int, seconds: float) -> float:
    """Responses per second with this many concurrent clients; each sends its next request on the response."""
    end = perf_counter() + seconds
    done = 0

    async def client() -> None:
        nonlocal done
        reader, writer = await asyncio.open_connection(host, port)
        while perf_counter() < end:
            status = await send(reader, writer, message)
            assert status == expected, status
            done += 1
        writer.close()
        await writer.wait_closed()

    started = perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return done / (perf_counter() - started)


async def enqueue(url: str, clients: int, seconds: float, rounds: int = 3) -> dict[str, float]:
    """Alternate between the no-op route and /jobs, so that other load on the machine affects both."""
    noop_rates, job_rates, cpu_per_request = [], [], {"/noop": 0.0, "/jobs": 0.0}
    async with server(url) as (host, port, pid):
        for path, expected in (("/noop", 200), ("/jobs", 201)):
            await rate(host, port, request("POST", API + path, JOB), expected, clients, 0.5)
        for _ in range(rounds):
            for path, expected, rates in (("/noop", 200, noop_rates), ("/jobs", 201, job_rates)):
                before = cpu_of(pid)
                message = request("POST", API + path, JOB)
                rates.append(await rate(host, port, message, expected, clients, seconds / rounds))
                cpu_per_request[path] += (cpu_of(pid) - before) / (rates[-1] * seconds / rounds)
    noop_median, jobs_median = sorted(noop_rates)[rounds // 2], sorted(job_rates)[rounds // 2]
    return {
        "noop_per_second": noop_median,
        "jobs_per_second": jobs_median,
        "ratio": jobs_median / noop_median,
        "server_cpu_ratio": cpu_per_request["/noop"] / cpu_per_request["/jobs"],
        "server_cpu_us_per_job": cpu_per_request["/jobs"] / rounds * 1e6,
    }


def cpu_of(pid: int) -> float:
    """CPU seconds of a process so far."""
    with open(f"/proc/{pid}/stat") as file:
        words = file.read().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(pid: int) -> int:
    """Resident bytes of a process."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


async def follow(url: str, clients: int, events: int, rounds: int = 4) -> dict[str, Any]:
    """Every client reads every event; returns the server's memory after each round."""
    raise_file_limit(clients)
    read = [0] * clients

    async def follower(number: int, host: str, port: int, ready: asyncio.Semaphore) -> None:
        reader, writer = await asyncio.open_connection(host, port, limit=1 << 20)
        with closing(writer):
            writer.write(request("GET", f"{API}/events/stream"))
            await reader.readuntil(b": following")
            ready.release()
            while line := await reader.readline():
                read[number] += line.startswith(b"data: ")

    async with server(url) as (host, port, pid):
        ready = asyncio.Semaphore(0)
        tasks = [asyncio.create_task(follower(n, host, port, ready)) for n in range(clients)]
        for _ in tasks:
            await ready.acquire()
        memory, took = [memory_of(pid)], []
        reader, writer = await asyncio.open_connection(host, port)
        bulk = json.dumps({"jobs": [json.loads(JOB)] * 100}).encode()
        for done in range(1, rounds + 1):
            started = perf_counter()
            for _ in range(events // rounds // 100):
                assert await send(reader, writer, request("POST", f"{API}/jobs/bulk", bulk)) == 201
            expected = done * (events // rounds // 100) * 100
            while min(read) < expected:
                assert not any(task.done() for task in tasks), "a follower was dropped"
                await asyncio.sleep(0.05)
            took.append(perf_counter() - started)
            memory.append(memory_of(pid))
        writer.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert set(read) == {expected}, "a follower missed an event or received one twice"
    megabytes = [round(size / 1e6, 1) for size in memory]
    return {"clients": clients, "events": expected, "seconds": took, "memory_mb": megabytes}


def raise_file_limit(clients: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, clients + 500)), hard))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("enqueue", "follow", "serve"))
    parser.add_argument("--url", default=os.environ.get("DETENT_URL"))
    parser.add_argument("--clients", type=int)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--events", type=int, default=2_000)
    options = parser.parse_args()
    if options.what == "serve":
        serve(options.url)
        return
    with tempfile.TemporaryDirectory() as folder:
        url = options.url or f"sqlite:///{folder}/load.db"
        if options.what == "enqueue":
            print(json.dumps(asyncio.run(enqueue(url, options.clients or 32, options.seconds))))
        else:
            print(json.dumps(asyncio.run(follow(url, options.clients or 1_000, options.events))))


if __name__ == "__main__":
    main()
