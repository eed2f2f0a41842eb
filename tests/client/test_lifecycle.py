"""Opening and closing the database: on first use, per event loop, per process, after a fork."""

import asyncio
import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from detent import Detent
from detent.client.connect import DEFAULT_URL, when_available
from detent.core.errors import DatabaseUnusable, DetentError, InvalidInput, SchemaMismatch, StoreUnavailable
from detent.system.backoff import Backoff
from support.waiting import until_now


def declare(app: Detent) -> Any:
    @app.job("add")
    async def add(n: int, m: int = 1) -> int:
        return n + m

    return add


def test_the_url_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DETENT_URL", raising=False)
    assert Detent().url == DEFAULT_URL
    monkeypatch.setenv("DETENT_URL", "sqlite:///other.db")
    assert Detent().url == "sqlite:///other.db"
    assert Detent("sqlite:///mine.db").url == "sqlite:///mine.db"


INSTALL_PAGE = (Path(__file__).parents[2] / "docs" / "start" / "install.md").read_text("utf-8")
DOCUMENTED_URLS = re.findall(r"^\| `([^`]+)` \| `([A-Z_]+)` \| (.+) \|$", INSTALL_PAGE, re.MULTILINE)
EXAMPLES = "write sqlite:///jobs.db or postgresql://user@host/database"


@pytest.mark.parametrize(
    ("url", "code", "advice"),
    [
        *DOCUMENTED_URLS,
        ("redis://h:6379/0", "URL_INVALID", EXAMPLES),
        ("localhost:5432/shop", "URL_INVALID", EXAMPLES),
        ("sqlite:///", "URL_INVALID", EXAMPLES),
    ],
)
def test_a_url_that_cannot_work_says_what_to_write(url: str, code: str, advice: str) -> None:
    with pytest.raises(DetentError) as refused:
        asyncio.run(Detent(url).open())
    assert (refused.value.code, refused.value.retryable) == (code, code == "STORE_UNAVAILABLE")
    assert advice in refused.value.message and "sec" not in refused.value.message
    assert len(DOCUMENTED_URLS) > 10


def test_an_unknown_option_is_refused_with_a_suggestion() -> None:
    with pytest.raises(InvalidInput, match="no option 'max_paylod'; did you mean max_payload") as refused:
        Detent(max_paylod=5)  # type: ignore[call-arg]
    assert refused.value.code == "OPTION_UNKNOWN"
    with pytest.raises(InvalidInput, match=r"no option 'colour'; see help\(Detent\)"):
        Detent(colour="red")  # type: ignore[call-arg]


class Opening:
    """A database that is down for the first attempts."""

    def __init__(self, *errors: DetentError) -> None:
        self.errors = list(errors)

    async def __call__(self) -> str:
        if self.errors:
            raise self.errors.pop(0)
        return "open"


@pytest.mark.anyio
async def test_a_process_that_runs_until_stopped_waits_for_the_server(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pauses: list[float] = []
    before = signal.getsignal(signal.SIGTERM)

    async def pause(backoff: Backoff) -> None:
        pauses.append(backoff.seconds)
        backoff._failures += 1

    monkeypatch.setattr(Backoff, "pause", pause)
    opening = Opening(*[StoreUnavailable("Postgres does not answer")] * 5)
    assert await when_available(opening) == "open"
    assert pauses == [0.5, 1, 2, 4, 5]
    assert [record.message for record in caplog.records[:2]] == [
        "Postgres does not answer; next attempt in 0.5 s",
        "Postgres does not answer; next attempt in 1 s",
    ]
    assert signal.getsignal(signal.SIGTERM) is before, "the handler of the wait is removed"


@pytest.mark.parametrize("error", [DatabaseUnusable("wrong password"), SchemaMismatch("run detent migrate")])
@pytest.mark.anyio
async def test_what_time_does_not_cure_is_raised_at_once(error: DetentError) -> None:
    with pytest.raises(type(error)):
        await when_available(Opening(error))


def test_the_first_use_opens_once_per_loop(url: str) -> None:
    app = Detent(url)
    add = declare(app)

    async def main() -> Any:
        handles = await asyncio.gather(*(add.enqueue(n=n) for n in range(20)))
        engine = app.engine
        assert await app.ready() is engine
        assert {await handle.status() for handle in handles} == {"queued"}
        await app.close()
        with pytest.raises(DetentError, match="async with"):
            _ = app.engine
        assert await app.ready() is not engine, "it opens again"
        await app.close()
        return engine

    assert asyncio.run(main()) is not asyncio.run(main())


def test_concurrent_first_uses_open_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if opening takes a while, as it does with a database server."""
    app = Detent(url)
    add = declare(app)
    engines = []
    make_engine = app.make_engine

    def make() -> Any:
        engine = make_engine()
        engines.append(engine)
        opening = engine.open

        async def slowly() -> None:
            await asyncio.sleep(0)
            await opening()

        monkeypatch.setattr(engine, "open", slowly)
        return engine

    monkeypatch.setattr(app, "make_engine", make)

    async def main() -> None:
        async with app:
            pass
        await asyncio.gather(*(add.enqueue(n=n) for n in range(5)))
        await app.close()

    asyncio.run(main())
    assert len(engines) == 2


def test_two_concurrent_loops_have_separate_engines(url: str) -> None:
    app = Detent(url)
    add = declare(app)
    engines, barrier = [], threading.Barrier(2)

    async def main(n: int) -> None:
        await add.enqueue(n=n)
        engines.append(app.engine)
        await asyncio.to_thread(barrier.wait, 10)
        assert app.engine in engines
        await app.close()

    threads = [threading.Thread(target=lambda n=n: asyncio.run(main(n))) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(engines) == 2 and engines[0] is not engines[1]


def test_loops_that_end_without_close_leave_nothing_behind(url: str) -> None:
    """With asyncio.run() around every call, as in a script, threads and connections must not accumulate."""
    app = Detent(url)
    add = declare(app)

    async def main() -> None:
        await add.enqueue(n=1)

    asyncio.run(main())
    before = threading.active_count()
    for _ in range(10):
        asyncio.run(main())
    assert threading.active_count() <= before
    assert len(app._engines) == 1

    async def end() -> None:
        await app.ready()
        await app.close()

    asyncio.run(end())
    assert not app._engines


def test_a_forked_child_enqueues_on_its_own_connection(url: str, tmp_path: Path) -> None:
    """The parent has an open loop and a thread of its sync client; the child inherits neither and needs neither."""
    app = Detent(url)
    add = declare(app)
    asyncio.run(add.enqueue(n=0))  # a loop that ended without closing the app
    first = app.sync.enqueue(add, n=1)
    asyncio.run(add.enqueue(n=0))
    inherited = list(app._engines.values())
    assert len(inherited) == 2

    def child() -> None:
        handle = app.sync.enqueue(add, n=2)
        assert handle.status() == "queued" and list(app._engines.values()) != inherited

        async def main() -> None:
            await (await add.enqueue(n=3)).status()
            await app.close()

        asyncio.run(main())
        app.sync.close()
        assert all(engine.store._writer is not None for engine in inherited), (
            "the child does not close the parent's connections"
        )  # type: ignore[attr-defined]

    with app.sync._lock:  # another thread of the parent was just using it
        pid = os.fork()
        if pid == 0:
            try:
                child()
                os._exit(0)
            except BaseException as error:
                (tmp_path / "child").write_text(repr(error))
                os._exit(1)
    try:
        _, status = until_now(lambda: (waited := os.waitpid(pid, os.WNOHANG))[0] and waited)
    except AssertionError:
        os.kill(pid, signal.SIGKILL)
        raise
    assert status == 0, (tmp_path / "child").read_text()
    assert first.status() == "queued", "the parent is not affected"
    assert app.sync.enqueue(add, n=4).status() == "queued"
    engine = app.sync.run(app.ready())
    assert sum(row[3] for row in app.sync.run(engine.store.read(lambda tx: tx.stats.counts()))) == 6
    app.sync.close()


def test_another_schema_version_is_refused(url: str) -> None:
    import apsw

    async def make() -> None:
        async with Detent(url):
            pass

    asyncio.run(make())
    connection = apsw.Connection(url.removeprefix("sqlite:///"))
    connection.execute("INSERT INTO detent_schema VALUES (999), (-999)")
    connection.close()
    with pytest.raises(DetentError) as refused:
        asyncio.run(make())
    assert refused.value.code == "SCHEMA_MISMATCH"
