"""app.limit, deadlines and app.for_tenant."""

from pathlib import Path

import pytest

from detent import Context, Detent
from detent.core.access import Scope
from detent.core.errors import InvalidInput, NotFound, TenantViolation

pytestmark = pytest.mark.anyio


def make(path: Path, **limit: object) -> Detent:
    app = Detent(f"sqlite:///{path}/jobs.db")
    if limit:
        app.limit(**limit)  # type: ignore[arg-type]

    @app.job("work", queue="mail")
    async def work(ctx: Context, n: int = 0) -> int:
        return n

    return app


async def test_an_operators_change_lasts_until_the_declaration_changes(tmp_path: Path) -> None:
    async with make(tmp_path, queue="mail", concurrency=5) as app:
        await app.engine.limits.set(Scope("ann"), queue="mail", concurrency=2)
    async with make(tmp_path, queue="mail", concurrency=5) as app:
        assert [limit.concurrency for limit in await app.engine.limits.list()] == [2]
    async with make(tmp_path, queue="mail", concurrency=7) as app:
        assert [limit.concurrency for limit in await app.engine.limits.list()] == [7]
    with pytest.raises(InvalidInput):
        make(tmp_path, queue="mail")


async def test_until_idle_waits_for_jobs_delayed_by_a_rate(tmp_path: Path) -> None:
    app = make(tmp_path, queue="mail", rate=(3, 0.4))
    await app.jobs["work"].enqueue_many([{"n": n} for n in range(7)])
    assert await app.run_worker(until_idle=True, slots=8) == 0
    async with app:
        counts = await app.engine.store.read(lambda tx: tx.stats.counts())
        assert sum(number for _, _, phase, number in counts if phase == "final") == 7


async def test_an_application_within_a_tenant(tmp_path: Path) -> None:
    async with make(tmp_path) as app:
        acme, rival = app.for_tenant("acme"), app.for_tenant("rival")
        work = app.jobs["work"]
        mine = await acme.job(work).using(limit_key="k", deadline=60).enqueue(n=1)
        (many,) = await rival.job(work).enqueue_many([{"n": 2}])
        assert (await mine.job()).tenant_id == "acme" and (await many.job()).tenant_id == "rival"
        assert (await mine.job()).deadline_at is not None and (await mine.job()).limit_key == "k"
        assert [job.id for job in await acme.jobs()] == [mine.id]
        assert (await acme.handle(mine.id)).id == mine.id
        with pytest.raises(NotFound):
            await acme.handle(many.id)
        with pytest.raises(TenantViolation):
            await acme.job(work).using(tenant="rival").enqueue(n=3)
