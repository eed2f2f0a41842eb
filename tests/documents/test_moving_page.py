"""Every Detent block of docs/guides/moving.md runs, and its functions do what their headings say."""

import asyncio
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from detent.testing.memory import TestWorker, on_memory

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "moving.md").read_text("utf-8")
PATTERNS = re.findall(r"^## (\d+)\. .*?^```py\n.*?^```\n+^```python\n", PAGE, re.MULTILINE | re.DOTALL)
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def names(tmp_path: Path) -> dict[str, Any]:
    """What the page's Detent blocks define, as one module."""
    file = tmp_path / "moving.py"
    file.write_text("\n\n".join(BLOCKS), "utf-8")
    return runpy.run_path(str(file))


def test_twenty_patterns() -> None:
    assert [int(number) for number in PATTERNS] == list(range(1, 21))


async def run(names: dict[str, Any], worker: TestWorker) -> dict[str, Any]:
    await names["declare_and_enqueue"]()
    waiting = asyncio.create_task(names["wait_for_the_result"]())
    await asyncio.sleep(0)
    for call in ("run_later", "many_at_once", "one_job_per_key", "priorities", "cancel"):
        await names[call]()
    handles = {
        "fetch": await names["fetch"].enqueue(url="x"),
        "poll": await names["poll"].enqueue(),
        "check": await names["check"].enqueue(order=7),
        "publish": await names["publish"].enqueue(url="x"),
        "total": await names["total"].enqueue(),
        "import": await names["import_rows"].enqueue(rows=10),
        "slow": await names["slow"].enqueue(),
    }
    await worker.advance("2 d")
    assert await waiting == 3
    await names["failed_jobs"]()
    return {name: await handle.job() for name, handle in handles.items()}


@pytest.mark.anyio
async def test_the_detent_blocks(names: dict[str, Any]) -> None:
    with on_memory(names["app"]) as worker:
        jobs = await run(names, worker)
        status = {name: job.status for name, job in jobs.items()}
        assert status == dict.fromkeys(status, "succeeded") | {"check": "failed"}
        assert jobs["publish"].result == '"stored IMAGE OF X"' and jobs["total"].result == "6"
        assert jobs["check"].error_code == "CARD_DECLINED" and jobs["poll"].retries == 1
        assert len(worker.enqueued(names["report"])) == 2, "the schedule fired on two days"
        assert len(worker.enqueued(names["check"])) == 2, "the dead letter was requeued"
        assert [job.status for job in worker.enqueued(names["add"])].count("cancelled") == 1
        names["test_add"](worker)
