"""`detent schedules`, and dead letters in bulk."""

import json
import os
import stat
from pathlib import Path

import pytest

from support.cli.console import Cli


def test_a_schedule_is_added_paused_edited_and_removed(cli: Cli) -> None:
    schedule = cli(
        "schedules", "add", "nightly", "charge", "--cron", "30 2 * * *", "--tz", "Europe/Berlin", "--json"
    ).json
    assert (schedule["schedule_type"], schedule["timezone"], schedule["paused"]) == ("cron", "Europe/Berlin", False)
    assert cli("schedules", "list", "--json").json["items"] == [schedule]
    assert cli("schedules", "pause", "nightly", "--json").json["next_fire_at"] is None
    assert "paused" in cli("schedules", "list").out
    assert cli("schedules", "resume", schedule["id"], "--json").json["next_fire_at"] == schedule["next_fire_at"]
    edited = cli("schedules", "edit", "nightly", "--every", "5m", "--priority", "3", "--version", "3", "--json").json
    assert (edited["schedule_type"], edited["expression"], edited["priority"]) == ("every", "5m", 3)
    assert "VERSION_CONFLICT" in cli("schedules", "edit", "nightly", "--every", "6m", "--version", "1", code=1).err
    assert cli("schedules", "remove", "nightly", "--json").json["name"] == "nightly"
    assert cli("schedules", "list").out == "No schedules.\n"
    error = json.loads(cli("schedules", "show", "nightly", "--json", code=1).err)
    assert error["code"] == "SCHEDULE_NOT_FOUND"


def test_every_option_is_stored(cli: Cli) -> None:
    options = (
        "--at 2035-01-01T00:00:00 --tz Asia/Shanghai --contract men --queue slow --tenant acme --priority 4 "
        "--max-retries 1 "
        "--timeout-ms 500 --jitter 9 --misfire all --misfire-limit 7 --misfire-grace 11 --overlap cancel --paused "
        "--starts-at 2034-01-01T00:00:00Z --ends-at 2036-01-01T00:00:00Z"
    )
    schedule = cli("schedules", "add", "one", "ship", *options.split(), "--payload", '{"order_id": 1}', "--json").json
    expected = {
        "expression": "2034-12-31T16:00:00Z",
        "contract": "men",
        "queue": "slow",
        "tenant_id": "acme",
        "priority": 4,
        "max_retries": 1,
        "timeout_ms": 500,
        "jitter_seconds": 9.0,
        "misfire": "all",
        "misfire_limit": 7,
        "misfire_grace_seconds": 11.0,
        "overlap": "cancel",
        "paused": True,
        "starts_at": "2034-01-01T00:00:00Z",
        "ends_at": "2036-01-01T00:00:00Z",
        "payload": {"order_id": 1},
    }
    assert {name: schedule[name] for name in expected} == expected
    assert cli("schedules", "list", "--tenant", "other").out == "No schedules match.\n"


@pytest.mark.parametrize(
    ("arguments", "code", "error_code"),
    [
        ("add x charge", 2, "SCHEDULE_INVALID"),
        ("add x charge --cron @daily --every 5m", 2, "SCHEDULE_INVALID"),
        ("add x charge --every 1ms", 2, "SCHEDULE_INVALID"),
        ("add x charge --at 2020-01-01T00:00:00Z", 2, "SCHEDULE_INVALID"),
        ("add x charge --cron nonsense --contract men", 2, "TASK_INVALID_SCHEDULE"),
        ("add x charge --every 5m --misfire sometimes", 2, "USAGE"),
        ("add x charge --every 5m --app shop.py", 2, "PAYLOAD_INVALID"),
        ("add x charge --every 5m --app nowhere.py", 2, "APP_NOT_FOUND"),
        ("preview", 2, "USAGE"),
        ("preview x --every 5m", 2, "USAGE"),
        ("pause x", 1, "SCHEDULE_NOT_FOUND"),
        ("backfill x --from 2026-01-01T00:00:00Z --to 2026-01-02T00:00:00Z", 1, "SCHEDULE_NOT_FOUND"),
    ],
)
def test_invalid_arguments(cli: Cli, arguments: str, code: int, error_code: str) -> None:
    assert cli("schedules", *arguments.split(), code=code).err.startswith(error_code)
    assert cli("schedules", "list").out == "No schedules.\n"


def test_an_application_provides_the_options_it_declares(cli: Cli) -> None:
    options = ("--every", "5m", "--payload", '{"order_id": 7}', "--app", "shop.py", "--json")
    schedule = cli("schedules", "add", "x", "charge", *options).json
    assert (schedule["queue"], schedule["payload"]) == ("billing", {"order_id": 7})


def test_workers_provide_the_options_they_declare(cli: Cli) -> None:
    cli("worker", "shop.py", "--queues", "none", "--until-idle")
    options = ("charge", "--every", "5m", "--payload", '{"order_id": 7}', "--json")
    assert cli("schedules", "add", "declared", *options).json["queue"] == "billing"
    assert cli("schedules", "add", "given", *options, "--queue", "slow").json["queue"] == "slow"
    refused = cli("schedules", "add", "refused", "charge", "--every", "5m", code=2)
    assert "PAYLOAD_INVALID: charge: order_id is missing" in refused.err


def test_a_backfill_needs_confirmation(cli: Cli) -> None:
    cli("schedules", "add", "x", "charge", "--cron", "0 * * * *")
    span = ("--from", "2026-01-01T00:00:00Z", "--to", "2026-01-01T02:00:00Z")
    assert "add --yes to confirm" in cli("schedules", "backfill", "x", *span, code=1).out
    unconfirmed = cli("schedules", "backfill", "x", *span, "--json", code=1).json
    assert (unconfirmed["dry_run"], unconfirmed["made"], unconfirmed["job_ids"]) == (True, 3, [])
    done = cli("schedules", "backfill", "x", *span, "--yes", "--json").json
    assert (done["dry_run"], done["made"], len(done["job_ids"])) == (False, 3, 3)
    again = cli("schedules", "backfill", "x", *span, "--yes").out
    assert again == "0 jobs would be created; 3 of 3 runs already have a job\n"
    times = {job["scheduled_at"] for job in cli("jobs", "list", "--json").json["items"]}
    assert times == {"2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z"}


def add_dead_letters(cli: Cli, count: int = 3) -> None:
    for number in range(count):
        cli("enqueue", "refund", "--payload", json.dumps({"order_id": number}))
    cli("worker", "shop.py", "--until-idle")


def test_dead_letters_in_bulk(cli: Cli) -> None:
    add_dead_letters(cli)
    assert len(cli("dlq", "list", "--error-code", "ORDER_UNKNOWN", "--newer-than", "1h", "--json").json["items"]) == 3
    assert cli("dlq", "list", "--older-than", "1h").out == "No dead letters match.\n"
    assert cli("dlq", "requeue", "--type", "charge", "--yes").out == "0 dead letters would be requeued\n"
    dry = cli("dlq", "requeue", "--all", "--dry-run", "--json").json
    assert (dry["dry_run"], dry["matched"], dry["done"]) == (True, 3, 0)
    assert cli("dlq", "discard", "--all", "--reason", "old", "--dry-run").out.startswith("3 dead letters would be disc")
    done = cli("dlq", "requeue", "--type", "refund", "--rate", "10", "--yes", "--json").json
    assert (done["matched"], done["done"], done["refused"], len(done["job_ids"])) == (3, 3, 0, 3)
    assert cli("dlq", "list", "--status", "open").out == "No dead letters match.\n"


def test_a_dead_letter_with_an_invalid_payload_is_skipped(cli: Cli) -> None:
    cli("enqueue", "refund", "--payload", '{"order": 1}')
    shop = Path("shop.py")
    declared = shop.read_text()
    shop.write_text(declared.replace('"refund"', '"refund", hand_back_seconds=0'))
    cli("worker", "shop.py", "--until-idle")
    shop.write_text(declared)
    add_dead_letters(cli, 1)
    output = cli("dlq", "requeue", "--all", "--yes", "--app", "shop.py", code=1).out
    assert output.startswith("1 dead letter requeued\n") and "PAYLOAD_INVALID" in output
    [left] = cli("dlq", "list", "--status", "open", "--json").json["items"]
    assert left["payload_json"] == {"order": 1}


@pytest.mark.parametrize(
    "arguments",
    [("requeue",), ("discard",), ("requeue", "x", "--type", "refund"), ("requeue", "--all", "--payload", "{}")],
)
def test_bulk_commands_need_a_filter_or_all(cli: Cli, arguments: tuple[str, ...]) -> None:
    assert cli("dlq", *arguments, code=2).err.startswith("USAGE")


def test_a_payload_is_edited(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_dead_letters(cli, 1)
    [item] = cli("dlq", "list", "--json").json["items"]
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/0/41/' \"$1\"\n")
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("EDITOR", str(editor))
    monkeypatch.delenv("VISUAL", raising=False)
    requeued = cli("dlq", "requeue", item["dlq_id"], "--edit", "--app", "shop.py", "--json").json
    assert requeued["job"]["payload"] == {"order_id": 41}
    monkeypatch.setenv("EDITOR", os.devnull)
    assert "set $EDITOR" in cli("dlq", "requeue", item["dlq_id"], "--edit", code=2).err


def test_a_dead_letter_is_shown_with_its_history(cli: Cli) -> None:
    add_dead_letters(cli, 1)
    [item] = cli("dlq", "list", "--json").json["items"]
    cli("dlq", "discard", item["dlq_id"], "--reason", "a test")
    shown = cli("dlq", "show", item["dlq_id"], "--json").json
    assert shown["history"][-1]["event"] == "job.failed"
    assert [(act["actor"], act["act"], act["reason"]) for act in shown["acts"]] == [
        ("ann", "dlq.discard.propose", "a test")
    ]
    assert "dlq.discard.propose by ann: a test" in cli("dlq", "show", item["dlq_id"]).out
