"""Retries of stream tasks from the environment."""

from pathlib import Path

import pytest

from detent import Detent
from detent.core.errors import InvalidInput
from detent.core.job import Failure
from detent.core.outcome import Failed
from detent.core.times import SECOND
from detent.engine import Submission

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("prefix", ["", "DETENT_"])
async def test_the_environment_sets_retries_and_backoff_of_stream_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    """1, 5 and 15 minutes, as the document proposes; tasks of other contracts are not changed."""
    monkeypatch.setenv(f"{prefix}MAX_RETRIES", "5")
    monkeypatch.setenv(f"{prefix}RETRY_BACKOFF_S", "60,300,900")
    async with Detent(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        engine = app.engine
        other = (await engine.jobs.submit(Submission("add"))).job
        assert other.max_retries == 3
        task = (await engine.jobs.submit(Submission("add", contract="streams"))).job
        own = (await engine.jobs.submit(Submission("add", contract="streams", max_retries=1, backoff="7"))).job
        assert (task.max_retries, own.max_retries) == (5, 1)
        delays = {}
        for claimed in await engine.claim(engine.claim_request("w", 10)):
            job = await engine.settle(claimed.id, claimed.token, Failed(Failure("LUCK", "no luck")))
            delays[job.id] = round(((job.due_at or 0) - job.updated_at) / SECOND)
        assert (delays[task.id], delays[own.id]) == (60, 7) and delays[other.id] == 1
    contract = app.make_engine()
    await contract.open()
    assert contract.store.contracts["streams"].retry.max_retries == 3, "only this process has other defaults"
    await contract.close()


@pytest.mark.parametrize(
    ("name", "value"), [("MAX_RETRIES", "many"), ("MAX_RETRIES", "-1"), ("RETRY_BACKOFF_S", "soon")]
)
async def test_a_wrong_setting_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidInput) as refused:
        await Detent("sqlite:///:memory:").ready()
    assert refused.value.code == "SETTING_INVALID" and name in refused.value.message
