"""`detent enqueue`, `detent jobs …`, `detent dlq …`: output and exit codes."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.cli.console import Cli

JOB_FIELDS = {
    *("id", "job_type", "contract", "queue", "tenant_id", "status", "phase", "version", "due_at", "priority"),
    *("execution_no", "payload", "result", "error_code", "error_message", "idempotency_key", "idempotency_scope"),
    *("task_id", "trace_id", "parent_id", "dlq_id", "created_at", "updated_at", "started_at", "finished_at", "view"),
}
EVENT_FIELDS = {
    *("seq", "event", "source", "target", "at", "actor", "execution_no", "trace_id", "data", "note", "envelope"),
}


def test_enqueue_prints_the_rest_response(cli: Cli) -> None:
    first = cli("enqueue", "charge", "--payload", '{"order_id": 7}', "--key", "k1", "--json").json
    assert set(first) == {"idempotent_hit", "job", "warnings"} and first["idempotent_hit"] is False
    assert [warning["code"] for warning in first["warnings"]] == ["JOB_TYPE_UNKNOWN"]
    assert first["job"].keys() >= JOB_FIELDS
    assert first["job"]["payload"] == {"order_id": 7} and first["job"]["status"] == "queued"
    again = cli("enqueue", "charge", "--payload", '{"order_id": 7}', "--key", "k1", "--json").json
    assert again["idempotent_hit"] is True and again["job"]["id"] == first["job"]["id"]
    other = cli("enqueue", "charge", "--payload", '{"order_id": 8}', "--key", "k1", "--json", code=1)
    assert json.loads(other.err)["code"] == "IDEMPOTENCY_CONFLICT"
    assert json.loads(other.err)["conflict_fields"] == ["payload"]


def test_enqueue_uses_what_the_application_and_then_workers_declare(cli: Cli) -> None:
    with_app = cli("enqueue", "charge", "--app", "shop.py", "--payload", '{"order_id": 7}', "--json").json
    assert with_app["job"]["queue"] == "billing" and "warnings" not in with_app
    assert cli("enqueue", "charge", "--payload", '{"order_id": 7}', "--json").json["job"]["queue"] == "default"
    assert "warning: job type 'chrage'" in cli("enqueue", "chrage").err
    assert "JOB_TYPE_UNKNOWN" in cli("enqueue", "chrage", "--known-types-only", code=2).err
    cli("worker", "shop.py", "--queues", "none", "--until-idle")
    declared = cli("enqueue", "charge", "--payload", '{"order_id": 7}', "--json").json
    assert declared["job"]["queue"] == "billing" and "warnings" not in declared
    other = cli("enqueue", "charge", "--payload", '{"order_id": 7}', "--queue", "slow", "--json").json
    assert other["job"]["queue"] == "slow"
    refused = cli("enqueue", "charge", "--payload", '{"order_id": "many"}', code=2)
    assert "PAYLOAD_INVALID: charge: order_id must be integer" in refused.err


def test_enqueue_takes_every_option(cli: Cli) -> None:
    job = cli(
        *("enqueue", "charge", "--contract", "men", "--queue", "q", "--key", "k", "--scope", "s", "--tenant", "t"),
        *("--at", "2099-01-01T00:00:00Z", "--max-retries", "5", "--timeout-ms", "700", "--priority", "-3"),
        *("--task-id", "T-1", "--trace-id", "tr", "--json"),
    ).json
    assert job["task"]["task_id"] == "T-1" and job["task"]["max_retries"] == 5
    row = job["job"]
    assert (row["queue"], row["tenant_id"], row["idempotency_scope"]) == ("q", "t", "s")
    assert (row["due_at"], row["timeout_ms"], row["priority"]) == ("2099-01-01T00:00:00Z", 700, -3)
    assert cli("jobs", "events", row["id"], "--json").json["items"][0]["actor"] == "ann"


@pytest.mark.parametrize("contract", ["men", "p3c"])
def test_a_task_is_addressed_by_its_task_id(cli: Cli, contract: str) -> None:
    job = cli("enqueue", "charge", "--contract", contract, "--task-id", "order-7", "--json").json["job"]
    assert cli("jobs", "show", "order-7", "--json").json == job
    assert "order-7" in cli("jobs", "show", "order-7").out
    events = cli("jobs", "events", "order-7", "--json").json
    assert events == cli("jobs", "events", job["id"], "--json").json and events["items"]
    cli("jobs", "cancel", "order-7", "--reason", "not needed")
    assert cli("jobs", "show", "order-7", "--json").json["status"] == "cancelled"
    assert json.loads(cli("jobs", "show", "order-8", "--json", code=1).err)["code"] == "JOB_NOT_FOUND"


def test_enqueue_reads_files_and_options_from_the_environment(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("order.json").write_text('{"order_id": 9}')
    monkeypatch.setenv("DETENT_PAYLOAD", "@order.json")
    monkeypatch.setenv("DETENT_MAX_RETRIES", "1")
    monkeypatch.setenv("DETENT_JSON", "1")
    job = cli("enqueue", "charge").json["job"]
    assert job["payload"] == {"order_id": 9} and job["max_retries"] == 1


@pytest.mark.parametrize(
    ("arguments", "code", "error_code"),
    [
        (("enqueue", "x", "--payload", "{x"), 2, "USAGE"),
        (("enqueue", "x", "--payload", "[1]"), 2, "PAYLOAD_NOT_OBJECT"),
        (("enqueue", "x", "--payload", "NaN"), 2, "PAYLOAD_NOT_OBJECT"),
        (("enqueue", "x", "--payload", '{"a": NaN}'), 2, "PAYLOAD_NOT_JSON"),
        (("enqueue", "x", "--payload", "@nowhere.json"), 2, "USAGE"),
        (("enqueue", "x", "--payload", "[" * 100_000), 2, "USAGE"),
        (("enqueue", "x", "--at", "tomorrow"), 2, "TIME_INVALID"),
        (("enqueue", "x", "--max-retries", "many"), 2, "USAGE"),
        (("enqueue", "x", "--contract", "nope"), 1, "CONTRACT_UNKNOWN"),
        (("enqueue", ""), 2, "NAME_INVALID"),
        (("enqueue", "x\udcff"), 2, "NAME_INVALID"),
        (("enqueue",), 2, "USAGE"),
        (("enqueue", "x", "--hold", "--contract", "gate-b2"), 1, "CONTRACT_LACKS_MOVE"),
        (("nonsense",), 2, "USAGE"),
        (("jobs", "nonsense"), 2, "USAGE"),
        (("jobs", "list", "--limit", "0"), 2, "USAGE"),
        (("jobs", "list", "--phase", "nowhere"), 2, "USAGE"),
        (("jobs", "list", "--url", "mysql://x"), 2, "URL_INVALID"),
        (("jobs", "list", "--url", "sqlite:///no/such/folder/x.db"), 1, "DATABASE_PATH_INVALID"),
        (("jobs", "list", "--url", "sqlite:///shop.py"), 1, "STORE_UNAVAILABLE"),
        (("jobs", "show", "none"), 1, "JOB_NOT_FOUND"),
        (("jobs", "why", "none"), 1, "JOB_NOT_FOUND"),
        (("jobs", "requeue", "none"), 1, "JOB_NOT_FOUND"),
        (("jobs", "export", "none"), 1, "JOB_NOT_FOUND"),
        (("dlq", "show", "none"), 1, "DLQ_ITEM_NOT_FOUND"),
        (("jobs", "signal", "none", "x", "--data", "{"), 2, "USAGE"),
    ],
)
def test_errors_are_one_line_and_an_exit_code(cli: Cli, arguments: tuple[str, ...], code: int, error_code: str) -> None:
    result = cli(*arguments, code=code)
    assert result.err.startswith(f"{error_code}: ") and result.err.count("\n") == 1 and not result.out
    result = cli(*arguments, "--json", code=code)
    assert json.loads(result.err)["code"] == error_code and not result.out


def test_an_internal_error_is_one_line_too(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detent.engine.jobs.Jobs.page", lambda *_, **__: 1 / 0)
    assert cli("jobs", "list", code=1).err.startswith("INTERNAL: ZeroDivisionError")
    monkeypatch.setenv("DETENT_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        cli("jobs", "list")


def test_list_filters_and_pages(cli: Cli) -> None:
    ids = [cli("enqueue", "charge", "--queue", f"q{n % 2}", "--tenant", f"t{n}").id for n in range(5)]
    page = cli("jobs", "list", "--limit", "2", "--json").json
    assert [job["id"] for job in page["items"]] == ids[:2:-1] and page["next_cursor"] == ids[3]
    rest = cli("jobs", "list", "--cursor", ids[3], "--json").json
    assert [job["id"] for job in rest["items"]] == ids[2::-1] and rest["next_cursor"] is None
    assert len(cli("jobs", "list", "--queue", "q1", "--json").json["items"]) == 2
    assert len(cli("jobs", "list", "--tenant", "t3", "--json").json["items"]) == 1
    assert len(cli("jobs", "list", "--phase", "claimable", "--status", "queued", "--json").json["items"]) == 5
    assert cli("jobs", "list", "--phase", "final", "--json").json == {"items": [], "next_cursor": None}
    assert [job["id"] for job in cli("jobs", "list", "--text", ids[1], "--json").json["items"]] == [ids[1]]
    assert "No jobs match." in cli("jobs", "list", "--type", "none").out
    text = cli("jobs", "list", "--limit", "2").out
    assert ids[4] in text and "charge" in text and f"next page: --cursor {ids[3]}" in text


def test_the_list_fits_into_80_columns(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = cli("enqueue", "refund", "--payload", '{"order_id": 1}', "--queue", "returns-and-complaints").id
    cli("worker", "shop.py", "--until-idle")
    queued = cli("enqueue", "charge", "--payload", '{"order_id": 2}').id
    wide = cli("jobs", "list").out
    assert "returns-and-complaints" in wide and "ORDER_UNKNOWN: no such order" in wide
    monkeypatch.setenv("COLUMNS", "80")
    head, first, second = cli("jobs", "list").out.splitlines()
    assert head.split() == ["id", "type", "status", "updated", "error"]
    assert first.split()[:3] == [queued, "charge", "queued"]
    assert second.split()[:3] == [failed, "refund", "failed"] and second.split()[-1] == "ORDER_UNKNOWN"
    assert max(map(len, (head, first, second))) <= 80
    head, row = cli("jobs", "list", "--status", "queued").out.splitlines()
    assert "error" not in head.split() and row.split()[:3] == [queued, "charge", "queued"] and "…" not in row


def test_stored_text_cannot_control_the_terminal(cli: Cli) -> None:
    enqueued = cli("enqueue", "charge", "--payload", json.dumps({"a": "[red]\x1b[2Jx"}), "--queue", "[bold]q")
    shown = cli("jobs", "show", enqueued.id).out + cli("jobs", "list").out
    assert "\x1b" not in shown and "[bold]q" in shown and "[red]" in shown


def test_tenants_are_kept_apart(cli: Cli) -> None:
    job = cli("enqueue", "charge", "--tenant", "a").id
    for command in ("show", "events", "why", "export"):
        assert cli("jobs", command, job, "--tenant", "b", code=1).err.startswith("JOB_NOT_FOUND")
    assert cli("jobs", "cancel", job, "--tenant", "b", code=1).err.startswith("TENANT_SCOPE_VIOLATION")
    assert cli("jobs", "show", job, "--tenant", "a", "--json").json["status"] == "queued"


def test_cancel_abort_and_reopen(cli: Cli) -> None:
    job = cli("enqueue", "charge").id
    assert cli("jobs", "cancel", job, "--reason", "late", "--json").json["status"] == "cancelled"
    assert cli("jobs", "cancel", job, code=1).err.startswith("JOB_TRANSITION_INVALID")
    event = cli("jobs", "events", job, "--json").json["items"][1]
    assert event.keys() == EVENT_FIELDS and event["actor"] == "ann" and event["data"]["reason"] == "late"
    assert cli("jobs", "events", job, "--json").json["items"][2]["note"] is True
    assert cli("jobs", "reopen", job, code=1).err.startswith("JOB_TRANSITION_INVALID")
    assert cli("jobs", "abort", job, "--actor", "bo", code=1).err.startswith("JOB_TRANSITION_INVALID")


def test_approve_and_reject(cli: Cli) -> None:
    first, second = cli("enqueue", "charge", "--hold").id, cli("enqueue", "charge", "--hold").id
    assert cli("jobs", "approve", first, "--json").json["status"] == "queued"
    assert "failed" in cli("jobs", "reject", second, "--reason", "too much").out
    assert cli("jobs", "show", second, "--json").json["error_message"] == "too much"
    assert cli("jobs", "approve", first, code=1).err.startswith("JOB_TRANSITION_INVALID")


def test_a_repeated_signal_is_ignored(cli: Cli) -> None:
    job = cli("enqueue", "ship").id
    assert cli("jobs", "signal", job, "packed", "--data", '{"by": 1}', "--json").json["first"] is True
    assert cli("jobs", "signal", job, "packed", "--json").json["first"] is False
    assert "this one was ignored" in cli("jobs", "signal", job, "packed").out


def test_enqueue_with_a_backoff(cli: Cli) -> None:
    assert cli("enqueue", "ship", "--backoff", "60,300,900", "--json").json["job"]["backoff"] == "60,300,900"
    assert cli("enqueue", "ship", "--backoff", "soon", code=2).err.startswith("BACKOFF_INVALID")
    assert cli("enqueue", "ship", "--contract", "gate-b2", "--backoff", "5", code=2).err.startswith("BACKOFF_FROZEN")


def test_work_dead_letters_and_requeue(cli: Cli) -> None:
    job = cli("enqueue", "refund", "--payload", '{"order_id": 1}').id
    assert "charge, refund, ship from all queues" in cli("worker", "shop.py", "--until-idle", "--slots", "2").out
    assert cli("jobs", "show", job, "--json").json["status"] == "failed"
    item = cli("dlq", "list", "--status", "open", "--json").json["items"][0]
    shown = cli("dlq", "show", item["dlq_id"], "--json").json
    assert item["job_id"] == job and {name: shown[name] for name in item} == item
    assert item["dlq_id"] in cli("dlq", "list").out and "ORDER_UNKNOWN" in cli("dlq", "show", item["dlq_id"]).out
    requeued = cli("jobs", "requeue", job, "--payload", '{"order_id": 2}', "--json").json
    assert requeued["job"]["requeued_from"] == item["dlq_id"] and requeued["job"]["payload"] == {"order_id": 2}
    assert cli("dlq", "requeue", item["dlq_id"], code=1).err.startswith("DLQ_REQUEUE_CONFLICT")
    assert cli("dlq", "replay", item["dlq_id"], code=1).err.startswith("DLQ_REQUEUE_CONFLICT")
    assert cli("jobs", "requeue", requeued["job"]["id"], code=1).err.startswith("JOB_TRANSITION_INVALID")
    assert cli("dlq", "list", "--status", "open", "--json").json["items"] == []


@pytest.mark.parametrize(
    ("contract", "fields"),
    [
        ("gate-b2", {"job_id", "retry_count"}),
        ("men", {"state", "attempt"}),
        ("p3c", {"run_id", "run_status", "attempt"}),
        ("streams", {"tool_name", "retry_count"}),
        ("formal", {"job_id", "state", "cancel_requested"}),
    ],
)
def test_show_prints_what_the_contract_calls_its_fields(cli: Cli, contract: str, fields: set[str]) -> None:
    job = cli("enqueue", "charge", "--contract", contract, "--payload", '{"order_id": 1}').id
    own = cli("jobs", "show", job).out.partition(f"fields of {contract}:\n")[2]
    assert {line.split()[0] for line in own.splitlines()} == fields


def test_discard_needs_two_people_and_a_reason(cli: Cli) -> None:
    cli("enqueue", "refund", "--payload", '{"order_id": 1}')
    cli("worker", "shop.py", "--until-idle")
    item = cli("dlq", "list").id
    assert cli("dlq", "discard", item, code=1).err.startswith("APPROVAL_REQUIRED")
    assert cli("dlq", "discard", item, "--reason", "spam", "--json").json["confirmed"] is False
    assert cli("dlq", "discard", item, "--reason", "spam", code=1).err.startswith("APPROVAL_REQUIRED")
    name_only = cli("dlq", "discard", item, "--reason", "spam", "--actor", "bo", code=1).err
    assert name_only.startswith("APPROVAL_REQUIRED") and "$DETENT_TOKEN, --token-file" in name_only
    tokens = {
        name: cli("token", "create", "--name", name, "--role", role, "--actor", f"root of {name}", "--json").json[
            "token"
        ]
        for name, role in (("ann", "admin"), ("eve", "viewer"), ("bo", "reviewer"))
    }

    def as_person(token: str, code: int = 0) -> Any:
        Path("secret").write_text(token + "\n")
        options = ("--reason", "spam", "--actor", "bo", "--token-file", "secret", "--json")
        return cli("dlq", "discard", item, *options, code=code)

    assert as_person(tokens["ann"]).json["confirmed"] is False, "a typed name does not count as one of two people"
    refusals = (("eve", "FORBIDDEN"), ("ann", "APPROVAL_REQUIRED"), ("bo", "APPROVAL_REQUIRED"), ("no", "UNAUTHORIZED"))
    for name, problem in refusals:
        assert json.loads(as_person(tokens.get(name, "detent_no"), 1).err)["code"] == problem
    rotated = cli("token", "rotate", "--token", tokens["bo"], "--json").json
    assert rotated["name"] == "bo" and rotated["shared_with"] == []
    assert cli("token", "rotate", "--token", tokens["bo"], code=1).err.startswith("UNAUTHORIZED")
    assert cli("token", "rotate", code=2).err.startswith("USAGE")
    assert as_person(rotated["token"]).json["confirmed"] is True
    assert [act["actor"] for act in cli("dlq", "show", item, "--json").json["acts"]] == ["ann", "ann", "bo"]
    assert cli("dlq", "list", "--json").json["items"][0]["status"] == "discarded"


def test_export_prints_full_histories(cli: Cli) -> None:
    ids = [cli("enqueue", "charge").id for _ in range(3)]
    lines = [json.loads(line) for line in cli("jobs", "export").out.splitlines()]
    assert [line["job"]["id"] for line in lines] == ids[::-1]
    assert all(line["events"][0]["event"] == "job.created" for line in lines)
    assert cli("jobs", "export", "--json").json == lines
    assert cli("jobs", "export", ids[1], "--json").json == [lines[1]]
    assert cli("jobs", "export", "--queue", "none", "--json").json == []
    assert "3 jobs written" in cli("jobs", "export", "--output", "all.jsonl").out
    cli("enqueue", "charge", "--contract", "p3c", "--queue", "runs")
    (line,) = cli("jobs", "export", "--queue", "runs", "--format", "envelope").out.splitlines()
    assert json.loads(line)["event"] == "run.status.changed"
    assert json.loads(line)["data"]["payload"]["status"] == "queued"
    assert cli("jobs", "export", "--queue", "runs", "--format", "envelope", "--json").json == [json.loads(line)]
    assert cli("jobs", "export", "--queue", "none", "--format", "envelope", "--json").json == []
    assert len(Path("all.jsonl").read_text().splitlines()) == 3
    assert cli("jobs", "export", "--output", "no/such/x", code=2).err.startswith("USAGE")


def test_watch_draws_until_interrupted(cli: Cli) -> None:
    job = cli("enqueue", "charge").id
    assert cli("jobs", "list", "--watch", "--json", code=2).err
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "detent", "jobs", "list", "--watch", "--every", "0.1"]
    env = {**os.environ, "COLUMNS": "150", "TERM": "xterm"}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        seen = ""
        while job not in seen:
            assert select.select([ours], [], [], 20)[0], f"nothing was drawn: {seen}"
            seen += os.read(ours, 65536).decode()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    os.close(ours)
    assert "claimable 1" in seen and "Traceback" not in seen


def test_a_closed_pipe_is_not_an_error(cli: Cli) -> None:
    for _ in range(3):
        cli("enqueue", "charge", "--payload", json.dumps({"a": "x" * 100_000}))
    for command in ("jobs export | head -c 10", "jobs list | true"):
        shell_command = f"{sys.executable} -m detent {command}"
        done = subprocess.run(shell_command, shell=True, capture_output=True, timeout=30, check=True)
        assert done.stderr == b""
