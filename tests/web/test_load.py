"""Load, as drills: enqueue against a no-op of the same server, and a thousand clients that follow the stream."""

import asyncio
import os
from pathlib import Path

import pytest
from servers.databases import migrated
from servers.postgres import FAST, Server, installations

from bench.http_load import enqueue, follow
from web.served import SOURCES

pytestmark = pytest.mark.drill


@pytest.fixture(autouse=True)
def _sources(monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(Path(__file__).resolve().parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([SOURCES, root]))


def test_enqueue_over_http_is_nearly_as_quick_as_doing_nothing() -> None:
    """32 clients, fsync on; concurrent requests share commits."""
    server = Server(list(installations().values())[-1], FAST)
    try:
        server.init().start()
        asyncio.run(migrated(server.url()))
        found = asyncio.run(enqueue(server.url(), clients=32, seconds=12.0))
    finally:
        server.remove()
    assert found["ratio"] >= 0.7, found


def test_a_thousand_clients_follow_in_flat_memory(tmp_path: Path) -> None:
    """Each sees every event once; the second half costs no more memory than the first."""
    found = asyncio.run(follow(f"sqlite:///{tmp_path}/load.db", clients=1_000, events=2_000))
    _, first, *rest = found["memory_mb"]
    assert max(rest) < first * 1.1, found
