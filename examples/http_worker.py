"""A worker over HTTP with the standard library only: steps, a wait, children, progress, logs, drain, cancel.

python http_worker.py http://127.0.0.1:8400 [TOKEN]       Detent need not be installed.
"""

import hashlib
import http.client
import json
import os
import random
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request

BASE = sys.argv[1].rstrip("/") + "/api/v1/worker/"
TOKEN = sys.argv[2] if len(sys.argv) > 2 else None
NAME, LEASE, SLOTS = "plain-python", float(os.environ.get("LEASE_SECONDS", "30")), 4


class Failure(Exception):
    """A failure that is not retried."""


class ApiError(Failure):
    """The answer of the server to a request it refuses."""

    def __init__(self, problem):
        super().__init__(f"{problem['code']}: {problem['detail']}")
        self.code = problem["code"]


def post(action, body):
    """Send one request; repeat it while the server is away. Every call of the protocol may be repeated."""
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {TOKEN}"} if TOKEN else {})}
    request, pause = urllib.request.Request(BASE + action, json.dumps(body).encode(), headers, method="POST"), 0.5
    while True:
        try:
            try:
                with urllib.request.urlopen(request, timeout=60) as response:
                    return json.load(response)
            except urllib.error.HTTPError as error:
                problem = json.load(error)
            if not problem["retryable"]:
                raise ApiError(problem)
        except (OSError, http.client.HTTPException, ValueError) as error:  # no answer, half of one, or that of a proxy
            print(action, error, file=sys.stderr, flush=True)
        time.sleep(pause)
        pause = min(pause * 2, 15)


class Suspend(BaseException):
    """Ends an execution because the job has to wait; its argument says for what."""


class CancelRequested(BaseException):
    """Raised by the next call of the context after somebody has cancelled the job."""


class Context:
    """What a handler can do with its job. After a wait, a retry or a crash it starts again from its first line."""

    def __init__(self, job):
        self.lease = {"job_id": job["id"], "token": job["token"]}
        self.lost, self.cancel, self._recorded = False, None, None

    def check(self):
        if self.lost:
            raise Failure("the lease is lost")
        if self.cancel is not None:
            raise CancelRequested(self.cancel)

    def step(self, name, fn, *args):
        """Call fn once and record its result; later executions get the recorded result."""
        self.check()
        if self._recorded is None:
            self._recorded = {step["name"]: step for step in post("steps", self.lease)["items"]}
        digest = hashlib.sha256(json.dumps(args, sort_keys=True).encode()).hexdigest()
        if name in self._recorded:
            if self._recorded[name]["digest"] != digest:
                raise Failure(f"step {name} was recorded with other arguments")
            return self._recorded[name]["result"]
        start, result = time.monotonic(), fn(*args)
        step = {"name": name, "digest": digest, "result": result, "duration_seconds": time.monotonic() - start}
        return post("steps/record", {**self.lease, **step})["result"]

    def wait_for(self, name, timeout=None):
        """The data of a signal, or None after the timeout. The job leaves the worker until then."""
        self.check()
        for received in post("signals", self.lease)["items"]:
            if received["name"] == name:
                return None if received["timed_out"] else received["data"]
        raise Suspend({"name": name, "timeout_seconds": timeout})

    def gather(self, children):
        """The results of children, in order. The job leaves the worker until all have ended or one has failed."""
        self.check()
        states = post("children", {**self.lease, "children": children})["items"]
        for child in states:
            if child["ended"] and not child["succeeded"]:
                raise Failure(f"child {child['name']} ended as {child['status']}: {child['error_message']}")
        unfinished = [child["id"] for child in states if not child["ended"]]
        if unfinished:
            raise Suspend({"name": "gather", "children": unfinished})
        return [child["result"] for child in states]

    def progress(self, share, message=""):
        self.check()
        post("progress", {**self.lease, "share": share, "message": message})

    def log(self, message, level="INFO"):
        post("logs", {**self.lease, "lines": [{"level": level, "message": message}]})


def order(ctx, order, items):
    """Packs an order: reserves it in a step, waits for its payment, packs each item in a child."""
    reserved = ctx.step("reserve", lambda number: {"id": number, "shelf": random.randint(1, 100)}, order)
    ctx.log(f"order {order} is reserved on shelf {reserved['shelf']}")
    payment = ctx.wait_for("paid", timeout=3600)
    if payment is None:
        raise Failure("not paid in time")
    ctx.progress(0.5, "paid")
    packed = ctx.gather([{"name": f"pack {item}", "job_type": "pack", "payload": {"item": item}} for item in items])
    ctx.progress(1.0, "packed")
    return {"shelf": reserved["shelf"], "amount": payment["amount"], "packed": packed}


def count(ctx, to):
    """A long handler calls the context often, so that it notices a cancel."""
    for number in range(to):
        time.sleep(0.1)
        ctx.progress(number / to, f"{number} of {to}")
    return to


def greet(ctx, name):
    return {"greeting": f"Hello, {name}!"}


HANDLERS = {"greet": greet, "order": order, "pack": lambda ctx, item: f"{item} in a box", "count": count}
held: dict[str, Context] = {}  # the jobs that run now
leaving = threading.Event()


def work(job, ctx):
    def settle(**outcome):
        print(job["id"], post("settle", {**ctx.lease, **outcome})["status"], flush=True)

    try:
        try:
            settle(outcome="succeed", result=HANDLERS[job["job_type"]](ctx, **job["payload"]))
        except Suspend as suspend:
            settle(outcome="wait", wait=suspend.args[0])
        except CancelRequested as request:
            settle(outcome="cancel", reason=str(request))
    except Exception as error:  # of the handler, or an outcome that is refused, like a result that is too large
        code, retryable = getattr(error, "code", type(error).__name__), not isinstance(error, Failure)
        settle(outcome="fail", code=code, message=str(error)[:2000], retryable=retryable)  # refused without the lease
    finally:
        del held[job["id"]]


def send_heartbeats():
    while True:
        time.sleep(LEASE / 3)
        tokens = {job_id: ctx.lease["token"] for job_id, ctx in held.copy().items()}
        answer = post("heartbeat", {"worker": NAME, "held": tokens, "lease_seconds": LEASE})
        for job_id, ctx in held.copy().items():
            ctx.lost = ctx.lost or job_id in answer["lost"]
            if job_id in answer["cancels"]:
                ctx.cancel = answer["cancels"][job_id] or "cancelled"
        if answer["command"]:
            leaving.set()


signal.signal(signal.SIGTERM, lambda number, frame: leaving.set())
threading.Thread(target=send_heartbeats, daemon=True).start()
who = {"worker": NAME, "host": socket.gethostname(), "pid": os.getpid(), "slots": SLOTS, "lease_seconds": LEASE}
while not leaving.is_set():
    while len(held) >= SLOTS:
        time.sleep(0.05)
    limits = {"limit": SLOTS - len(held), "wait_seconds": 1 if held else 10}
    claimed = post("claim", {**who, **limits, "job_types": list(HANDLERS)})
    for job in claimed["jobs"]:
        held[job["id"]] = Context(job)
        threading.Thread(target=work, args=(job, held[job["id"]]), daemon=True).start()
    if claimed["command"]:
        leaving.set()
while held:  # drain: finish what it holds
    time.sleep(0.05)
post("deregister", {"worker": NAME})
print("drained", flush=True)
