"""Every Python block of docs/guides/hooks.md runs in a worker and does what the page says.

sentry-sdk is not among the development packages: a module in its place takes log records as its integration does.
"""

import importlib.util
import logging
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import detent
from detent import Detent

pytestmark = pytest.mark.anyio
PAGE = Path(detent.__file__).parent.parent.parent / "docs" / "guides" / "hooks.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DETENT_URL", "sqlite:///jobs.db")


def block(part: str) -> dict[str, Any]:
    """The names that the block with this text defines."""
    (text,) = [text for text in BLOCKS if part in text]
    Path("block.py").write_text(text)
    spec = importlib.util.spec_from_file_location("block", "block.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return vars(module)


async def run_until_idle(app: Detent) -> None:
    worker = await app.worker(until_idle=True, slots=1)
    assert await worker.run(handle_signals=False) == 0


def test_every_block_is_run_below() -> None:
    assert len(BLOCKS) == 4


async def test_hooks(capsys: pytest.CaptureFixture[str]) -> None:
    names = block("page_someone")
    async with names["app"] as app:
        good, bad = await names["charge"].enqueue_many([{"order_id": 7}, {"order_id": -1}])
        await run_until_idle(app)
        dead_letter = (await bad.job()).dlq_id
    printed = capsys.readouterr().out
    assert f"charge {good.id}: receipt 7\n" in printed
    cause = "JOB_EXECUTION_FAILED: ValueError: there is no order -1"
    assert f"charge failed for good: {cause} (dead letter {dead_letter})" in printed


async def test_a_session_per_job() -> None:
    from sqlalchemy import create_engine, text

    other = create_engine("sqlite:///orders.db")
    with other.begin() as connection:
        connection.execute(text("CREATE TABLE orders (id INTEGER)"))
    names = block("sessionmaker")
    async with names["app"] as app:
        await names["book"].enqueue_many([{"order_id": 7}, {"order_id": -1}, {"order_id": 8}])
        await run_until_idle(app)
    with other.begin() as connection:
        assert sorted(connection.execute(text("SELECT id FROM orders")).scalars()) == [7, 8]
    other.dispose()


async def test_django() -> None:
    """With the middleware, no handler finds a connection that an earlier job has left in its thread."""
    import django
    from django.conf import settings

    if not settings.configured:
        settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "site.db"}})
    django.setup()
    from django.db import connection

    names = block("close_old_connections")
    left = list[bool]()

    @names["app"].job("look")
    def look() -> None:
        left.append(connection.connection is not None)
        connection.ensure_connection()

    async with names["app"] as app:
        handle = await names["report"].enqueue()
        await look.enqueue_many([{}] * 2)
        await run_until_idle(app)
        assert await handle.result(1) == 42
        assert left == [False, False]
        app.hooks.plain_middleware.clear()
        await look.enqueue_many([{}] * 2)
        await run_until_idle(app)
        assert left[2:] == [False, True], "without the middleware it stays"


@pytest.fixture
def sentry() -> Iterator[list[logging.LogRecord]]:
    """A stand-in for sentry-sdk: `init` adds a handler that takes records from `event_level` on."""
    events = list[logging.LogRecord]()
    handler = logging.Handler()
    handler.emit = events.append  # type: ignore[method-assign]
    package, logs = types.ModuleType("sentry_sdk"), types.ModuleType("sentry_sdk.integrations.logging")

    def init(dsn: str, integrations: list[int]) -> None:
        handler.setLevel(integrations[0])
        logging.getLogger().addHandler(handler)

    package.init = init  # type: ignore[attr-defined]
    logs.LoggingIntegration = lambda event_level: event_level  # type: ignore[attr-defined]
    modules = {"sentry_sdk": package, "sentry_sdk.integrations": types.ModuleType("x"), logs.__name__: logs}
    with pytest.MonkeyPatch.context() as patch:
        for name, module in modules.items():
            patch.setitem(sys.modules, name, module)
        yield events
    logging.getLogger().removeHandler(handler)


async def test_sentry(sentry: list[logging.LogRecord]) -> None:
    """Two executions fail, one event: the dead letter, with the exception and its stack."""
    names = block("sentry_sdk")
    async with names["app"] as app:
        handle = await names["charge"].enqueue(order_id=7)
        await run_until_idle(app)
    (event,) = sentry
    assert event.levelname == "ERROR" and handle.id in event.getMessage()
    assert event.exc_info and isinstance(event.exc_info[1], ValueError)
    trace = event.exc_info[2]
    assert trace is not None and trace.tb_frame.f_code.co_name == "charge"
