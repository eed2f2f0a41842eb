"""A failure gets the contract's own code unless somebody names one, and the contract decides if it is retried."""

import pytest

from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.gate_b2 import GATE_B2
from detent.core.job import Failure
from detent.core.outcome import Failed, Stopped
from detent.core.retry import Origin
from detent.engine import Engine
from support.acts import LONG, claim_one, events_of, running
from support.clock import FakeClock
from support.stores import Place, make_engine

pytestmark = pytest.mark.anyio
OWN = {
    "gate-b2": "JOB_EXECUTION_FAILED",
    "men": "TASK_EXECUTION_FAILED",
    "p3c": "JOB_EXECUTION_FAILED",
    "streams": "JOB_EXECUTION_FAILED",
    "formal": "JOB_EXECUTION_FAILED",
    "standard": "JOB_EXECUTION_FAILED",
}
RETRIED = {
    # contract: which origins it retries without a word about retryable
    "gate-b2": {Origin.EXCEPTION, Origin.ENGINE},
    "men": {Origin.EXCEPTION, Origin.ENGINE, Origin.FAIL, Origin.REPORT},
    "p3c": {Origin.EXCEPTION, Origin.ENGINE, Origin.REPORT},
    "streams": {Origin.EXCEPTION, Origin.ENGINE, Origin.REPORT},
    "formal": {Origin.EXCEPTION, Origin.ENGINE, Origin.REPORT},
    "standard": {Origin.EXCEPTION, Origin.ENGINE, Origin.REPORT},
}


@pytest.mark.parametrize("contract", OWN)
async def test_a_failure_without_a_code(engine: Engine, contract: str) -> None:
    for origin in Origin:
        held = await running(engine, contract, job_type=origin)
        job = await engine.settle(held.id, held.token, Failed(Failure("", "no code", origin=origin)))
        assert (job.retries == 1) == (origin in RETRIED[contract]), origin
        assert (job.error_code, job.error_message) == (OWN[contract], "no code"), origin


@pytest.mark.parametrize("contract", OWN)
async def test_a_named_code_and_retryable_are_kept(engine: Engine, contract: str) -> None:
    for origin in Origin:
        for retryable in (True, False):
            held = await running(engine, contract, job_type=f"{origin}-{retryable}")
            failure = Failure("CARD_DECLINED", "no", retryable=retryable, origin=origin)
            job = await engine.settle(held.id, held.token, Failed(failure))
            assert job.error_code == "CARD_DECLINED"
            assert (job.retries == 1) == (retryable and contract != "men"), "men retries two codes and nothing else"


@pytest.mark.parametrize("origin", Origin)
async def test_men_ends_exhausted_with_the_cause(engine: Engine, clock: FakeClock, origin: Origin) -> None:
    held = await running(engine, "men", max_retries=1)
    await engine.settle(held.id, held.token, Failed(Failure("", "first", origin=origin)))
    held = await claim_one(engine)
    job = await engine.settle(held.id, held.token, Failed(Failure("", "second", origin=origin)))
    assert (job.status, job.error_code) == ("failed", "TASK_RETRY_EXHAUSTED")
    assert job.error_message == "TASK_EXECUTION_FAILED: second"


STOPPED = {
    "gate-b2": ("retrying", "WORKER_STOPPED"),
    "men": ("ready", "TASK_EXECUTION_FAILED"),
    "p3c": ("interrupted", "PROCESS_RESTARTED"),
}


@pytest.mark.parametrize("contract", STOPPED)
async def test_a_stop_in_good_order_is_no_timeout(engine: Engine, clock: FakeClock, contract: str) -> None:
    held = await running(engine, contract)
    job = await engine.settle(held.id, held.token, Stopped())
    assert (job.status, job.error_code, job.error_message) == (*STOPPED[contract], "worker stopped")
    if contract == "men":
        for _ in range(2):
            clock.advance(LONG)
            held = await claim_one(engine)
            job = await engine.settle(held.id, held.token, Stopped())
        assert (job.error_code, job.error_message) == ("TASK_RETRY_EXHAUSTED", "TASK_EXECUTION_FAILED: worker stopped")
        codes = {(event.data or {}).get("error_code") for event in await events_of(engine, held.id)}
        assert "TASK_TIMEOUT" not in codes


async def test_exceptions_can_need_a_word_too(place: Place, clock: FakeClock) -> None:
    """The option of gate-b2 for exceptions of Python handlers."""
    retry = GATE_B2.retry
    strict = GATE_B2.with_options(
        name="strict", retry=type(retry)(retry.backoff, 3, frozen=True, opt_in=retry.opt_in | {Origin.EXCEPTION})
    )
    engine = make_engine(place, clock, contracts={**CONTRACTS, "strict": strict})
    await engine.open()
    try:
        held = await running(engine, "strict")
        job = await engine.settle(held.id, held.token, Failed(Failure("", "oops", "Boom", origin=Origin.EXCEPTION)))
        assert (job.status, job.error_code) == ("failed", "JOB_EXECUTION_FAILED")
    finally:
        await engine.close()
