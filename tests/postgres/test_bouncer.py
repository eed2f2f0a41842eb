"""Behind PgBouncer in transaction mode: no prepared statements, no LISTEN, no session state; the rest is the same."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from detent.client.connect import store_from
from detent.core.access import Scope
from detent.core.errors import InvalidInput
from detent.core.outcome import Succeeded
from detent.engine import Engine, Submission
from detent.proof.verify.verify import verify
from detent.stores.postgres.errors import translate
from support.postgres.fleet import enqueue, fleet_on, soon
from support.servers.bouncer import ABSENT, bouncing, installed
from support.servers.databases import migrated
from support.servers.postgres import VOLATILE, Server, running

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running(settings={**VOLATILE, "log_statement": "all"}) as server:
        asyncio.run(migrated(server.url()))
        yield server


@pytest.fixture
def bouncer(server: Server) -> Iterator[str]:
    with bouncing(server, "postgres") as url:
        yield url


@pytest.fixture(autouse=True)
def present() -> None:
    """Without a bouncer the end of the run says what did not run; with $DETENT_REQUIRE_PGBOUNCER=1 it is red."""
    if installed():
        return
    if os.environ.get("DETENT_REQUIRE_PGBOUNCER") == "1":
        pytest.fail(ABSENT)
    pytest.skip(ABSENT)


async def test_submit_claim_settle_and_signal_share_few_connections(bouncer: str) -> None:
    """Twenty callers over four server connections: a statement prepared on one would be missing on the next."""
    engine = Engine(store_from(bouncer))
    await engine.open()

    async def life(n: int) -> None:
        job = (await engine.jobs.submit(Submission("life", {"n": n}, queue=f"q{n % 3}"))).job
        await engine.jobs.signal(job.id, "go", Scope("test"), {"n": n})
        assert (await engine.jobs.get(job.id)).id == job.id

    async def work(name: str) -> int:
        done = 0
        while claimed := await engine.claim(engine.claim_request(name, 7)):
            for one in claimed:
                await engine.settle(one.id, one.token, Succeeded("1"))
            done += len(claimed)
        return done

    try:
        for _ in range(5):
            await asyncio.gather(*(life(n) for n in range(20)))
        assert sum(await asyncio.gather(*(work(f"w{n}") for n in range(4)))) == 100
        report = await verify(engine.store)
        assert report.ok and report.jobs == 100, report.violations[:3]
    finally:
        await engine.close()


@pytest.mark.long
async def test_two_workers_drain_five_hundred(server: Server, tmp_path: Path) -> None:
    server.run("createdb", "-h", "127.0.0.1", "-p", str(server.port), "-U", "detent", "drain")
    await migrated(server.url("drain"))
    log = server.folder / "log"
    before = log.stat().st_size
    with bouncing(server, "drain") as url, fleet_on(tmp_path, url, look=server.url("drain")) as fleet:
        await enqueue(url, 500)
        fleet.start()
        fleet.start()
        await soon(fleet.ready, "both workers have introduced themselves")
        await soon(fleet.drained, "everything is done")
        numbers = await fleet.check()
        assert (numbers["jobs"], numbers["begun"], numbers["lost leases"]) == (500, 500, 0), numbers
        assert fleet.log_text("WARNING|ERROR") == [0, 0]
    with log.open("rb") as text:
        text.seek(before)
        log_text = text.read().decode()
    assert "ERROR" not in log_text and "LISTEN" not in log_text


async def test_a_bouncer_that_the_url_does_not_declare_is_named(bouncer: str) -> None:
    """It refuses our startup parameters; if it ignores them, it loses prepared statements sooner or later."""
    engine = Engine(store_from(bouncer.removesuffix("?pgbouncer=1")))
    with pytest.raises(InvalidInput) as refused:
        await engine.open()
    assert refused.value.code == "PGBOUNCER_UNDECLARED" and "?pgbouncer=1" in str(refused.value)
    lost = asyncpg.InvalidSQLStatementNameError('prepared statement "__asyncpg_stmt_3__" does not exist')
    assert getattr(translate(lost), "code", None) == "PGBOUNCER_UNDECLARED"
    await engine.close()
