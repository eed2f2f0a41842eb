"""Load drills: submitting jobs compared with a no-op route, and a thousand clients of the event stream."""

import asyncio
import os
from pathlib import Path

import pytest

from bench.http_load import enqueue, follow
from support.servers.databases import migrated
from support.servers.postgres import FAST, Server, installations
from support.web.served import SOURCES

pytestmark = pytest.mark.drill


@pytest.fixture(autouse=True)
def _sources(monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(Path(__file__).resolve().parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([SOURCES, root]))


def test_submitting_has_70_percent_of_the_throughput_of_a_no_op() -> None:
    """32 clients, fsync on; concurrent requests share commits."""
    server = Server(list(installations().values())[-1], FAST)
    try:
        server.init().start()
        asyncio.run(migrated(server.url()))
        result = asyncio.run(enqueue(server.url(), clients=32, seconds=12.0))
    finally:
        server.remove()
    assert result["ratio"] >= 0.7, result


def test_a_thousand_streams_need_constant_memory(tmp_path: Path) -> None:
    """Each client gets every event once; the later rounds need no more memory than the first."""
    result = asyncio.run(follow(f"sqlite:///{tmp_path}/load.db", clients=1_000, events=2_000))
    _, first, *rest = result["memory_mb"]
    assert max(rest) < first * 1.1, result
