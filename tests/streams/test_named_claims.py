"""Claims by id: the hot statement and the careful way agree with each other and with `decide`."""

import pytest

from detent.core.contract.model import Move
from detent.core.decide import decide
from detent.core.job import Facts, Failure, Job
from detent.core.outcome import Failed, Succeeded
from detent.core.times import SECOND
from detent.engine import BatchResult, Settlement, Submission
from detent.engine.streams.deliveries import Taker, receive
from detent.ports.claims import NamedClaim
from detent.ports.stream import Delivery

from .stage import Stage

pytestmark = pytest.mark.anyio
LEASE = 300 * SECOND


async def take(stage: Stage, *named: NamedClaim, settled: tuple[Settlement, ...] = ()) -> BatchResult:
    request = stage.engine.claim_request("w", len(named), 300.0, named=list(named))
    return await stage.engine.settle_and_claim(list(settled), request)


async def slowly(stage: Stage, *named: NamedClaim) -> list[str]:
    deliveries = [Delivery(one.token, one.id, one.failures, b"{}", {}) for one in named]
    found = await stage.engine.store.write(lambda tx: receive(stage.engine, tx, Taker("w", LEASE), deliveries))
    return [claimed.id for claimed in found.claimed]


async def test_both_ways_make_the_row_that_decide_makes(stage: Stage) -> None:
    hot, slow = await stage.submit(payload={"a": 1}), await stage.submit(payload={"a": 1})
    stage.clock.advance(5)
    (claimed,) = (await take(stage, NamedClaim(hot.id, "1-1", 0))).claimed
    assert (claimed.id, claimed.token, claimed.payload, claimed.execution_no) == (hot.id, "1-1", '{"a":1}', 1)
    assert await slowly(stage, NamedClaim(slow.id, "1-2", 0)) == [slow.id]
    contract = stage.engine.contract("streams")
    for job, token in ((hot, "1-1"), (slow, "1-2")):
        facts = Facts(worker="w", token=token, lease=LEASE)
        wanted = decide(contract, job, Move.CLAIM, stage.clock.now(), facts)
        assert await stage.job(job.id) == wanted.after
        history = await stage.engine.history(job.id)
        assert history.events[-1] == wanted.events[-1]


async def test_only_what_a_message_still_tells_of_is_claimed(stage: Stage) -> None:
    """Another try, another contract, not due yet, held, ended, unknown: nothing of these."""
    tried = await stage.submit()
    await take(stage, NamedClaim(tried.id, "1-1", 0))
    failed = Settlement(tried.id, "1-1", "streams", Failed(Failure("X", "no")))
    await stage.engine.settle_and_claim([failed], None)
    later = await stage.submit(delay=60.0)
    other = (await stage.engine.submit(Submission("add"))).job
    held = await stage.submit()
    await take(stage, NamedClaim(held.id, "2-1", 0))
    ended = await stage.submit()
    await take(stage, NamedClaim(ended.id, "3-1", 0))
    await stage.engine.settle_and_claim([Settlement(ended.id, "3-1", "streams", Succeeded("1"))], None)
    before = [await stage.job(job.id) for job in (tried, later, other, held, ended)]
    wrong = [NamedClaim(job.id, "9-9", 0) for job in before] + [NamedClaim("no id at all", "9-9", 0)]
    assert (await take(stage, *wrong)).claimed == []
    assert await slowly(stage, *wrong) == []
    assert [await stage.job(job.id) for job in before] == before
    assert [claimed.id for claimed in (await take(stage, NamedClaim(tried.id, "9-9", 1))).claimed] == [tried.id]


async def test_settling_and_claiming_share_a_statement(stage: Stage) -> None:
    first, second = await stage.submit(), await stage.submit()
    await take(stage, NamedClaim(first.id, "1-1", 0))
    end = Settlement(first.id, "1-1", "streams", Succeeded('"done"'))
    lost = end._replace(token="0-0")
    answer = await take(stage, NamedClaim(second.id, "1-2", 0), NamedClaim(first.id, "1-3", 0), settled=(end,))
    assert [claimed.id for claimed in answer.claimed] == [second.id] and not answer.refused
    again = await take(stage, settled=(end, lost))
    assert not again.claimed and list(again.refused) == [first.id]
    done: Job = await stage.job(first.id)
    assert (done.status, done.result, done.version) == ("succeeded", '"done"', 3)
    await stage.verified()
