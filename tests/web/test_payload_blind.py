"""A token without payloads learns nothing of them: two databases that differ only in payloads answer alike."""

import json
import re
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from detent.core.access import Scope
from detent.core.approval import make_approval_request
from detent.core.contract.builtin import CONTRACTS
from detent.core.job import APPROVAL, Failure, Step, Wait
from detent.core.outcome import Failed, Succeeded, Waits
from detent.core.times import SECOND
from detent.engine import Engine, Submission
from detent.engine.schedules.request import ScheduleRequest
from detent.ports.tail import Position
from detent.system.ids import SeededIds
from detent.web.app import create_app
from detent.web.http.route import ApiRoute
from detent.web.http.settings import Settings
from detent.web.live.frames import encode_envelope, encode_event
from support.clock import FakeClock
from support.stores import Place, open_place
from support.web.api import API, Api

pytestmark = pytest.mark.anyio
SECRETS = ("4111-1111-1111-1111", "one-that-is-longer: 5500-0000-0000-0004")
BOSS = Scope("boss")
HELD = "approval held by a reviewer"


@dataclass
class World:
    """One of the two databases, its API, and the ids in it, which are the same in both."""

    api: Api
    secret: str
    ids: dict[str, list[str]]

    async def blind(self, role: str) -> httpx.AsyncClient:
        return await self.api.person(f"blind-{role}", role, payloads=False)


async def fill(engine: Engine, clock: FakeClock, secret: str, contracts: Iterable[str]) -> dict[str, list[str]]:
    """Jobs of these contracts in many states, dead letters and schedules: the secret is wherever a payload can be."""
    payload = {"card": secret, "notes": [secret] * len(secret)}
    ids: dict[str, list[str]] = {"job_id": [], "dlq_id": [], "reference": [], "task_id": [], "name": list(CONTRACTS)}
    for contract in contracts:
        job_type = f"pay-{contract}"
        jobs = [await engine.jobs.submit(Submission(job_type, payload, contract, actor="boss")) for _ in range(5)]
        ids["job_id"] += [submitted.job.id for submitted in jobs]
        clock.advance(1)
        request = engine.claim_request("worker-1", 4, 60.0, job_types=frozenset({job_type}))
        ok, failed, asks, _ = await engine.claim(request)
        row = await engine.jobs.get(ok.id)
        step = Step(ok.id, "charge", sha256(secret.encode()).hexdigest(), json.dumps(secret), True, 1, clock.now())
        await engine.store.record_step(step, ok.token)
        notes = [row.note("progress", clock.now(), "worker-1", {"text": secret})]
        await engine.store.write(lambda tx, notes=notes: tx.log.add_notes(notes))
        await engine.settle(ok.id, ok.token, Succeeded(json.dumps(secret)))
        failure = Failure("CARD_BAD", secret, "CardError", retryable=False, traceback=secret)
        job = await engine.settle(failed.id, failed.token, Failed(failure))
        ids["dlq_id"] += [job.dlq_id] if job.dlq_id else []
        if contract == "standard":
            question = make_approval_request(f"charge {secret}?", payload, ("lead",), 2, None)
            await engine.settle(asks.id, asks.token, Waits(Wait("ask", APPROVAL, None, approval=question)))
            await engine.approvals.approve(asks.id, Scope("ann", HELD), roles=["lead"])
    await engine.jobs.submit(Submission("task", payload, "men", task_id="t-1"))
    ids["task_id"].append("t-1")
    for owner in ("boss", "blind-admin"):
        await engine.jobs.submit(Submission("pay", payload, idempotency_key=f"key of {owner}", actor=owner))
    schedule = await engine.schedules.add(ScheduleRequest("nightly", "pay", payload=payload, every="1h"), BOSS)
    await engine.schedules.edit("nightly", {"payload": {**payload, "again": secret}}, BOSS)
    await engine.schedules.add(ScheduleRequest("gone", "pay", payload=payload, every="1h"), BOSS)
    await engine.schedules.remove("gone", BOSS)
    ids["reference"] += [schedule.id, "nightly"]
    await engine.dead_letters.discard(ids["dlq_id"][0], Scope("ann", "old"))
    await engine.dead_letters.requeue(ids["dlq_id"][1], BOSS, payload=payload)
    return ids


@pytest.fixture(params=["sqlite-thread", "postgres"])
async def worlds(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[list[World]]:
    worlds: list[World] = []
    places: list[Place] = []
    start = int(time.time()) * SECOND
    for secret in SECRETS:
        (tmp_path / secret[:4]).mkdir()
        places.append(open_place(request.param, tmp_path / secret[:4]))
        clock = FakeClock(start)
        engine = Engine(places[-1].store(clock), CONTRACTS, ids=SeededIds("same"))
        await engine.open()
        api = Api(engine, create_app(engine, Settings(internal=True)), places[-1])
        contracts = CONTRACTS if request.param == "sqlite-thread" else ("standard", "gate-b2")
        worlds.append(World(api, secret, await fill(engine, clock, secret, contracts)))
    assert worlds[0].ids == worlds[1].ids
    yield worlds
    for world, place in zip(worlds, places, strict=True):
        for client in world.api.clients:
            await client.aclose()
        await world.api.app.state.web.close()
        await world.api.engine.close()
        place.close()


def paths(world: World) -> list[str]:
    """Every GET route, with every id."""
    found = []
    for route in world.api.app.router.routes:
        assert isinstance(route, ApiRoute)
        if "GET" not in route.methods or route.path.endswith("/events/stream"):
            continue
        name = next(iter(re.findall(r"\{(\w+)", route.path)), None)
        values = [""] if name is None else world.ids.get(name, ["x"])
        if not route.path.startswith(API):  # a page has no data, its script reads the API
            values = values[:1]
        found += [re.sub(r"\{[^}]+\}", value, route.path) for value in values]
    assert len(found) > 60
    return found


def searches(secret: str) -> list[str]:
    """Searches for the secret, whole and by its beginning: 601 such requests extracted a value."""
    return [f"{API}/{name}?text={secret[:n]}" for name in ("jobs", "dlq/items", "schedules") for n in (3, 7, 19)]


def guesses(secret: str) -> list[tuple[str, dict[str, Any]]]:
    """Requests that would compare a guess with a stored payload, or select by it."""
    payload = {"card": secret, "notes": [secret] * len(secret)}
    submissions = [
        {"job_type": "pay", "payload": guess, "idempotency_key": f"key of {owner}"}
        for guess in (payload, {"card": "wrong"})
        for owner in ("boss", "blind-admin")
    ]
    question = make_approval_request(f"charge {secret}?", payload, ("lead",), 2, None)
    return [
        *((f"{API}/jobs", body) for body in submissions),
        (f"{API}/jobs/bulk", {"jobs": submissions[:1]}),
        (f"{API}/tasks", {"task_id": "t-1", "payload": payload}),
        (f"{API}/tasks", {"task_id": "t-1", "payload": {"card": "wrong"}}),
        *((f"{API}/bulk/{act}", {"text": secret}) for act in ("cancel", "requeue")),
        (f"{API}/dlq/requeue", {"text": secret}),
        (f"{API}/dlq/discard", {"text": secret, "reason": "x"}),
        (f"{API}/jobs/ASKS/reject", {"digest": question.digest[:8]}),
        (f"{API}/schedules/preview", {"every": "1h"}),
    ]


def shown(response: httpx.Response) -> tuple[Any, ...]:
    """What a caller can see of a response; a trace id is random, and a database that was used before counts on."""
    text = response.text
    if response.headers.get("content-type", "").startswith("application/json"):
        text = json.dumps(response.json(), sort_keys=True)  # groups are counted in any order
    text = re.sub(r'"trace_id": ?"req-[^"]*"|"n": ?[0-9]+|"next_cursor": ?"[0-9]+"', "", text)
    return response.status_code, text, response.headers.get("etag")


@pytest.mark.long
async def test_databases_that_differ_in_payloads_answer_alike(worlds: list[World]) -> None:
    """Over all routes that read, for a viewer, and for an administrator, who may also read tokens and the audit log."""
    first, second = worlds
    people = [[await world.blind(role) for world in worlds] for role in ("viewer", "admin")]
    seeing = [await world.api.person("seeing", "admin") for world in worlds]
    seen = 0
    for number, path in enumerate((*paths(first), *searches(first.secret), *searches(second.secret))):
        admins_only = (await people[0][0].get(path)).status_code == 403
        clients = people[admins_only or number % 2]
        answers = [await client.get(path) for client in clients]
        assert shown(answers[0]) == shown(answers[1]), path
        assert answers[0].status_code < 500
        assert not any(secret in answer.text for secret in SECRETS for answer in answers), path
        seen += number % 5 == 0 and first.secret in (await seeing[0].get(path)).text
    assert seen > 3, "a token with payloads sees them in many answers"


async def test_a_guess_is_never_compared_with_a_payload(worlds: list[World]) -> None:
    first, second = worlds
    asks = next(row.job.id for row in await first.api.engine.approvals.waiting() if row.approval)
    clients = [await world.blind("admin") for world in worlds]
    answers: dict[str, list[int]] = {}
    for path, body in (*guesses(first.secret), *guesses(second.secret)):
        pair = [await client.post(path.replace("ASKS", asks), json=body) for client in clients]
        texts = [shown(answer)[:2] for answer in pair]
        assert texts[0] == texts[1], (path, body)
        answers.setdefault(path, []).append(pair[0].status_code)
    assert answers[f"{API}/jobs"][:4] == [409, 200, 409, 200], "a hit for the caller's own key, else a conflict"
    assert answers[f"{API}/jobs/ASKS/reject"] == [403, 403]
    assert answers[f"{API}/dlq/discard"] == [200, 200]


async def test_the_event_stream_of_a_blind_token_is_the_same(worlds: list[World]) -> None:
    streams = []
    for world in worlds:
        tail = world.api.app.state.web.event_tail
        frames, position = [], Position(0)
        while True:
            page, after = await tail._read_after(position)
            if after == position:
                break
            frames, position = [*frames, *page], after
        assert len(frames) > 20
        sent = [encode(frame, payloads=False) for frame in frames for encode in (encode_event, encode_envelope)]
        assert any(world.secret.encode() in frame.full for frame in frames)
        streams.append([re.sub(rb"^id: [^\n]*", b"", message) for message in sent])
    assert streams[0] == streams[1]
