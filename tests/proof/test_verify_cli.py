"""`detent verify` and `detent replay`: text output, JSON output and exit codes."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from detent.cli import run
from detent.proof.replay import gate_b2_cases
from detent.proof.verify.rules import RULES
from support.proof.corruptions import CORRUPTIONS
from support.proof.healthy import build
from support.proof.planting import plant


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    asyncio.run(build(tmp_path / "jobs.db"))
    monkeypatch.setenv("DETENT_URL", "sqlite:///jobs.db")
    return "sqlite:///jobs.db"


def run_command(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    exit_code = run(words)
    out, err = capsys.readouterr()
    assert exit_code == code, f"{words} exited with {exit_code}\n{out}{err}"
    return out, err


def as_json(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    out, err = run_command(capsys, *words, "--json", code=code)
    assert not err
    return json.loads(out)


def test_a_clean_database(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = as_json(capsys, "verify")
    assert list(data) == ["ok", "jobs", "events", "violations", "warnings"]
    assert data["ok"] is True and data["violations"] == []
    assert [set(warning) for warning in data["warnings"]] == [{"job_id", "seq", "rule", "detail"}]
    out, err = run_command(capsys, "verify")
    assert f"{data['jobs']} jobs, {data['events']} events checked, no violations, 1 warning" in out
    assert not err, "no progress bar without a terminal"


def test_violations_are_printed_and_the_exit_code_is_1(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    victim = plant("jobs.db", next(corruption for corruption in CORRUPTIONS if corruption.name == "settled twice"))
    data = as_json(capsys, "verify", code=1)
    assert data["ok"] is False
    first = next(violation for violation in data["violations"] if violation["rule"] == "final-absorbing")
    assert first["job_id"] == victim and first["seq"] == 4 and "task.failed -> failed" in first["detail"]
    out, _ = run_command(capsys, "verify", code=1)
    assert f"{victim}" in out and "final-absorbing" in out and "`detent verify --rules`" in out


def test_scopes(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    plant("jobs.db", next(corruption for corruption in CORRUPTIONS if corruption.name == "next_retry_at lost"))
    whole = as_json(capsys, "verify", "--chunk", "3", code=1)
    victim = whole["violations"][0]["job_id"]
    assert as_json(capsys, "verify", "--job", victim, code=1)["jobs"] == 1
    assert as_json(capsys, "verify", "--contract", "p3c", code=1)["jobs"] < whole["jobs"]
    assert as_json(capsys, "verify", "--contract", "men")["ok"] is True
    assert as_json(capsys, "verify", "--since", "2026-02-25T12:00:00Z", code=1)["jobs"] == whole["jobs"]
    assert as_json(capsys, "verify", "--since", "2099-01-01T00:00:00+02:00")["jobs"] == 0


@pytest.mark.parametrize(
    ("words", "code", "error_code"),
    [
        (("verify", "--since", "yesterday"), 2, "TIME_INVALID"),
        (("verify", "--job", "nobody"), 1, "JOB_NOT_FOUND"),
        (("verify", "--contract", "nowhere"), 1, "CONTRACT_UNKNOWN"),
        (("verify", "--url", "sqlite:///nothing.db"), 1, "STORE_UNAVAILABLE"),
        (("verify", "--chunk", "0"), 2, "USAGE"),
        (("replay",), 2, "USAGE"),
        (("replay", "men"), 2, "USAGE"),
        (("replay", "gate-b2", "--history", "x"), 2, "USAGE"),
        (("replay", "--history", "x.json"), 2, "USAGE"),
        (("replay", "--history", "x.json", "--contract", "men"), 2, "USAGE"),
        (("replay", "--history", "bad.json", "--contract", "men"), 2, "HISTORY_INVALID"),
        (("replay", "--history", "blob.json", "--contract", "men"), 2, "USAGE"),
        (("replay", "--history", "ok.json", "--contract", "nowhere"), 1, "CONTRACT_UNKNOWN"),
    ],
)
def test_refusals(
    url: str, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: int, error_code: str
) -> None:
    Path("bad.json").write_text('{"event": ')
    Path("blob.json").write_bytes(b"\xff\xfe\x00")
    Path("ok.json").write_text("[]")
    out, err = run_command(capsys, *words, code=code)
    assert err.startswith(f"{error_code}: ") and err.count("\n") == 1 and not out
    assert not Path("nothing.db").exists(), "a refused command creates no database"


def test_rules_are_listed_without_a_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert as_json(capsys, "verify", "--rules") == {"rules": RULES}
    out, _ = run_command(capsys, "verify", "--rules")
    assert all(name in out for name in RULES) and not list(tmp_path.iterdir())


def test_the_gate_runs_in_a_temporary_database(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = as_json(capsys, "verify")["jobs"]
    data = as_json(capsys, "replay", "gate-b2")
    assert list(data) == ["ok", "cases"] and data["ok"] is True
    assert [case["id"] for case in data["cases"]] == [f"RP-00{n}" for n in range(1, 6)]
    assert as_json(capsys, "verify")["jobs"] == before, "the application's database is not changed"
    out = " ".join(run_command(capsys, "replay", "gate-b2")[0].split())  # long lines are wrapped
    assert "dlq_recorded -> failed" in out and "RP-005" in out and "gate-b2: passed" in out
    assert "succeeded -> failed WF_STATE_TRANSITION_INVALID" in out


def test_the_gate_on_a_named_database(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = as_json(capsys, "verify")["jobs"]
    assert as_json(capsys, "replay", "gate-b2", "--url", url)["ok"] is True
    after = as_json(capsys, "verify")
    assert after["ok"] is True and after["jobs"] == before + 5


def test_a_failing_case_fails_the_gate(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate_b2_cases, "CASES", [gate_b2_cases.Case("RP-009", 1, "queued -> running -> succeeded", 0)])
    data = as_json(capsys, "replay", "gate-b2", code=1)
    assert data["ok"] is False and data["cases"][0]["problems"]
    out, _ = run_command(capsys, "replay", "gate-b2", code=1)
    assert "FAILED" in out and "RP-009: " in out and "NOT passed" in out and "retry_count is 1, expected 0" in out


def test_a_history_from_a_file(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("h.jsonl").write_text('{"event": "created"}\n{"type": "worker_claim"}\n{"event": "created"}\n')
    data = as_json(capsys, "replay", "--history", "h.jsonl", "--contract", "p3c", code=1)
    assert data["first_illegal"]["index"] == 2 and "completed" in data["first_illegal"]["legal"]
    assert data["derived"] == "queued"
    out, _ = run_command(capsys, "replay", "--history", "h.jsonl", "--contract", "p3c", code=1)
    assert "illegal under p3c at index 2" in out and "legal events: cancel_command, completed" in out
    Path("h.json").write_text('["job_created", "job_running", "job_failed", "job_requeued"]')
    out, _ = run_command(capsys, "replay", "--history", "h.json", "--contract", "formal")
    assert "legal under formal" in out and "warning at index 3: final-reopened (invariant 1)" in out
    Path("h.json").write_text('["created"]')
    assert as_json(capsys, "replay", "--history", "h.json", "--contract", "p3c")["derived"] == "queued"
    assert (
        "legal under p3c, ends with status queued"
        in run_command(capsys, "replay", "--history", "h.json", "--contract", "p3c")[0]
    )


@pytest.mark.long
def test_the_output_of_jobs_events_can_be_replayed(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    for job in as_json(capsys, "jobs", "list", "--limit", "40")["items"]:
        out, _ = run_command(capsys, "jobs", "events", job["id"], "--json")
        Path("log.json").write_text(out)
        data = as_json(capsys, "replay", "--history", "log.json", "--contract", job["contract"])
        warned = data.pop("warnings")
        assert data == {"ok": True, "first_illegal": None, "derived": job["status"]}
        assert {warning["rule"] for warning in warned} <= {"final-reopened"}


def test_a_contract_from_a_file(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("lamp.toml").write_text(
        'name = "lamp"\n[statuses]\ndark = "claimable"\nlit = "leased"\nspent = "final"\n'
        + "".join(
            f'[[edges]]\nmove = "{move}"\nsource = "{source}"\nevent = "{event}"\ntarget = "{target}"\n'
            for move, source, event, target in (
                ("SUBMIT", "", "made", "dark"),
                ("CLAIM", "dark", "lit", "lit"),
                ("SUCCEED", "lit", "burnt", "spent"),
                ("EXPIRE", "lit", "dropped", "dark"),
                ("RELEASE", "lit", "released", "dark"),
                ("RETRY", "lit", "again", "dark"),
                ("FAIL", "lit", "broke", "spent"),
            )
        )
    )
    Path("h.json").write_text('["made", "lit", "burnt"]')
    data = as_json(capsys, "replay", "--history", "h.json", "--contract", "lamp.toml")
    assert data == {"ok": True, "first_illegal": None, "derived": "spent", "warnings": []}
