"""Approval rules: which tasks are held, who decided and why, and invalid rules."""

from pathlib import Path
from typing import Any

import pytest

from detent import ApprovalPolicy, ApprovalRule, DetentError
from detent.core.access import Scope
from detent.core.approval_rules import policy_from_toml
from support.cli.console import Cli, cli  # noqa: F401
from support.streams.harness import TASKS, StreamHarness

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
    ("payments.refund", {"amount": 10}, "a person must approve"),
    ("payments.refund", {"amount": "9"}, "a person must approve"),
    ("payments.pay", {"lines": [{"amount": 5}, {"amount": 1001}]}, "large sums: over 1000"),
    ("payments.pay", {"lines": [{"amount": 5}, {"amount": 1000}]}, None),
    ("payments.pay", {"lines": [{"amount": "1e9"}]}, "large sums: over 1000"),
    ("payments.pay", {"lines": {"a": {"amount": 2000}}}, "large sums: over 1000"),
    ("payments.pay", {}, None),
    ("shell.run", {}, "risk: a person must approve"),
    ("mail.send", {"to": "ada@example.org"}, None),
    ("mail.send", {"to": "eve@example.com"}, "strangers: a person must approve"),
    ("other", {"to": "eve@example.com"}, None),
]


@pytest.mark.parametrize(("tool", "payload", "reason"), CASES)
def test_the_first_rule_that_matches_decides(tool: str, payload: dict[str, Any], reason: str | None) -> None:
    assert policy_from_toml(RULES).reason_to_hold(tool, payload) == reason


def test_rules_may_be_functions() -> None:
    def at_night(tool: str, payload: Any, risk: str) -> str | None:
        return "requested at night" if payload.get("hour", 12) < 6 and risk != "low" else None

    approval_policy = ApprovalPolicy([at_night, ApprovalRule(tool_name="drop.*")], risks={"wipe": "high"})
    assert approval_policy.reason_to_hold("wipe", {"hour": 3}) == "requested at night"
    assert approval_policy.reason_to_hold("add", {"hour": 3}) is None
    assert approval_policy.reason_to_hold("drop.table", {}) == "a person must approve"


@pytest.mark.parametrize(
    "text",
    ["[[rule", "[[rules]]", "[[rule]]\ntool = 'x'", "[[rule]]\nrisk = 'big'", "[[rule]]\nabove = 1",
     "[[rule]]\ndecide = 'maybe'", "[[rule]]\npath = 'a'\nmatches = '('", "[risks]\nx = 'huge'"],
)  # fmt: skip
def test_invalid_rules_are_refused(text: str) -> None:
    with pytest.raises(DetentError) as refused:
        policy_from_toml(text)
    assert refused.value.code == "GUARD_INVALID"


@pytest.mark.anyio
async def test_held_tasks_are_published_after_an_approval(harness: StreamHarness) -> None:
    harness.engine.approval_policy = ApprovalPolicy([ApprovalRule(name="sums", path="a", above=100, reason="too much")])
    free, held = await harness.submit(payload={"a": 1}), await harness.submit(payload={"a": 101})
    refused = await harness.submit(payload={"a": 500})
    await harness.publish()
    assert [fields["task_id"] for _, fields in harness.redis.xrange(TASKS)] == [free.id]
    assert held.status == "waiting_approval"
    request = await harness.entry(held.id, "approval.requested")
    assert request["actor"] == "guard" and request["data"]["reason"] == "sums: too much"
    await harness.engine.approvals.approve(held.id, Scope("ada", "known customer"))
    await harness.engine.approvals.reject(refused.id, Scope("bob", "fraud"))
    with pytest.raises(DetentError) as conflict:
        await harness.engine.approvals.approve(free.id, Scope("ada"))
    assert conflict.value.http_status == 409
    await harness.work()
    approved = await harness.entry(held.id, "approval.approved")
    assert (approved["actor"], approved["data"]["reason"]) == ("ada", "known customer")
    rejected = await harness.entry(refused.id, "approval.rejected")
    assert (rejected["actor"], rejected["data"]["reason"]) == ("bob", "fraud")
    assert [(await harness.job(job.id)).status for job in (held, refused)] == ["succeeded", "failed"]
    await harness.check_integrity()


@pytest.mark.anyio
async def test_rules_apply_to_each_task_of_a_bulk(harness: StreamHarness) -> None:
    from detent.engine import Submission

    harness.engine.approval_policy = ApprovalPolicy([ApprovalRule(path="a", above=2)])
    jobs = await harness.engine.jobs.submit_uniform(
        Submission("add", contract="standard"), [{"a": n} for n in range(5)]
    )
    assert [(await harness.job(job.id)).phase for job in jobs] == ["claimable"] * 3 + ["blocked"] * 2
    with pytest.raises(DetentError, match="approval"):
        await harness.engine.jobs.submit(Submission("add", {"a": 3}, "men"))


def test_the_rules_apply_to_commands(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    (tmp_path / "guard.toml").write_text(RULES)
    monkeypatch.setenv("DETENT_GUARD", str(tmp_path / "guard.toml"))
    held = cli("enqueue", "shell.run", "--contract", "streams", "--json").json["job"]
    assert held["status"] == "waiting_approval"
    cli("jobs", "approve", held["id"], "--actor", "ada", "--reason", "checked")
    assert cli("jobs", "show", held["id"], "--json").json["status"] == "queued"
    monkeypatch.setenv("DETENT_GUARD", str(tmp_path / "nowhere.toml"))
    assert "GUARD_INVALID" in cli("enqueue", "shell.run", code=2).err
