"""docs/redis-streams.md: its redis-cli session is run as it stands, its tables are compared with the code."""

import re
import shutil
import subprocess
from dataclasses import fields
from pathlib import Path

from worker.waiting import until_now

from detent.core.approval_rules import policy_from_toml
from detent.engine import Submission
from detent.ports.stream import StreamSettings
from detent.transports.redis_streams.messages import TASK_FIELDS

from .test_other_languages import redis_cli
from .yard import yard_in

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "redis-streams.md").read_text("utf-8")


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return str(found)


def test_one_task_by_hand(tmp_path: Path) -> None:
    with yard_in(tmp_path, "sqlite") as yard:
        yard.orchestrate()
        made = yard.ask(lambda e: e.submit(Submission("text.upper", {"text": "hello"}, "streams")))
        until_now(lambda: yard.redis.xlen("stream:task") == 1)
        words = f'set -e\nredis-cli() {{ {redis_cli(tmp_path)} -u "{yard.redis_url}" "$@"; }}\n'
        bash = shutil.which("bash")
        assert bash
        subprocess.run([bash, "-c", words + block("sh")], check=True, timeout=30, stdout=subprocess.DEVNULL)
        yard.until_ended(made.job.id)
        assert yard.history(made.job.id) == ["task.created", "task.claimed", "task.succeeded"]
        assert yard.ask(lambda e: e.job(made.job.id)).result == '{"text":"HELLO"}'
        assert yard.pending() == 0


def test_the_page_knows_every_field_setting_and_rule() -> None:
    assert all(f"`{name.decode()}`" in PAGE for name in TASK_FIELDS)
    for setting in fields(StreamSettings):
        if setting.name not in ("url", "autoclaim"):
            assert f"DETENT_{setting.name.upper()}" in PAGE, setting.name
    approval_policy = policy_from_toml(block("toml"))
    assert approval_policy.reason_to_hold("payments.pay", {"lines": [{"amount": 1001}]}) == "large sums: over 1000"
    assert approval_policy.reason_to_hold("payments.refund", {"amount": 9}) is None
    assert approval_policy.reason_to_hold("shell.run", {}) is not None
