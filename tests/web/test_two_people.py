"""Two people are two owners: one person with any number of tokens cannot discard or approve where two are needed."""

import asyncio
from typing import Any

import httpx
import pytest

from detent.core.access import Scope
from detent.core.approval import make_approval_request
from detent.core.job import APPROVAL, Wait
from detent.core.outcome import Waits
from detent.engine import Submission
from detent.engine.control.access import Unauthorized
from support.web.api import API, Api, code

pytestmark = pytest.mark.anyio


class Case:
    """An act that needs two people: propose and confirm, or approve with a quorum of two."""

    def __init__(self, api: Api, path: str) -> None:
        self.api = api
        self.path = path

    async def act(self, client: httpx.AsyncClient) -> httpx.Response:
        return await client.post(self.path, json={"reason": "checked"})

    async def is_done(self) -> bool:
        boss = await self.api.person("onlooker", "viewer")
        if "/dlq/" in self.path:
            return bool((await boss.get(self.path.removesuffix("/discard"))).json()["status"] == "discarded")
        return bool((await boss.get(self.path.removesuffix("/approve"))).json()["phase"] == "claimable")


@pytest.fixture(params=["discard", "approve"])
async def case(request: pytest.FixtureRequest, api: Api) -> Case:
    if request.param == "discard":
        job = await api.submit(contract="gate-b2")
        failed = (await api.open.post(f"{API}/internal/jobs/{job['id']}/run?force_fail=true")).json()
        return Case(api, f"{API}/dlq/items/{failed['dlq_id']}/discard")
    return Case(api, f"{API}/jobs/{await waiting_job(api)}/approve")


async def waiting_job(api: Api) -> str:
    submitted = await api.engine.jobs.submit(Submission("pay"))
    (claimed,) = await api.engine.claim(api.engine.claim_request("w", 1, job_types=frozenset({"pay"})))
    request = make_approval_request("pay 900?", {"amount": 900}, (), 2, None)
    await api.engine.settle(claimed.id, claimed.token, Waits(Wait("pay", APPROVAL, None, approval=request)))
    return submitted.job.id


async def minted(api: Api, creator: httpx.AsyncClient, name: str, role: str = "admin") -> httpx.AsyncClient:
    return api.client(await secret_of(creator, name, role))


async def secret_of(creator: httpx.AsyncClient, name: str, role: str = "admin") -> str:
    created = await creator.post(f"{API}/tokens", json={"name": name, "role": role})
    assert created.status_code == 201, created.text
    return str(created.json()["token"])


async def rotated(api: Api, secret: str) -> httpx.AsyncClient:
    old = api.client(secret)
    answer = await old.post(f"{API}/tokens/rotate", json={"token": secret})
    assert answer.status_code == 201 and answer.json()["shared_with"] == [], answer.text
    assert code(await old.get(f"{API}/me"), 401) == "UNAUTHORIZED"
    return api.client(answer.json()["token"])


async def test_one_admin_with_any_number_of_tokens_is_one_person(api: Api, case: Case) -> None:
    admin = await api.person("ann", "admin")
    assert (await case.act(admin)).status_code in (200, 202)
    puppets = [await minted(api, admin, name) for name in ("bob", "ＡＮＮ", "ann ", "cy")]
    grandchild = await minted(api, puppets[0], "dora")
    for client in (admin, *puppets, grandchild, await minted(api, grandchild, "eve")):
        assert code(await case.act(client), 400) == "APPROVAL_REQUIRED"
    assert not await case.is_done()


async def test_tokens_of_one_creator_are_not_two_people(api: Api, case: Case) -> None:
    admin = await api.person("ann", "admin")
    bob, cy = await minted(api, admin, "bob"), await minted(api, admin, "cy")
    assert (await case.act(bob)).status_code in (200, 202)
    for client in (cy, admin, await minted(api, bob, "dora")):
        assert code(await case.act(client), 400) == "APPROVAL_REQUIRED"
    assert not await case.is_done()


@pytest.mark.parametrize("first", ["admin", "colleague"])
async def test_an_admin_and_a_colleague_who_has_rotated_are_two(api: Api, case: Case, first: str) -> None:
    """The admin's own token was created on the server and not rotated."""
    admin = await api.person("ann", "admin", rotated=False)
    colleague = await rotated(api, await secret_of(admin, "bob", "reviewer" if "/jobs/" in case.path else "operator"))
    both = [admin, colleague] if first == "admin" else [colleague, admin]
    assert (await case.act(both[0])).status_code in (200, 202)
    assert not await case.is_done()
    assert (await case.act(both[1])).status_code == 200
    assert await case.is_done()


async def test_who_rotates_after_the_first_act_repeats_it(api: Api, case: Case) -> None:
    admin = await api.person("ann", "admin")
    secret = await secret_of(admin, "bob")
    assert (await case.act(api.client(secret))).status_code in (200, 202)
    refused = await case.act(admin)
    assert code(refused, 400) == "APPROVAL_REQUIRED" and "bob must replace it" in refused.json()["detail"]
    own = await rotated(api, secret)
    assert (await case.act(own)).status_code in (200, 202) and not await case.is_done()
    assert (await case.act(admin)).status_code == 200 and await case.is_done()


async def test_the_open_api_is_nobody(api: Api, case: Case) -> None:
    """What was proposed before the first token may have been proposed by anyone, so it counts for none of the two."""
    assert (await case.act(api.open)).status_code in (200, 202)
    assert code(await case.act(api.open), 400) == "APPROVAL_REQUIRED"
    people = [await api.person(name, "admin") for name in ("ann", "bob")]
    assert (await case.act(people[0])).status_code in (200, 202) and not await case.is_done()
    assert (await case.act(people[1])).status_code == 200 and await case.is_done()


async def test_a_rotation_needs_the_callers_own_token(api: Api) -> None:
    ann, bob = await api.person("ann", "admin"), await api.person("bob", "viewer")
    secret = await secret_of(ann, "cy", "viewer")
    for client in (ann, bob):
        assert code(await client.post(f"{API}/tokens/rotate", json={"token": secret}), 401) == "UNAUTHORIZED"
    cy = await rotated(api, secret)
    tokens: list[dict[str, Any]] = (await ann.get(f"{API}/tokens")).json()["items"]
    old, new = [token for token in tokens if token["name"] == "cy"]
    assert old["shared_with"] == ["ann"] and old["revoked_at"] and not new["revoked_at"]
    assert {new[key] for key in ("role", "expires_at")} == {old[key] for key in ("role", "expires_at")}
    assert (await cy.get(f"{API}/me")).json()["shared_with"] == []
    entry = (await api.engine.audit(1))[0].entry
    assert (entry.actor, entry.act, entry.subject) == ("cy", "token.rotate", new["id"])
    assert secret not in str(entry.data)


async def test_of_rotations_at_the_same_time_one_succeeds(api: Api) -> None:
    """Else the creator of a token would have one that counts as the owner's own, and the owner another."""
    _, secret = await api.engine.tokens.create("cy", "operator", Scope("ann"))
    rotations = [api.engine.tokens.rotate(secret) for _ in range(5)]
    results = await asyncio.gather(*rotations, return_exceptions=True)
    assert [type(result) for result in results].count(Unauthorized) == 4, results
    assert sum(token.revoked_at is None for token in await api.engine.tokens.list()) == 1


async def test_a_revoked_token_cannot_be_rotated(api: Api) -> None:
    token, secret = await api.engine.tokens.create("ann", "viewer", Scope("boss"))
    await api.engine.tokens.revoke(token.id, Scope("boss"))
    refused = await api.client(secret).post(f"{API}/tokens/rotate", json={"token": secret})
    assert code(refused, 401) == "UNAUTHORIZED"
