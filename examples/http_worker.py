"""A worker over HTTP that uses only the standard library; Detent need not be installed.

python http_worker.py http://127.0.0.1:8400 [TOKEN]
"""

import json
import sys
import threading
import urllib.request

BASE = sys.argv[1].rstrip("/") + "/api/v1/worker/"
TOKEN = sys.argv[2] if len(sys.argv) > 2 else None
NAME, LEASE = "plain-python", 30.0


def post(action: str, body: dict) -> dict:
    headers = {"Content-Type": "application/json"}
    if TOKEN:
        headers["Authorization"] = f"Bearer {TOKEN}"
    request = urllib.request.Request(BASE + action, json.dumps(body).encode(), headers, method="POST")
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


def greet(payload: dict) -> dict:
    return {"greeting": f"Hello, {payload['name']}!"}


HANDLERS = {"greet": greet}


def send_heartbeats(job: dict, done: threading.Event) -> None:
    """Extend the lease until the work is done."""
    while not done.wait(LEASE / 3):
        post("heartbeat", {"worker": NAME, "held": {job["id"]: job["token"]}, "lease_seconds": LEASE})


def work(job: dict) -> None:
    done = threading.Event()
    threading.Thread(target=send_heartbeats, args=(job, done), daemon=True).start()
    settlement = {"job_id": job["id"], "token": job["token"]}
    try:
        settlement |= {"outcome": "succeed", "result": HANDLERS[job["job_type"]](job["payload"])}
    except Exception as error:
        settlement |= {"outcome": "fail", "code": type(error).__name__, "message": str(error)}
    finally:
        done.set()
    print(job["id"], post("settle", settlement)["status"], flush=True)


while True:
    claim = {"worker": NAME, "job_types": list(HANDLERS), "lease_seconds": LEASE, "wait_seconds": 20.0}
    for claimed in post("claim", claim)["jobs"]:
        work(claimed)
