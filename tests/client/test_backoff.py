"""The option backoff in Python: declared, chosen for one enqueue, and refused."""

from datetime import timedelta
from typing import Any

import pytest

from detent import Detent, Exponential, Fixed
from detent.core.errors import InvalidInput

pytestmark = pytest.mark.anyio


async def test_declared_and_chosen(app: Detent) -> None:
    @app.job("fetch", backoff=[60, 300, 900])
    async def fetch(n: int) -> None: ...

    @app.schedule(every="1m", backoff=timedelta(seconds=90))
    @app.schedule(every="2m", name="again")
    @app.job("poll", backoff=Exponential(base=1, factor=2, cap=60, jitter=0.1))
    async def poll() -> None: ...

    assert (await (await fetch.enqueue(n=1)).job()).backoff == "60,300,900"
    assert (await (await fetch.using(backoff=Fixed(5)).enqueue(n=1)).job()).backoff == "5"
    assert [(await handle.job()).backoff for handle in await fetch.enqueue_many([{"n": 1}])] == ["60,300,900"]
    assert (await (await poll.enqueue()).job()).backoff == "base=1,factor=2,cap=60,jitter=0.1"
    chosen = {request.name: request.backoff for request in app.schedules.declared.values()}
    assert chosen == {"poll": "90", "again": "base=1,factor=2,cap=60,jitter=0.1"}, "else what the job declares"


async def test_a_wrong_value_is_refused_when_it_is_declared() -> None:
    app = Detent("sqlite:///:memory:")
    wrong: Any = "soon"
    with pytest.raises(InvalidInput) as refused:
        app.job("fetch", backoff=wrong)
    assert refused.value.code == "BACKOFF_INVALID"


async def test_a_frozen_contract_refuses_it(app: Detent) -> None:
    @app.job("fetch", contract="gate-b2", backoff=5)
    async def fetch() -> None: ...

    with pytest.raises(InvalidInput) as refused:
        await fetch.enqueue()
    assert refused.value.code == "BACKOFF_FROZEN"
