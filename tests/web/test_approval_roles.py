"""Approvals that require a role: people who have one may decide over the API, others are refused."""

import httpx
import pytest

from detent.core.approval import make_approval_request
from detent.core.job import APPROVAL, Wait
from detent.core.outcome import Waits
from detent.engine import Submission
from support.web.api import API, Api, code

pytestmark = pytest.mark.anyio


async def submit_approval(api: Api, *roles: str, quorum: int = 1) -> str:
    engine = api.engine
    job = (await engine.jobs.submit(Submission("refund"))).job
    (held,) = await engine.claim(engine.claim_request("w1", 1))
    question = make_approval_request("refund 40 euro?", {"order": 7}, roles, quorum, None)
    await engine.settle(job.id, held.token, Waits(Wait("refund", APPROVAL, None, approval=question)))
    return job.id


async def decide(client: httpx.AsyncClient, job_id: str, act: str = "approve") -> httpx.Response:
    return await client.post(f"{API}/jobs/{job_id}/{act}", json={})


async def may_approve(client: httpx.AsyncClient, job_id: str) -> tuple[bool, bool]:
    """(may_decide in the inbox, whether the job's detail lists approve)."""
    items = (await client.get(f"{API}/approvals")).json()["items"]
    acts = (await client.get(f"{API}/jobs/{job_id}/detail")).json()["acts"]
    return next(item["may_decide"] for item in items if item["job_id"] == job_id), "approve" in [a["act"] for a in acts]


@pytest.mark.parametrize("act", ["approve", "reject"])
async def test_only_a_person_with_a_required_role_decides(api: Api, act: str) -> None:
    plain = await api.person("pat", "reviewer")
    other = await api.person("oto", "admin", roles=["intern"])
    lead = await api.person("lea", "reviewer", roles=["support-lead", "intern"])
    watching = await api.person("vic", "viewer", roles=["support-lead"])
    job_id = await submit_approval(api, "cfo", "support-lead")
    for client in (plain, other):
        assert await may_approve(client, job_id) == (False, False)
        refused = await decide(client, job_id, act)
        assert code(refused, 403) == "APPROVAL_ROLE_REQUIRED" and refused.json()["roles"] == ["cfo", "support-lead"]
    assert await may_approve(watching, job_id) == (False, False)
    assert code(await decide(watching, job_id, act), 403) == "FORBIDDEN"
    assert await may_approve(lead, job_id) == (True, True)
    assert (await decide(lead, job_id, act)).status_code == 200
    (approval,) = await api.engine.approvals.of_job(job_id)
    assert (approval.decision, [vote.person for vote in approval.votes]) == (act, ["lea"])
    assert approval.votes[0].roles == ("intern", "reviewer", "support-lead", "viewer")


async def test_the_role_of_a_token_and_the_roles_it_includes_count(api: Api) -> None:
    ann, bob = await api.person("ann", "reviewer"), await api.person("bob", "admin")
    first, second = await submit_approval(api, "reviewer"), await submit_approval(api, "admin")
    assert code(await decide(ann, second), 403) == "APPROVAL_ROLE_REQUIRED"
    for client, job_id in ((ann, first), (bob, second), (bob, await submit_approval(api, "reviewer"))):
        assert (await decide(client, job_id)).json()["status"] == "queued"


async def test_a_quorum_counts_people_with_the_role(api: Api) -> None:
    job_id = await submit_approval(api, "cfo", quorum=2)
    first = await api.person("ann", "reviewer", roles=["cfo"])
    again = await api.person("ann", "admin", roles=["cfo"])
    second = await api.person("bob", "reviewer", roles=["cfo"])
    assert (await decide(first, job_id)).json()["status"] == "waiting_approval"
    assert code(await decide(again, job_id), 400) == "APPROVAL_REQUIRED"
    assert (await decide(second, job_id)).json()["status"] == "queued"


async def test_tokens_are_created_with_roles_and_show_them(api: Api) -> None:
    boss = await api.person("boss", "admin", rotated=False)
    body = {"name": "lea", "role": "reviewer", "roles": ["cfo", "cfo", "support-lead"]}
    created = (await boss.post(f"{API}/tokens", json=body)).json()
    assert created["roles"] == ["cfo", "support-lead"]
    lea = api.client(created["token"])
    assert (await lea.get(f"{API}/me")).json()["roles"] == ["cfo", "reviewer", "support-lead", "viewer"]
    assert [token["roles"] for token in (await boss.get(f"{API}/tokens")).json()["items"]] == [
        [],
        ["cfo", "support-lead"],
    ]
    for roles in ("cfo", [""], ["x"] * 51, [7]):
        assert code(await boss.post(f"{API}/tokens", json={**body, "roles": roles}), 422) == "INPUT_INVALID"


async def test_the_inbox_filtered_by_role(api: Api) -> None:
    await api.person("boss", "admin")
    client = await api.person("vic", "viewer")
    theirs, anyones = await submit_approval(api, "cfo"), await submit_approval(api)
    await submit_approval(api, "support-lead")
    items = (await client.get(f"{API}/approvals", params={"role": "cfo"})).json()["items"]
    assert [item["job_id"] for item in items] == [theirs, anyones]


async def test_without_tokens_roles_are_not_required(api: Api) -> None:
    job_id = await submit_approval(api, "cfo")
    assert await may_approve(api.open, job_id) == (True, True)
    assert (await decide(api.open, job_id)).json()["status"] == "queued"
    (approval,) = await api.engine.approvals.of_job(job_id)
    assert approval.votes[0].roles is None
