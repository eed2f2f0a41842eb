"""docs/guides/redis-streams.md: its redis-cli session is run, its tables are compared with the code."""

import os
import re
import subprocess
from dataclasses import fields
from pathlib import Path

from detent.core.approval_rules import policy_from_toml
from detent.engine import Submission
from detent.ports.stream import StreamSettings
from detent.transports.redis_streams.messages import TASK_FIELDS
from support.servers.programs import redis_cli
from support.streams.process_harness import process_harness
from support.waiting import until_now

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "redis-streams.md").read_text("utf-8")


def block(language: str) -> str:
    (text,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return str(text)


def test_the_session_on_the_page_runs_a_task(tmp_path: Path) -> None:
    with process_harness(tmp_path, "sqlite") as harness:
        harness.orchestrate()
        submitted = harness.run(lambda e: e.jobs.submit(Submission("text.upper", {"text": "hello"}, "streams")))
        until_now(lambda: harness.redis.xlen("stream:task") == 1)
        script = tmp_path / "bin" / "redis-cli"
        script.parent.mkdir()
        script.write_text(f'#!/bin/sh\nexec {redis_cli(tmp_path)} -u "{harness.redis_url}" "$@"\n')
        script.chmod(0o755)
        search_path = {**os.environ, "PATH": f"{script.parent}{os.pathsep}{os.environ['PATH']}"}
        session = ["/bin/sh", "-e", "-c", block("sh")]
        subprocess.run(session, env=search_path, check=True, timeout=30, stdout=subprocess.DEVNULL)
        harness.until_ended(submitted.job.id)
        assert harness.history(submitted.job.id) == ["task.created", "task.claimed", "task.succeeded"]
        assert harness.run(lambda e: e.jobs.get(submitted.job.id)).result == '{"text":"HELLO"}'
        assert harness.pending() == 0


def test_the_page_names_every_field_setting_and_rule() -> None:
    assert all(f"`{name.decode()}`" in PAGE for name in TASK_FIELDS)
    for setting in fields(StreamSettings):
        if setting.name != "url":
            assert f"DETENT_{setting.name.upper()}" in PAGE, setting.name
    approval_policy = policy_from_toml(block("toml"))
    assert approval_policy.reason_to_hold("payments.pay", {"lines": [{"amount": 1001}]}) == "large sums: over 1000"
    assert approval_policy.reason_to_hold("payments.refund", {"amount": 9}) is None
    assert approval_policy.reason_to_hold("shell.run", {}) is not None
