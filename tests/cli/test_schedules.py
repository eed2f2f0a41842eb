"""`detent schedules` and the dead letters in bulk, as people and programs meet them."""

import json
import os
import stat
from pathlib import Path

import pytest

from .conftest import Cli


def test_a_schedule_from_its_beginning_to_its_end(cli: Cli) -> None:
    made = cli("schedules", "add", "nightly", "charge", "--cron", "30 2 * * *", "--tz", "Europe/Berlin", "--json").json
    assert (made["schedule_type"], made["timezone"], made["paused"]) == ("cron", "Europe/Berlin", False)
    assert cli("schedules", "list", "--json").json["schedules"] == [made]
    assert cli("schedules", "pause", "nightly", "--json").json["next_fire_at"] is None
    assert "paused" in cli("schedules", "list").out
    assert cli("schedules", "resume", made["id"], "--json").json["next_fire_at"] == made["next_fire_at"]
    edited = cli("schedules", "edit", "nightly", "--every", "5m", "--priority", "3", "--version", "3", "--json").json
    assert (edited["schedule_type"], edited["expression"], edited["priority"]) == ("every", "5m", 3)
    assert "VERSION_CONFLICT" in cli("schedules", "edit", "nightly", "--every", "6m", "--version", "1", code=1).err
    assert cli("schedules", "remove", "nightly", "--json").json["name"] == "nightly"
    assert cli("schedules", "list").out == "no schedules\n"
    error = json.loads(cli("schedules", "show", "nightly", "--json", code=1).err)
    assert error["code"] == "SCHEDULE_NOT_FOUND"


def test_every_option_arrives(cli: Cli) -> None:
    words = (
        "--at 2035-01-01T00:00:00 --tz Asia/Shanghai --contract men --queue slow --tenant acme --priority 4 "
        "--max-retries 1 "
        "--timeout-ms 500 --jitter 9 --misfire all --misfire-limit 7 --misfire-grace 11 --overlap cancel --paused "
        "--starts-at 2034-01-01T00:00:00Z --ends-at 2036-01-01T00:00:00Z"
    )
    made = cli("schedules", "add", "one", "ship", *words.split(), "--payload", '{"order_id": 1}', "--json").json
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
    assert {name: made[name] for name in expected} == expected
    assert cli("schedules", "list", "--tenant", "other").out == "no schedules match\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
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
def test_refusals(cli: Cli, words: str, code: int, said: str) -> None:
    assert cli("schedules", *words.split(), code=code).err.startswith(said)
    assert cli("schedules", "list").out == "no schedules\n"


def test_an_application_fills_in_what_it_declares(cli: Cli) -> None:
    words = ("--every", "5m", "--payload", '{"order_id": 7}', "--app", "shop.py", "--json")
    made = cli("schedules", "add", "x", "charge", *words).json
    assert (made["queue"], made["payload"]) == ("billing", {"order_id": 7})


def test_a_backfill_asks(cli: Cli) -> None:
    cli("schedules", "add", "x", "charge", "--cron", "0 * * * *")
    span = ("--from", "2026-01-01T00:00:00Z", "--to", "2026-01-01T02:00:00Z")
    assert "--yes does it" in cli("schedules", "backfill", "x", *span, code=1).out
    asked = cli("schedules", "backfill", "x", *span, "--json", code=1).json
    assert (asked["dry_run"], asked["made"], asked["job_ids"]) == (True, 3, [])
    done = cli("schedules", "backfill", "x", *span, "--yes", "--json").json
    assert (done["dry_run"], done["made"], len(done["job_ids"])) == (False, 3, 3)
    again = cli("schedules", "backfill", "x", *span, "--yes").out
    assert again == "0 jobs would be made; 3 of 3 fires have theirs\n"
    moments = {job["scheduled_at"] for job in cli("jobs", "list", "--json").json["jobs"]}
    assert moments == {"2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z"}


def buried(cli: Cli, count: int = 3) -> None:
    for number in range(count):
        cli("enqueue", "refund", "--payload", json.dumps({"order_id": number}))
    cli("worker", "shop.py", "--until-idle")


def test_dead_letters_in_bulk(cli: Cli) -> None:
    buried(cli)
    assert len(cli("dlq", "list", "--error-code", "ORDER_UNKNOWN", "--newer-than", "1h", "--json").json["items"]) == 3
    assert cli("dlq", "list", "--older-than", "1h").out == "no dead letters match\n"
    assert cli("dlq", "requeue", "--type", "charge", "--yes").out == "0 dead letters would be requeued\n"
    dry = cli("dlq", "requeue", "--all", "--dry-run", "--json").json
    assert (dry["dry_run"], dry["matched"], dry["done"]) == (True, 3, 0)
    assert cli("dlq", "discard", "--all", "--reason", "old", "--dry-run").out.startswith("0 dead letters would be disc")
    done = cli("dlq", "requeue", "--type", "refund", "--rate", "10", "--yes", "--json").json
    assert (done["matched"], done["done"], done["refused"], len(done["job_ids"])) == (3, 3, 0, 3)
    assert cli("dlq", "list", "--status", "open").out == "no dead letters match\n"


def test_a_dead_letter_the_handler_would_refuse_is_left(cli: Cli) -> None:
    buried(cli, 1)
    cli("enqueue", "refund", "--payload", '{"order": 1}')
    cli("worker", "shop.py", "--until-idle")
    told = cli("dlq", "requeue", "--all", "--yes", "--app", "shop.py", code=1).out
    assert told.startswith("1 dead letter requeued\n") and "PAYLOAD_INVALID" in told
    [left] = cli("dlq", "list", "--status", "open", "--json").json["items"]
    assert left["payload_json"] == {"order": 1}


@pytest.mark.parametrize(
    "words", [("requeue",), ("discard",), ("requeue", "x", "--type", "refund"), ("requeue", "--all", "--payload", "{}")]
)
def test_all_is_said_not_meant(cli: Cli, words: tuple[str, ...]) -> None:
    assert cli("dlq", *words, code=2).err.startswith("USAGE")


def test_a_payload_is_edited(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    buried(cli, 1)
    [item] = cli("dlq", "list", "--json").json["items"]
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/0/41/' \"$1\"\n")
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("EDITOR", str(editor))
    monkeypatch.delenv("VISUAL", raising=False)
    made = cli("dlq", "requeue", item["dlq_id"], "--edit", "--app", "shop.py", "--json").json
    assert made["job"]["payload"] == {"order_id": 41}
    monkeypatch.setenv("EDITOR", os.devnull)
    assert "set $EDITOR" in cli("dlq", "requeue", item["dlq_id"], "--edit", code=2).err


def test_a_dead_letter_is_shown_with_its_history(cli: Cli) -> None:
    buried(cli, 1)
    [item] = cli("dlq", "list", "--json").json["items"]
    cli("dlq", "discard", item["dlq_id"], "--reason", "a test")
    told = cli("dlq", "show", item["dlq_id"], "--json").json
    assert told["history"][-1]["event"] == "job.failed"
    assert [(act["actor"], act["act"], act["reason"]) for act in told["acts"]] == [
        ("ann", "dlq.discard.propose", "a test")
    ]
    assert "dlq.discard.propose by ann: a test" in cli("dlq", "show", item["dlq_id"]).out
