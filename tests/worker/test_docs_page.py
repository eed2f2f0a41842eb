"""worker.md: its Python blocks are one application that does what the page says; its settings are valid."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import detent
from detent import Detent
from detent.cli.loader import load_app
from detent.observability.settings import load_settings
from support.waiting import until, within
from support.worker.running import working

pytestmark = pytest.mark.anyio
PAGE = (Path(detent.__file__).parents[2] / "docs" / "operate" / "worker.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
async def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Detent]:
    text = "\n\n".join(blocks("python")).replace('soft_timeout="280s"', 'soft_timeout="0.3s"')
    file = tmp_path / "worker_page.py"
    file.write_text(text)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "worker_page", None)
    async with load_app(str(file), f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        yield app


async def test_the_application_of_the_page_does_what_it_says(app: Detent) -> None:
    jobs = app.jobs
    async with working(app, slots=8, handler_processes=1, lease_seconds=1):
        none = await jobs["crawl"].enqueue(urls=[])
        many = await jobs["crawl"].enqueue(urls=["a"] * 10_000)
        agent = await jobs["agent"].enqueue(prompts=["why"] * 10_000)
        question = await jobs["question"].enqueue(text="why")
        picture = await jobs["thumbnail"].enqueue(image=7)
        await until(lambda: _has_steps(agent))
        await agent.cancel("too expensive")
        assert await within(30, none.result()) == {"complete": True, "pages": 0}
        result = await within(30, many.result())
        assert result["complete"] is False and result["pages"] < 10_000
        assert await within(30, question.result()) == "42"
        assert (await question.job()).execution_no == 1
        assert (await within(30, picture.result()))["size"] == 49
        await until(lambda: _has_status(agent, "cancelled"))
        assert [event for event in await agent.events() if "clean up" in str(event["data"])]
    rows = await jobs["import"].enqueue(count=1_000_000)
    worker = await app.worker()
    task = asyncio.create_task(worker.run(handle_signals=False))
    await until(lambda: _has_steps(rows))
    worker.stop()
    assert await within(30, task) == 0
    job = await rows.job()
    assert (job.status, job.failures, job.execution_no) == ("queued", 0, 1)


async def _has_steps(handle: Any) -> bool:
    return any(event["event"] == "step.finished" for event in await handle.events())


async def _has_status(handle: Any, status: str) -> bool:
    return bool(await handle.status() == status)


def test_the_settings_and_the_units_of_the_page_fit_together(tmp_path: Path) -> None:
    (settings,) = blocks("toml")
    file = tmp_path / "detent.toml"
    file.write_text(settings)
    worker = load_settings(str(file)).worker
    assert (worker.grace_seconds, worker.max_jobs_per_process, worker.max_memory_mb) == (25, 1000, 512)
    for pattern, text in (
        ("terminationGracePeriodSeconds: ", blocks("yaml")[0]),
        ("TimeoutStopSec=", blocks("ini")[0]),
    ):
        allowed = re.search(rf"{pattern}(\d+)", text)
        grace = re.search(r"--grace-seconds\W+(\d+)", text)
        assert allowed and grace and int(allowed[1]) >= int(grace[1]) + 5
