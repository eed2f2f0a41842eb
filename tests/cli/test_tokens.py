"""`detent token`, and the commands that need two people: who acts is proven by a token, not by a typed name."""

from pathlib import Path

import pytest

from support.cli.console import Cli

PAY = """
from detent import Context, Detent

app = Detent()


@app.job("pay")
async def pay(ctx: Context) -> bool:
    return bool(await ctx.approval("pay 900", quorum=2))
"""


@pytest.fixture
def waiting(cli: Cli) -> str:
    """A job that waits for two approvals."""
    Path("pay.py").write_text(PAY)
    job = cli("enqueue", "pay").id
    cli("worker", "pay.py", "--until-idle")
    return job


def test_a_quorum_needs_tokens_of_different_people(cli: Cli, waiting: str) -> None:
    """Typed names, system users and tokens of one creator count as one person."""
    assert "1 more approval needed" in cli("jobs", "approve", waiting, "--by", "ann").out
    for by in ("ann", "bo", "Ａnn"):
        assert cli("jobs", "approve", waiting, "--by", by, code=1).err.startswith("APPROVAL_REQUIRED")
    secrets = {
        name: cli("token", "create", "--name", name, "--role", "reviewer", "--actor", name, "--json").json["token"]
        for name in ("bo", "cy", "dan")
    }
    assert "1 more approval needed" in cli("jobs", "approve", waiting, "--token", secrets["bo"]).out
    refused = cli("jobs", "approve", waiting, "--token", secrets["cy"], code=1).err
    assert refused.startswith("APPROVAL_REQUIRED") and "`detent token rotate`" in refused
    Path("secret").write_text(cli("token", "rotate", "--token", secrets["cy"], "--json").json["token"])
    wrong_name = cli("jobs", "approve", waiting, "--by", "dan", "--token-file", "secret", code=2).err
    assert "the token is of cy" in wrong_name
    assert (
        "does not have the role cfo"
        in cli("jobs", "approve", waiting, "--role", "cfo", "--token-file", "secret", code=2).err
    )
    assert cli("jobs", "approve", waiting, "--token-file", "secret", "--json").json["phase"] == "claimable"


def test_one_approval_needs_no_token(cli: Cli) -> None:
    job = cli("enqueue", "charge", "--hold").id
    assert cli("jobs", "approve", job, "--by", "ann", "--json").json["status"] == "queued"


def test_a_token_cannot_do_more_on_the_command_line(cli: Cli, waiting: str) -> None:
    viewer = cli("token", "create", "--name", "vic", "--role", "viewer", "--json").json["token"]
    assert cli("jobs", "approve", waiting, "--token", viewer, code=1).err.startswith("FORBIDDEN")
    other = cli("token", "create", "--name", "rui", "--role", "reviewer", "--queues", "billing", "--json").json["token"]
    assert cli("jobs", "approve", waiting, "--token", other, code=1).err.startswith("JOB_NOT_FOUND")
    assert cli("jobs", "approve", waiting, "--token-file", "no/such", code=2).err.startswith("USAGE")


def test_a_token_limits_a_discard(cli: Cli) -> None:
    """A token without payloads prints none; a bulk discard is made by the person of the token and within its limits."""
    cli("enqueue", "refund", "--contract", "streams", "--payload", '{"order_id": 4111}')
    cli("worker", "shop.py", "--until-idle")
    create = ("token", "create", "--role", "operator", "--json", "--name")
    blind = cli(*create, "bo", "--no-payloads").json["token"]
    billing = cli(*create, "cy", "--queues", "billing").json["token"]
    discard = ("dlq", "discard", "--reason", "old", "--json", "--token")
    assert cli(*discard, "detent_no", "--all", "--dry-run", code=1).err.startswith('{"code": "UNAUTHORIZED"')
    assert cli(*discard, billing, "--all", "--dry-run").json["matched"] == 0
    assert cli(*discard, blind, "--all", "--yes").json["done"] == 1
    item = cli("dlq", "list").id
    assert [act["actor"] for act in cli("dlq", "show", item, "--json").json["acts"]] == ["bo"]
    cli("enqueue", "refund", "--payload", '{"order_id": 4111}')
    cli("worker", "shop.py", "--until-idle")
    assert "4111" not in cli(*discard, blind, cli("dlq", "list", "--status", "open").id).out


def test_creating_tokens_of_programs_and_people(cli: Cli) -> None:
    create = ("token", "create", "--json", "--name")
    worker = cli(*create, "w1", "--role", "worker", "--queues", "billing, mail", "--types", "charge").json
    assert worker["queues"] == ["billing", "mail"] and worker["job_types"] == ["charge"]
    assert worker["expires_at"] is None and "operator of the server" in worker["shared_with"]
    assert cli(*create, "ann", "--role", "viewer").json["expires_at"] is not None
    assert cli(*create, "prometheus", "--role", "viewer", "--expires", "never").json["expires_at"] is None
    assert cli(*create, "bo", "--role", "viewer", "--expires", "10").json["expires_soon"] is True
    assert cli(*create, "bo", "--role", "viewer", "--expires", "soon", code=2).err.startswith('{"')
    assert "SCOPE_INVALID" in cli(*create, "w2", "--role", "worker", "--tenant", "t", code=2).err
    listed = cli("token", "list").out
    assert "billing, mail" in listed and "create a new one" in listed
    report = cli("doctor", "--json", code=1).json
    assert [check["says"] for check in report["checks"] if not check["ok"]] == ["tokens of bo expire within 14 days"]
