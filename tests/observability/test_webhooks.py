"""Webhooks: filters, signatures, retries, order, bounds, replay, tenants; nothing is lost when a receiver is killed."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from detent.core.access import Scope
from detent.core.errors import DetentError
from detent.core.job import Event
from detent.core.outcome import Succeeded
from detent.core.times import SECOND, iso
from detent.core.webhooks.signature import sign, verify_webhook
from detent.core.webhooks.subscription import check_url
from detent.engine import Engine
from detent.engine.metrics.webhooks import WebhookRequest, Webhooks, queue_events
from detent.engine.reads.views import event_view, published
from detent.observability.http_post import Answer, post
from detent.observability.settings import WebhookSettings
from detent.observability.webhook_sender import WebhookSender
from detent.stores.metrics_queries import MetricsQueries
from support.acts import PERMANENT, claim, submit
from support.clock import FakeClock
from support.stores import Place, make_engine
from support.webhook_receiver import Receiver

pytestmark = pytest.mark.anyio
ANN = Scope("ann")


@pytest.fixture
async def engine(place: Place, clock: FakeClock) -> AsyncIterator[Engine]:
    engine = make_engine(place, clock)
    await engine.open()
    yield engine
    await engine.close()


@pytest.fixture
def receiver() -> Any:
    receiver = Receiver()
    yield receiver
    receiver.close()


async def run_jobs(engine: Engine, number: int = 1, outcome: Any = None, **options: Any) -> list[str]:
    for _ in range(number):
        await submit(engine, "standard", **options)
    claimed = await claim(engine, number)
    for job in claimed:
        await engine.settle(job.id, job.token, outcome or Succeeded(None))
    return [job.id for job in claimed]


def bodies(receiver: Receiver) -> list[dict[str, Any]]:
    return [json.loads(body) for _, body in receiver.got]


async def test_events_are_sent_and_signed(engine: Engine, receiver: Receiver, clock: FakeClock) -> None:
    await run_jobs(engine)
    webhook, secret = await engine.webhooks.add(WebhookRequest("crm", receiver.url), ANN)
    (job_id,) = await run_jobs(engine)
    await WebhookSender(engine, WebhookSettings()).drain()
    assert [(body["type"], body["job"]["id"]) for body in bodies(receiver)] == [
        ("job.created", job_id), ("job.claimed", job_id), ("job.succeeded", job_id)
    ]  # fmt: skip
    assert bodies(receiver)[2]["data"]["target"] == bodies(receiver)[2]["job"]["status"] == "succeeded"
    now = clock.now() / 1e6
    for headers, body in receiver.got:
        assert verify_webhook(secret, headers, body, now=now)
        assert not verify_webhook(secret, headers, body + b" ", now=now)
        assert not verify_webhook(secret, headers, body, now=now + 301)
    listed = await engine.webhooks.deliveries(webhook.id)
    assert (listed[0]["event"], listed[0]["state"], listed[0]["attempts"]) == ("job.succeeded", "delivered", 1)
    assert {one["id"] for one in listed} == {headers["webhook-id"] for headers, _ in receiver.got}


def test_the_signature_of_the_standard() -> None:
    """The example of the Standard Webhooks document."""
    secret, body = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b'{"test": 2432232314}'
    signature = sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"queue": "billing"}, {"billing"}),
        ({"job_type": "mail"}, {"default", "other"}),
        ({"tenant_id": "acme"}, {"billing"}),
        ({"contract": "gate-b2"}, set()),
        ({"phases": ("final",), "events": ("job.failed",)}, {"other"}),
        ({"events": ("job.succeeded",)}, {"default", "billing"}),
    ],
)
async def test_filters(engine: Engine, receiver: Receiver, options: dict[str, Any], expected: set[str]) -> None:
    await engine.webhooks.add(WebhookRequest("crm", receiver.url, **options), ANN)
    await run_jobs(engine)
    await run_jobs(engine, queue="billing", tenant_id="acme", job_type="invoice")
    await run_jobs(engine, outcome=PERMANENT, queue="other")
    await WebhookSender(engine, WebhookSettings()).drain()
    assert {body["job"]["queue"] for body in bodies(receiver)} == expected


async def test_without_payloads_texts_of_handlers_are_left_out(engine: Engine, receiver: Receiver) -> None:
    await engine.webhooks.add(WebhookRequest("all", receiver.url), ANN)
    await engine.scoped(tenant=None, payloads=False).webhooks.add(WebhookRequest("blind", receiver.url), ANN)
    await run_jobs(engine, outcome=PERMANENT)
    await WebhookSender(engine, WebhookSettings()).drain()
    jobs = [body["job"] for body in bodies(receiver) if body["type"] == "job.failed"]
    assert [job["error_code"] for job in jobs] == ["BROKEN"] * 2
    assert {job["error_message"] for job in jobs} == {"never works", None}
    assert sum("never works" in str(body["data"]) for body in bodies(receiver)) <= 1


async def test_a_failed_receiver_gets_each_event_later_and_in_order(
    engine: Engine, receiver: Receiver, clock: FakeClock
) -> None:
    webhook, _ = await engine.webhooks.add(WebhookRequest("crm", receiver.url), ANN)
    sender, jobs = WebhookSender(engine, WebhookSettings()), await run_jobs(engine, 3)
    receiver.answers = [500] * 3
    await sender.drain()
    assert len(receiver.got) == 3, "one request for each job, then it pauses"
    await sender.drain()
    assert len(receiver.got) == 3
    view = (await engine.webhooks.list())[0]
    assert (view["failures"], view["state"], view["backlog"]) == (1, "active", 9)
    for _ in range(10):
        clock.advance(10)
        await sender.drain()
    got: dict[str, list[str]] = {}
    for body in bodies(receiver)[3:]:
        got.setdefault(body["job"]["id"], []).append(body["type"])
    assert got == {job_id: ["job.created", "job.claimed", "job.succeeded"] for job_id in jobs}
    view = (await engine.webhooks.list())[0]
    assert (view["failures"], view["failing_since"], view["backlog"]) == (0, None, 0)
    assert webhook.id == view["id"]


async def test_a_refused_event_does_not_hold_up_others(engine: Engine, receiver: Receiver, clock: FakeClock) -> None:
    settings = WebhookSettings(max_attempts=2)
    await engine.webhooks.add(WebhookRequest("crm", receiver.url, events=("job.succeeded",)), ANN)
    sender = WebhookSender(engine, settings)
    await run_jobs(engine, 6)
    receiver.answers = [400]
    await sender.drain()
    assert len(receiver.got) == 6 and (await engine.webhooks.list())[0]["backlog"] == 1
    clock.advance(5)
    receiver.answers = [400]
    await sender.drain()
    states = [one["state"] for one in await engine.webhooks.deliveries("crm")]
    assert sorted(states) == ["delivered"] * 5 + ["given up"]


async def test_a_webhook_is_disabled_after_long_failure_and_resumed(
    engine: Engine, receiver: Receiver, clock: FakeClock
) -> None:
    settings = WebhookSettings(disable_after_seconds=3_600, max_age_seconds=10**6, max_attempts=1_000)
    await engine.webhooks.add(WebhookRequest("crm", receiver.url, phases=("final",)), ANN)
    sender = WebhookSender(engine, settings)
    await run_jobs(engine, 2)
    receiver.answers = [503] * 1_000
    for _ in range(30):
        await sender.drain()
        clock.advance(200)
    view = (await engine.webhooks.list())[0]
    assert view["state"] == "disabled" and view["last_error"] == "the response has status 503"
    requests = len(receiver.got)
    clock.advance(10_000)
    await run_jobs(engine)
    await sender.drain()
    assert len(receiver.got) == requests, "a disabled webhook gets nothing"
    receiver.answers, receiver.got = [], []
    await engine.webhooks.resume("crm", ANN)
    await sender.drain()
    assert len(bodies(receiver)) == 3 and (await engine.webhooks.list())[0]["state"] == "active"
    receiver.answers = [410]
    await run_jobs(engine)
    await sender.drain()
    assert (await engine.webhooks.list())[0]["state"] == "disabled", "410 Gone ends the subscription"


async def test_the_queue_is_bounded_and_nothing_is_lost(engine: Engine, receiver: Receiver, clock: FakeClock) -> None:
    await engine.webhooks.add(WebhookRequest("crm", receiver.url, events=("job.succeeded",)), ANN)
    receiver.answers = [500] * 3
    sender = WebhookSender(engine, WebhookSettings(max_pending=1))
    jobs = await run_jobs(engine, 3)
    await sender.drain()
    more = await run_jobs(engine, 3)
    await sender.run_once()
    assert (await engine.webhooks.list())[0]["backlog"] == 3, "the later events stay in the log"
    for _ in range(3):
        clock.advance(5)
        await sender.drain()
    delivered = {one["job_id"] for one in await engine.webhooks.deliveries("crm") if one["state"] == "delivered"}
    assert delivered == {*jobs, *more}


async def test_replay(engine: Engine, receiver: Receiver, clock: FakeClock) -> None:
    old = await run_jobs(engine)
    webhook, _ = await engine.webhooks.add(WebhookRequest("crm", receiver.url, phases=("final",)), ANN)
    sender = WebhookSender(engine, WebhookSettings())
    new = await run_jobs(engine, 2)
    await sender.drain()
    ids = [headers["webhook-id"] for headers, _ in receiver.got]
    assert await engine.webhooks.replay("crm", ANN, delivery=ids[0]) == {"id": webhook.id, "replayed": 1}
    await sender.drain()
    assert [headers["webhook-id"] for headers, _ in receiver.got] == [*ids, ids[0]]
    assert (await engine.webhooks.replay("crm", ANN, since="2000-01-01T00:00:00Z"))["replayed"] == 2
    await sender.drain()
    assert sorted(headers["webhook-id"] for headers, _ in receiver.got[3:]) == sorted(ids)
    receiver.got = []
    await engine.webhooks.replay("crm", ANN, after="0")
    await sender.drain()
    assert {body["job"]["id"] for body in bodies(receiver)} == {*old, *new}
    two, later = {"after": "0", "since": "2000-01-01T00:00:00Z"}, {"after": "1" + "0" * 17}
    for wrong in ({}, two, {"delivery": "msg_0"}, {"after": "x"}, later):
        with pytest.raises(DetentError):
            await engine.webhooks.replay("crm", ANN, **wrong)
    more = await run_jobs(engine)
    await sender.drain()
    assert bodies(receiver)[-1]["job"]["id"] == more[0], "a refused replay does not move the position"


async def test_a_paused_webhook_gets_its_events_later(engine: Engine, receiver: Receiver) -> None:
    await engine.webhooks.add(WebhookRequest("crm", receiver.url, phases=("final",)), ANN)
    await engine.webhooks.pause("crm", ANN)
    sender, jobs = WebhookSender(engine, WebhookSettings()), await run_jobs(engine, 2)
    await sender.drain()
    assert not receiver.got
    await engine.webhooks.resume("crm", ANN)
    await sender.drain()
    assert {body["job"]["id"] for body in bodies(receiver)} == set(jobs)


async def test_pause_and_resume_return_how_many_deliveries_wait(engine: Engine) -> None:
    await engine.webhooks.add(WebhookRequest("crm", "http://127.0.0.1:9/", phases=("final",)), ANN)
    await run_jobs(engine, 2)
    await queue_events(engine, WebhookSettings())
    paused, resumed = await engine.webhooks.pause("crm", ANN), await engine.webhooks.resume("crm", ANN)
    assert [(view["state"], view["backlog"]) for view in (paused, resumed)] == [("paused", 2), ("active", 2)]


async def test_two_processes_send_each_event_once(engine: Engine, receiver: Receiver) -> None:
    await engine.webhooks.add(WebhookRequest("crm", receiver.url), ANN)
    await run_jobs(engine, 20)
    senders = [WebhookSender(engine, WebhookSettings()) for _ in range(2)]
    for _ in range(2):
        for sender in senders:
            await sender.drain()
    ids = [headers["webhook-id"] for headers, _ in receiver.got]
    assert len(ids) == len(set(ids)) == 60


async def test_a_tenant_sees_and_changes_its_own_only(engine: Engine, receiver: Receiver) -> None:
    acme: Webhooks = engine.scoped(tenant="acme").webhooks
    webhook, _ = await acme.add(WebhookRequest("crm", receiver.url), Scope("eve"))
    other, _ = await engine.webhooks.add(WebhookRequest("crm", receiver.url, tenant_id="other"), ANN)
    assert webhook.tenant_id == "acme" and [one["id"] for one in await acme.list()] == [webhook.id]
    for act in (acme.remove, acme.pause, acme.resume):
        with pytest.raises(DetentError, match="WEBHOOK_NOT_FOUND"):
            await act(other.id, Scope("eve"))
    await acme.add(WebhookRequest(other.id, receiver.url), Scope("eve"))
    assert (await engine.webhooks.get(other.id))["id"] == other.id, "an id goes before a name"
    with pytest.raises(DetentError, match="TENANT_SCOPE_VIOLATION"):
        await acme.add(WebhookRequest("all", receiver.url, tenant_id="other"), Scope("eve"))
    await run_jobs(engine, tenant_id="acme")
    await run_jobs(engine, tenant_id="other")
    await engine.webhooks.remove(other.id, ANN)
    await WebhookSender(engine, WebhookSettings()).drain()
    assert {body["job"]["tenant_id"] for body in bodies(receiver)} == {"acme"}


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/x", "file:///etc/passwd", "http://", "https://ann:secret@example.com/", "http://a b/",
        "http://example.com/#x", "javascript:alert(1)", "http://example.com:99999/", "gopher://x", "", "//example.com",
    ],
)  # fmt: skip
def test_bad_urls(url: str) -> None:
    with pytest.raises(DetentError, match="WEBHOOK_URL_INVALID"):
        check_url(url)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.1", "2130706433", "0x7f000001", "localhost", "10.0.0.1", "169.254.169.254", "0.0.0.0",
        "224.0.0.1", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::127.0.0.1]", "[64:ff9b::10.0.0.1]", "[2002:a00:1::]",
        "[fec0::1]", "[ff02::1]",
    ],
)  # fmt: skip
async def test_private_addresses_can_be_refused(host: str) -> None:
    status, error, _ = await post(f"http://{host}:9/", b"", {}, timeout=1, private_addresses=False)
    assert status is None and error is not None and "not public" in error


async def test_slow_receivers_delay_no_others() -> None:
    connected, all_connected, number = 0, asyncio.Event(), 60

    async def respond(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connected
        connected += 1
        if connected == number:
            all_connected.set()
        await all_connected.wait()
        writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(respond, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        answers = await asyncio.gather(*(post(url, b"{}", {}, timeout=5) for _ in range(number)))
    assert answers == [(200, None, None)] * number


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (b"", "ConnectionError"),
        (b"SSH-2.0-x\r\n", "ConnectionError"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000, "ValueError"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\n\r\n", "status 302"),
    ],
)
async def test_bad_responses_are_errors(response: bytes, error: str) -> None:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(response)
        writer.close()

    async with await asyncio.start_server(respond, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        _, message, _ = await post(url, b"{}", {}, timeout=5)
    assert message is not None and error in message


@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7), ("0", 1), ("100000", 4 * 3600), ("Wed, 21 Oct 2026 07:28:00 GMT", 1), ("-5", 1)]
)
async def test_a_receiver_chooses_when_it_is_called_again(
    engine: Engine, clock: FakeClock, header: str, seconds: int
) -> None:
    """Within four hours; without an answer that is understood, after a second."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}}")
        writer.write(f"HTTP/1.1 503 Busy\r\nretry-after:  {header}\r\nX: 9\r\n\r\n".encode())
        writer.close()

    async with await asyncio.start_server(respond, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        await engine.webhooks.add(WebhookRequest("crm", url, phases=("final",)), ANN)
        await run_jobs(engine)
        await WebhookSender(engine, WebhookSettings()).drain()
    later = iso(clock.now() + seconds * SECOND)
    assert (await engine.webhooks.get("crm"))["retry_at"] == later
    assert (await engine.webhooks.deliveries("crm"))[0]["due_at"] == later


async def test_an_impossible_host_name_is_an_error() -> None:
    status, error, _ = await post(f"http://{'a' * 70}/", b"", {}, timeout=5)
    assert status is None and error is not None


RECEIVER = """
import json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with open(sys.argv[2], "a") as file:
            file.write(json.dumps([self.headers["webhook-id"], json.loads(body)["job"]["id"]]) + "\\n")
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_): pass
server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


async def test_a_receiver_that_is_killed_and_restarted_misses_nothing(
    engine: Engine, clock: FakeClock, tmp_path: Path
) -> None:
    """A real process, killed with SIGKILL between and during deliveries."""
    file, port = tmp_path / "got.jsonl", "0"

    def start() -> "subprocess.Popen[str]":
        return subprocess.Popen([sys.executable, "-c", RECEIVER, port, str(file)], stdout=subprocess.PIPE, text=True)

    process = start()
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        request = WebhookRequest("crm", f"http://127.0.0.1:{port}/", events=("job.succeeded",))
        await engine.webhooks.add(request, ANN)
        sender, jobs = WebhookSender(engine, WebhookSettings()), []
        for number in range(3):
            jobs += await run_jobs(engine, 4)
            if number == 1:
                process.kill()
                process.wait()
            await sender.drain()
            if number == 1:
                process.stdout.close()
                process = start()
                assert process.stdout is not None and process.stdout.readline().strip() == port
            clock.advance(400)
        await sender.drain()
    finally:
        process.kill()
        process.wait()
        process.stdout and process.stdout.close()
    got = [json.loads(line) for line in file.read_text().splitlines()]
    assert {job_id for _, job_id in got} == set(jobs)
    assert len({message_id for message_id, _ in got}) == 12


@pytest.mark.parametrize("sent_at", ["9" * 5_000, "-1", "", "1e3", "nan"])
def test_a_forged_time_is_refused_without_an_error(sent_at: str) -> None:
    headers = {"webhook-id": "msg_1", "webhook-timestamp": sent_at, "webhook-signature": "v1,x"}
    assert not verify_webhook("whsec_" + "A" * 32, headers, b"{}", now=1_000.0)


def test_a_request_ends_before_another_process_may_send_it_again() -> None:
    for seconds in (0.05, 60):
        with pytest.raises(DetentError, match="SETTINGS_INVALID"):
            WebhookSettings(timeout_seconds=seconds)
    WebhookSettings(timeout_seconds=50)


async def test_bad_requests(engine: Engine) -> None:
    good = WebhookRequest("crm", "https://example.com/hook")
    await engine.webhooks.add(good, ANN)
    for wrong, code in (
        (good, "WEBHOOK_EXISTS"),
        (replace(good, name="b", url="ftp://x"), "WEBHOOK_URL_INVALID"),
        (replace(good, name="b", secret="whsec_short"), "WEBHOOK_SECRET_INVALID"),
        (replace(good, name="b", phases=("done",)), "WEBHOOK_FILTER_INVALID"),
        (replace(good, name="b", events=("job.done",)), "WEBHOOK_FILTER_INVALID"),
        (replace(good, name="b", contract="men", events=("job.succeeded",)), "WEBHOOK_FILTER_INVALID"),
        (replace(good, name="b", contract="nope"), "CONTRACT_UNKNOWN"),
    ):
        with pytest.raises(DetentError, match=code):
            await engine.webhooks.add(wrong, ANN)
    assert len(await engine.webhooks.list()) == 1


async def test_an_unknown_event_is_refused_with_the_known_ones(engine: Engine) -> None:
    request = WebhookRequest("crm", "https://example.com/", contract="p3c", events=("completed", "finished"))
    with pytest.raises(DetentError) as caught:
        await engine.webhooks.add(request, ANN)
    assert caught.value.extra == {"field": "events"}
    assert "'finished'" in caught.value.message and "'completed'" not in caught.value.message
    assert "worker_claim" in caught.value.message and "run.status.changed" in caught.value.message
    accepted = replace(request, events=("completed", "run.status.changed"))
    webhook, _ = await engine.webhooks.add(accepted, ANN)
    assert json.loads(webhook.events) == ["completed", "run.status.changed"]


async def test_the_names_of_published_events_are_declared(engine: Engine) -> None:
    """Each name under which a contract publishes an event can be used in a filter."""
    for name, contract in engine.contracts.items():
        job = await submit(engine, name)
        for edge in contract.edges:
            event = Event(job.id, 1, edge.event, edge.source, edge.target, job.created_at)
            message = published(event_view(contract, job, event), has_envelopes=contract.envelope is not None)
            assert message is None or message[0] in contract.event_names, name


async def test_the_old_secret_signs_too_for_a_day(engine: Engine, receiver: Receiver, clock: FakeClock) -> None:
    def signers() -> list[bool]:
        headers, body = receiver.got[-1]
        return [verify_webhook(secret, headers, body, now=clock.now() / 1e6) for secret in secrets]

    webhook, first = await engine.webhooks.add(WebhookRequest("crm", receiver.url), ANN)
    sender = WebhookSender(engine, WebhookSettings())
    view, second = await engine.webhooks.edit("crm", {"secret": ""}, ANN)
    assert second is not None and view["old_secret_until"] == iso(clock.now() + 86_400 * SECOND)
    secrets = [first, second]
    await run_jobs(engine)
    await sender.drain()
    assert len(receiver.got[-1][0]["webhook-signature"].split(" ")) == 2 and signers() == [True, True]
    view, unchanged = await engine.webhooks.edit("crm", {"queue": "default"}, ANN)
    assert unchanged is None and view["old_secret_until"] is not None
    clock.advance(86_401)
    await run_jobs(engine)
    await sender.drain()
    assert signers() == [False, True]
    (stored,) = await engine.store.read(lambda tx: tx.webhooks.list_webhooks())
    assert (stored.old_secret, stored.old_secret_until, stored.queue) == (None, None, "default"), "it is deleted"
    assert stored.id == webhook.id


async def test_an_edited_webhook_sends_what_waits_to_its_new_url_with_its_old_secret(
    engine: Engine, receiver: Receiver, clock: FakeClock
) -> None:
    webhook, secret = await engine.webhooks.add(WebhookRequest("crm", "http://127.0.0.1:9/", queue="q"), ANN)
    await run_jobs(engine, queue="q")
    sender = WebhookSender(engine, WebhookSettings())
    await sender.drain()
    assert (await engine.webhooks.list())[0]["failures"] == 1
    changes = {"url": receiver.url, "name": "erp", "queue": None, "events": ("job.succeeded",)}
    view, new_secret = await engine.webhooks.edit("crm", changes, ANN)
    assert (view["name"], view["queue"], view["events"], view["failures"]) == ("erp", None, ["job.succeeded"], 0)
    assert new_secret is None and view["backlog"] == 3
    await run_jobs(engine, queue="other")
    await sender.drain()
    assert sorted(body["job"]["queue"] for body in bodies(receiver)) == ["other"] + ["q"] * 3
    assert verify_webhook(secret, *receiver.got[0], now=clock.now() / 1e6)
    _, new_secret = await engine.webhooks.edit(webhook.id, {"secret": ""}, ANN)
    assert new_secret is not None and new_secret != secret
    await run_jobs(engine)
    await sender.drain()
    assert verify_webhook(new_secret, *receiver.got[-1], now=clock.now() / 1e6)
    entries = [row.entry for row in await engine.audit() if row.entry.act == "webhook.edit"]
    assert secret not in str(entries) and new_secret not in str(entries)
    assert [(entry.data or {})["changed"] for entry in entries] == [
        ["secret"], ["name", "url", "queue", "events"]
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"url": "ftp://crm.example/"}, "WEBHOOK_URL_INVALID"),
        ({"url": None}, "WEBHOOK_URL_INVALID"),
        ({"name": None}, "NAME_INVALID"),
        ({"name": "other"}, "WEBHOOK_EXISTS"),
        ({"contract": "unknown"}, "CONTRACT_UNKNOWN"),
        ({"phases": ("over",)}, "WEBHOOK_FILTER_INVALID"),
        ({"events": ("job.succeeded", "job.sucess")}, "WEBHOOK_FILTER_INVALID"),
        ({"secret": "short"}, "WEBHOOK_SECRET_INVALID"),
        ({"tenant_id": "acme"}, "OPTION_UNKNOWN"),
    ],
)
async def test_a_refused_edit_changes_nothing(engine: Engine, changes: dict[str, Any], code: str) -> None:
    for name in ("crm", "other"):
        await engine.webhooks.add(WebhookRequest(name, "https://crm.example/"), ANN)
    before = await engine.webhooks.list()
    with pytest.raises(DetentError) as refused:
        await engine.webhooks.edit("crm", changes, ANN)
    assert refused.value.code == code
    assert await engine.webhooks.list() == before
    await engine.webhooks.edit("crm", {"name": "crm"}, ANN)


async def test_someone_without_payloads_does_not_redirect_them(engine: Engine) -> None:
    await engine.webhooks.add(WebhookRequest("crm", "https://crm.example/"), ANN)
    blind = engine.scoped(tenant=None, payloads=False).webhooks
    view, _ = await blind.edit("crm", {"name": "erp"}, ANN)
    assert view["payloads"]
    view, _ = await blind.edit("erp", {"url": "https://mine.example/"}, ANN)
    assert not view["payloads"]
    view, _ = await blind.edit("erp", {"payloads": True}, ANN)
    assert not view["payloads"]
    view, _ = await engine.webhooks.edit("erp", {"payloads": None}, ANN)
    assert view["payloads"]


async def test_what_waits_is_not_redirected_with_its_texts(engine: Engine, receiver: Receiver) -> None:
    """Nor what was sent before and is replayed."""
    receiver.answers = [204, 500]
    await engine.webhooks.add(WebhookRequest("crm", receiver.url, phases=("final",)), ANN)
    sender = WebhookSender(engine, WebhookSettings())
    for _ in range(2):
        await run_jobs(engine, 1, PERMANENT)
        await sender.drain()
    await engine.scoped(tenant=None, payloads=False).webhooks.edit("crm", {"url": f"{receiver.url}/mine"}, ANN)
    await engine.webhooks.replay("crm", ANN, since="2000-01-01T00:00:00Z")
    await sender.drain()
    assert len(receiver.got) == 4
    texts = [json.loads(body)["job"]["error_message"] for _, body in receiver.got]
    assert texts == ["never works"] * 2 + [None] * 2
    assert all(b"never works" not in body for _, body in receiver.got[2:])
    assert {headers["webhook-id"] for headers, _ in receiver.got[:2]} == {
        headers["webhook-id"] for headers, _ in receiver.got[2:]
    }


async def test_an_edit_while_events_are_queued_is_obeyed(
    engine: Engine, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else texts of handlers, read before the webhook lost its payloads, would go to the new URL."""
    await engine.webhooks.add(WebhookRequest("crm", "http://127.0.0.1:9/", phases=("final",)), ANN)
    await run_jobs(engine, 1, PERMANENT)
    write = engine.store.write

    async def write_after_an_edit(act: Any) -> Any:
        monkeypatch.undo()
        await engine.scoped(tenant=None, payloads=False).webhooks.edit("crm", {"url": receiver.url}, ANN)
        return await write(act)

    monkeypatch.setattr(engine.store, "write", write_after_an_edit)
    await queue_events(engine, WebhookSettings())
    await WebhookSender(engine, WebhookSettings()).drain()
    assert [body["job"]["error_message"] for body in bodies(receiver)] == [None]


async def test_a_cleared_event_that_matches_no_more_delays_no_other(
    engine: Engine, receiver: Receiver, clock: FakeClock
) -> None:
    receiver.answers = [500]
    await engine.webhooks.add(WebhookRequest("crm", receiver.url), ANN)
    await run_jobs(engine)
    sender = WebhookSender(engine, WebhookSettings())
    await sender.drain()
    since = (await engine.webhooks.list())[0]["failing_since"]
    await engine.webhooks.edit("crm", {"events": ("job.succeeded",), "payloads": False}, ANN)
    clock.advance(2)
    receiver.answers = [500]
    await sender.drain()
    (webhook,) = await engine.webhooks.list()
    assert (webhook["failing_since"], webhook["backlog"]) == (since, 1), "what was not sent blames nobody"
    clock.advance(5)
    await sender.drain()
    assert [body["type"] for body in bodies(receiver)] == ["job.created", "job.succeeded", "job.succeeded"]
    listed = await engine.webhooks.deliveries("crm")
    assert [(one["event"], one["state"]) for one in listed] == [
        ("job.succeeded", "delivered"), ("job.claimed", "given up"), ("job.created", "given up")
    ]  # fmt: skip


@pytest.mark.parametrize(("status", "error"), [(200, None), (410, "gone")])
async def test_an_edit_applies_to_what_is_being_sent(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, status: int, error: str | None
) -> None:
    await engine.webhooks.add(WebhookRequest("crm", "http://old.example/", events=("job.succeeded",)), ANN)
    await run_jobs(engine, 12)
    urls: list[str] = []

    async def answer(url: str, *_: object, **__: object) -> Answer:
        urls.append(url)
        if len(urls) == 1:
            await engine.webhooks.edit("crm", {"url": "http://new.example/"}, ANN)
        return Answer(status, error) if url == "http://old.example/" else Answer(200, None)

    monkeypatch.setattr("detent.observability.webhook_sender.post", answer)
    await WebhookSender(engine, WebhookSettings()).drain()
    assert urls == ["http://old.example/"] * 4 + ["http://new.example/"] * 8
    assert (await engine.webhooks.list())[0]["state"] == "active", "the old URL is gone, not the new one"


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
async def test_a_pause_while_attempts_are_recorded_is_kept(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row is locked when it is read: else the recorded result would write back the state from before the pause."""
    await engine.webhooks.add(WebhookRequest("crm", "http://crm.example/", events=("job.succeeded",)), ANN)
    await run_jobs(engine, 1)
    pauses: list[asyncio.Task[Any]] = []
    end_delivery = MetricsQueries.end_delivery

    async def end_delivery_during_a_pause(self: MetricsQueries, *arguments: Any) -> None:
        pauses.append(asyncio.create_task(engine.webhooks.pause("crm", ANN)))
        await asyncio.wait(pauses, timeout=0.3)
        await end_delivery(self, *arguments)

    async def answer(*_: object, **__: object) -> Answer:
        return Answer(500, "no")

    monkeypatch.setattr(MetricsQueries, "end_delivery", end_delivery_during_a_pause)
    monkeypatch.setattr("detent.observability.webhook_sender.post", answer)
    await WebhookSender(engine, WebhookSettings()).drain()
    await asyncio.gather(*pauses)
    assert [webhook["state"] for webhook in await engine.webhooks.list()] == ["paused"]
