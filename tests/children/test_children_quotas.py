"""A tenant's quotas apply to children: the enqueue raises in the parent and creates no child of the batch."""

from typing import Any

import pytest

from detent import Context, Detent, JobFailed
from detent.core.access import Scope
from detent.core.errors import InvalidInput, QuotaExceeded
from detent.engine import Submission
from support.worker.running import working

pytestmark = pytest.mark.anyio


async def count_children(app: Detent, job_id: str) -> int:
    return len(await app.engine.store.read(lambda tx: tx.children.list_children(job_id, limit=100)))


async def test_a_full_backlog_raises_in_the_parent(app: Detent) -> None:
    errors: list[Any] = []

    @app.job("leaf", queue="nobody")
    async def leaf(n: int) -> int:
        return n

    @app.job("fan", max_retries=0)
    async def fan(ctx: Context, many: int) -> int:
        try:
            await ctx.enqueue_many(leaf, [{"n": n} for n in range(many)])
        except QuotaExceeded as error:
            errors.append((error.code, error.retryable))
        return many

    await app.engine.limits.set_quota("acme", Scope("ann"), max_backlog=3)
    async with working(app, queues=["default"]):
        full = await fan.using(tenant="acme").enqueue(3)
        assert await full.result(timeout=20) == 3
        assert errors == [("TENANT_BACKLOG_FULL", True)], "the parent itself is one of the three"
        assert await count_children(app, full.id) == 0
        fits = await fan.using(tenant="acme").enqueue(2)
        await fits.result(timeout=20)
        assert len(errors) == 1 and await count_children(app, fits.id) == 2
        other = await fan.enqueue(5)
        await other.result(timeout=20)
        assert await count_children(app, other.id) == 5, "another tenant has no quota"


async def test_a_payload_over_the_quota_fails_the_parent(app: Detent) -> None:
    @app.job("leaf", queue="nobody")
    async def leaf(text: str) -> None: ...

    @app.job("fan")
    async def fan(ctx: Context) -> None:
        await ctx.enqueue(leaf, text="x" * 50)

    await app.engine.limits.set_quota("acme", Scope("ann"), max_payload=20)
    async with working(app, queues=["default"]):
        handle = await fan.using(tenant="acme").enqueue()
        with pytest.raises(JobFailed):
            await handle.result(timeout=20)
    assert (await app.engine.jobs.get(handle.id)).error_code == "TENANT_PAYLOAD_TOO_LARGE"
    assert await count_children(app, handle.id) == 0
    with pytest.raises(InvalidInput):
        await app.engine.jobs.submit(Submission("leaf", {"text": "x" * 50}, tenant_id="acme"))
