"""The guard: which tasks wait for a person, who decided and why, and rules that are refused."""

from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Cli, cli  # noqa: F401

from detent import ApprovalPolicy, ApprovalRule, DetentError
from detent.core.approval_rules import policy_from_toml

from .stage import TASKS, Stage

RULES = """
default_risk = "low"

[risks]
"shell.*" = "critical"
"mail.*" = "medium"

[[rule]]
name = "small refunds"
tool_name = "payments.refund"
path = "amount"
below = 10
decide = "allow"

[[rule]]
name = "large sums"
tool_name = "payments.*"
path = "lines.*.amount"
above = 1000
reason = "over 1000"

[[rule]]
tool_name = "payments.refund"

[[rule]]
name = "risk"
risk = "high"

[[rule]]
name = "strangers"
tool_name = "mail.send"
path = "to"
matches = "@(?!example\\\\.org$)"
"""

CASES: list[tuple[str, dict[str, Any], str | None]] = [
    ("payments.refund", {"amount": 9}, None),
    ("payments.refund", {"amount": 10}, "a person must agree"),
    ("payments.refund", {"amount": "9"}, "a person must agree"),
    ("payments.pay", {"lines": [{"amount": 5}, {"amount": 1001}]}, "large sums: over 1000"),
    ("payments.pay", {"lines": [{"amount": 5}, {"amount": 1000}]}, None),
    ("payments.pay", {"lines": [{"amount": "1e9"}]}, "large sums: over 1000"),
    ("payments.pay", {"lines": {"a": {"amount": 2000}}}, "large sums: over 1000"),
    ("payments.pay", {}, None),
    ("shell.run", {}, "risk: a person must agree"),
    ("mail.send", {"to": "ada@example.org"}, None),
    ("mail.send", {"to": "eve@example.com"}, "strangers: a person must agree"),
    ("other", {"to": "eve@example.com"}, None),
]


@pytest.mark.parametrize(("tool", "payload", "why"), CASES)
def test_the_first_rule_that_matches_decides(tool: str, payload: dict[str, Any], why: str | None) -> None:
    assert policy_from_toml(RULES).reason_to_hold(tool, payload) == why


def test_rules_may_be_functions() -> None:
    def at_night(tool: str, payload: Any, risk: str) -> str | None:
        return "asked at night" if payload.get("hour", 12) < 6 and risk != "low" else None

    approval_policy = ApprovalPolicy([at_night, ApprovalRule(tool_name="drop.*")], risks={"wipe": "high"})
    assert approval_policy.reason_to_hold("wipe", {"hour": 3}) == "asked at night"
    assert approval_policy.reason_to_hold("add", {"hour": 3}) is None
    assert approval_policy.reason_to_hold("drop.table", {}) == "a person must agree"


@pytest.mark.parametrize(
    "text",
    ["[[rule", "[[rules]]", "[[rule]]\ntool = 'x'", "[[rule]]\nrisk = 'big'", "[[rule]]\nabove = 1",
     "[[rule]]\ndecide = 'maybe'", "[[rule]]\npath = 'a'\nmatches = '('", "[risks]\nx = 'huge'"],
)  # fmt: skip
def test_rules_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(DetentError) as refused:
        policy_from_toml(text)
    assert refused.value.code == "GUARD_INVALID"


@pytest.mark.anyio
async def test_held_tasks_are_published_once_a_person_agrees(stage: Stage) -> None:
    stage.engine.approval_policy = ApprovalPolicy([ApprovalRule(name="sums", path="a", above=100, reason="too much")])
    free, held = await stage.submit(payload={"a": 1}), await stage.submit(payload={"a": 101})
    refused = await stage.submit(payload={"a": 500})
    await stage.publish()
    assert [fields["task_id"] for _, fields in stage.redis.xrange(TASKS)] == [free.id]
    assert held.status == "waiting_approval"
    asked = await stage.entry(held.id, "approval.requested")
    assert asked["actor"] == "guard" and asked["data"]["reason"] == "sums: too much"
    await stage.engine.approve(held.id, actor="ada", reason="known customer")
    await stage.engine.reject(refused.id, actor="bob", reason="fraud")
    with pytest.raises(DetentError) as conflict:
        await stage.engine.approve(free.id, actor="ada")
    assert conflict.value.http_status == 409
    await stage.work()
    approved = await stage.entry(held.id, "approval.approved")
    assert (approved["actor"], approved["data"]["reason"]) == ("ada", "known customer")
    rejected = await stage.entry(refused.id, "approval.rejected")
    assert (rejected["actor"], rejected["data"]["reason"]) == ("bob", "fraud")
    assert [(await stage.job(one.id)).status for one in (held, refused)] == ["succeeded", "failed"]
    await stage.verified()


@pytest.mark.anyio
async def test_a_bulk_of_tasks_is_judged_one_by_one(stage: Stage) -> None:
    from detent.engine import Submission

    stage.engine.approval_policy = ApprovalPolicy([ApprovalRule(path="a", above=2)])
    made = await stage.engine.submit_uniform(Submission("add", contract="standard"), [{"a": n} for n in range(5)])
    assert [(await stage.job(one.id)).phase for one in made] == ["claimable"] * 3 + ["blocked"] * 2
    with pytest.raises(DetentError, match="approval"):
        await stage.engine.submit(Submission("add", {"a": 3}, "men"))


def test_commands_obey_the_rules_too(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    (tmp_path / "guard.toml").write_text(RULES)
    monkeypatch.setenv("DETENT_GUARD", str(tmp_path / "guard.toml"))
    held = cli("enqueue", "shell.run", "--contract", "streams", "--json").json["job"]
    assert held["status"] == "waiting_approval"
    cli("jobs", "approve", held["id"], "--actor", "ada", "--reason", "looked at it")
    assert cli("jobs", "show", held["id"], "--json").json["status"] == "queued"
    monkeypatch.setenv("DETENT_GUARD", str(tmp_path / "nowhere.toml"))
    assert "GUARD_INVALID" in cli("enqueue", "shell.run", code=2).err
