"""Claims by id: the batched SQL statement and `receive_deliveries` agree with each other and with `decide`."""

from typing import Any

import pytest

from detent.core.contract.model import Move
from detent.core.decide import decide
from detent.core.job import Facts, Failure, Job
from detent.core.outcome import Failed, Succeeded
from detent.core.times import SECOND
from detent.engine import BatchResult, Settlement, Submission
from detent.engine.streams.deliveries import StreamClaimer, receive_deliveries
from detent.ports.claims import NamedClaim
from detent.ports.stream import Delivery
from support.streams.harness import StreamHarness

pytestmark = pytest.mark.anyio
LEASE = 300 * SECOND


async def claim_in_sql(harness: StreamHarness, *named: NamedClaim, settled: tuple[Settlement, ...] = ()) -> BatchResult:
    request = harness.engine.claim_request("w", len(named), 300.0, named=list(named))
    return await harness.engine.settle_and_claim(list(settled), request)


async def claim_in_python(harness: StreamHarness, *named: NamedClaim) -> list[str]:
    deliveries = [Delivery(claim.token, claim.id, claim.failures, b"{}", {}) for claim in named]
    received = await harness.engine.store.write(
        lambda tx: receive_deliveries(harness.engine, tx, StreamClaimer("w", LEASE), deliveries)
    )
    return [claimed.id for claimed in received.claimed]


@pytest.mark.parametrize("timeout_ms", [None, 2_000])
async def test_both_claims_write_the_row_of_decide(harness: StreamHarness, timeout_ms: int | None) -> None:
    fields: dict[str, Any] = {"payload": {"a": 1}, "timeout_ms": timeout_ms}
    hot, slow = await harness.submit(**fields), await harness.submit(**fields)
    harness.clock.advance(5)
    (claimed,) = (await claim_in_sql(harness, NamedClaim(hot.id, "1-1", 0))).claimed
    assert (claimed.id, claimed.token, claimed.payload, claimed.execution_no) == (hot.id, "1-1", '{"a":1}', 1)
    assert await claim_in_python(harness, NamedClaim(slow.id, "1-2", 0)) == [slow.id]
    contract = harness.engine.contract("streams")
    for job, token in ((hot, "1-1"), (slow, "1-2")):
        facts = Facts(worker="w", token=token, lease=LEASE)
        expected = decide(contract, job, Move.CLAIM, harness.clock.now(), facts)
        assert await harness.job(job.id) == expected.after
        history = await harness.engine.jobs.history(job.id)
        assert history.events[-1] == expected.events[-1]


async def test_only_the_state_a_message_refers_to_is_claimed(harness: StreamHarness) -> None:
    """Not claimed: another retry count, another contract, not due, held, ended, unknown."""
    tried = await harness.submit()
    await claim_in_sql(harness, NamedClaim(tried.id, "1-1", 0))
    failed = Settlement(tried.id, "1-1", "streams", Failed(Failure("X", "no")))
    await harness.engine.settle_and_claim([failed], None)
    later = await harness.submit(delay=60.0)
    other = (await harness.engine.jobs.submit(Submission("add"))).job
    held = await harness.submit()
    await claim_in_sql(harness, NamedClaim(held.id, "2-1", 0))
    ended = await harness.submit()
    await claim_in_sql(harness, NamedClaim(ended.id, "3-1", 0))
    await harness.engine.settle_and_claim([Settlement(ended.id, "3-1", "streams", Succeeded("1"))], None)
    before = [await harness.job(job.id) for job in (tried, later, other, held, ended)]
    wrong = [NamedClaim(job.id, "9-9", 0) for job in before] + [NamedClaim("not an id", "9-9", 0)]
    assert (await claim_in_sql(harness, *wrong)).claimed == []
    assert await claim_in_python(harness, *wrong) == []
    assert [await harness.job(job.id) for job in before] == before
    assert [claimed.id for claimed in (await claim_in_sql(harness, NamedClaim(tried.id, "9-9", 1))).claimed] == [
        tried.id
    ]


async def test_settling_and_claiming_share_a_statement(harness: StreamHarness) -> None:
    first, second = await harness.submit(), await harness.submit()
    await claim_in_sql(harness, NamedClaim(first.id, "1-1", 0))
    end = Settlement(first.id, "1-1", "streams", Succeeded('"done"'))
    lost = end._replace(token="0-0")
    answer = await claim_in_sql(
        harness, NamedClaim(second.id, "1-2", 0), NamedClaim(first.id, "1-3", 0), settled=(end,)
    )
    assert [claimed.id for claimed in answer.claimed] == [second.id] and not answer.refused
    again = await claim_in_sql(harness, settled=(end, lost))
    assert not again.claimed and list(again.refused) == [first.id]
    done: Job = await harness.job(first.id)
    assert (done.status, done.result, done.version) == ("succeeded", '"done"', 3)
    await harness.check_integrity()
