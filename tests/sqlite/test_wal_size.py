"""The write-ahead log after a reader held an old snapshot: it is truncated when the reader has gone."""

from pathlib import Path

import apsw
import pytest

from detent.engine import Engine, Submission
from detent.stores.sqlite import session
from detent.stores.sqlite.store import SqliteStore

pytestmark = pytest.mark.anyio


async def test_the_log_shrinks_after_a_reader_has_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_WAL_LIMIT", 1 << 20)
    path = tmp_path / "jobs.db"
    log = Path(f"{path}-wal")
    engine = Engine(SqliteStore(str(path), inline=True, synchronous="OFF"))
    await engine.open()
    reader = apsw.Connection(str(path))
    reader.execute("BEGIN; SELECT count(*) FROM detent_jobs")
    while log.stat().st_size < 8 << 20:
        await engine.jobs.submit_many([Submission("mail", {"text": "x" * 2_000})] * 500)
    reader.execute("COMMIT")
    reader.close()
    for _ in range(3):  # the first commit completes the checkpoint, the next one starts the log again
        await engine.jobs.submit(Submission("mail"))
    assert log.stat().st_size <= 1 << 20
    await engine.close()
