"""Approvals that ask for roles: decided over the API by those who have one, refused to all others."""

import httpx
import pytest

from detent.core.approval import ask
from detent.core.job import APPROVAL, Wait
from detent.core.outcome import Waits
from detent.engine import Submission
from web.conftest import API, Api, code

pytestmark = pytest.mark.anyio


async def asking(api: Api, *roles: str, quorum: int = 1) -> str:
    engine = api.engine
    job = (await engine.submit(Submission("refund"))).job
    (held,) = await engine.claim(engine.claim_request("w1", 1))
    question = ask("refund 40 euro?", {"order": 7}, roles, quorum, None)
    await engine.settle(job.id, held.token, Waits(Wait("refund", APPROVAL, None, asked=question)))
    return job.id


async def word(client: httpx.AsyncClient, job_id: str, act: str = "approve") -> httpx.Response:
    return await client.post(f"{API}/jobs/{job_id}/{act}", json={})


async def offered(client: httpx.AsyncClient, job_id: str) -> tuple[bool, bool]:
    """What the inbox and the job's page offer."""
    items = (await client.get(f"{API}/approvals")).json()["items"]
    acts = (await client.get(f"{API}/jobs/{job_id}/detail")).json()["acts"]
    return next(one["may_decide"] for one in items if one["job_id"] == job_id), "approve" in [a["act"] for a in acts]


@pytest.mark.parametrize("act", ["approve", "reject"])
async def test_one_of_the_roles_decides_and_no_other(api: Api, act: str) -> None:
    plain = await api.person("pat", "reviewer")
    other = await api.person("oto", "admin", roles=["intern"])
    lead = await api.person("lea", "reviewer", roles=["support-lead", "intern"])
    watching = await api.person("vic", "viewer", roles=["support-lead"])
    job_id = await asking(api, "cfo", "support-lead")
    for client in (plain, other):
        assert await offered(client, job_id) == (False, False)
        refused = await word(client, job_id, act)
        assert code(refused, 403) == "APPROVAL_ROLE_REQUIRED" and refused.json()["roles"] == ["cfo", "support-lead"]
    assert await offered(watching, job_id) == (False, False)
    assert code(await word(watching, job_id, act), 403) == "FORBIDDEN"
    assert await offered(lead, job_id) == (True, True)
    assert (await word(lead, job_id, act)).status_code == 200
    (asked,) = await api.engine.approvals_of(job_id)
    assert (asked.decision, [vote.person for vote in asked.votes]) == (act, ["lea"])
    assert asked.votes[0].roles == ("intern", "reviewer", "support-lead", "viewer")


async def test_the_role_of_a_token_counts_with_those_it_reaches(api: Api) -> None:
    ann, bob = await api.person("ann", "reviewer"), await api.person("bob", "admin")
    first, second = await asking(api, "reviewer"), await asking(api, "admin")
    assert code(await word(ann, second), 403) == "APPROVAL_ROLE_REQUIRED"
    for client, job_id in ((ann, first), (bob, second), (bob, await asking(api, "reviewer"))):
        assert (await word(client, job_id)).json()["status"] == "queued"


async def test_a_quorum_counts_people_of_the_role(api: Api) -> None:
    job_id = await asking(api, "cfo", quorum=2)
    first = await api.person("ann", "reviewer", roles=["cfo"])
    again = await api.person("ann", "admin", roles=["cfo"])
    second = await api.person("bob", "reviewer", roles=["cfo"])
    assert (await word(first, job_id)).json()["status"] == "waiting_approval"
    assert code(await word(again, job_id), 400) == "APPROVAL_REQUIRED"
    assert (await word(second, job_id)).json()["status"] == "queued"


async def test_tokens_bear_roles_made_over_the_api_and_show_them(api: Api) -> None:
    boss = await api.person("boss", "admin")
    asked = {"name": "lea", "role": "reviewer", "roles": ["cfo", "cfo", "support-lead"]}
    made = (await boss.post(f"{API}/tokens", json=asked)).json()
    assert made["roles"] == ["cfo", "support-lead"]
    lea = api.client(made["token"])
    assert (await lea.get(f"{API}/me")).json()["roles"] == ["cfo", "reviewer", "support-lead", "viewer"]
    assert [one["roles"] for one in (await boss.get(f"{API}/tokens")).json()["tokens"]] == [[], ["cfo", "support-lead"]]
    for roles in ("cfo", [""], ["x"] * 51, [7]):
        assert code(await boss.post(f"{API}/tokens", json={**asked, "roles": roles}), 422) == "INPUT_INVALID"


async def test_the_inbox_of_a_role(api: Api) -> None:
    await api.person("boss", "admin")
    client = await api.person("vic", "viewer")
    theirs, anyones = await asking(api, "cfo"), await asking(api)
    await asking(api, "support-lead")
    found = (await client.get(f"{API}/approvals", params={"role": "cfo"})).json()["items"]
    assert [one["job_id"] for one in found] == [theirs, anyones]


async def test_where_nobody_knows_who_asks_roles_are_not_held_against_them(api: Api) -> None:
    job_id = await asking(api, "cfo")
    assert await offered(api.open, job_id) == (True, True)
    assert (await word(api.open, job_id)).json()["status"] == "queued"
    (asked,) = await api.engine.approvals_of(job_id)
    assert asked.votes[0].roles is None
