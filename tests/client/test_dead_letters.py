"""app.dead_letters: a corrected payload is checked by the handler before anything is written."""

import pytest

from detent import Detent, DetentError, Fail
from detent.ports.listing import Filter

pytestmark = pytest.mark.anyio


async def make_dead_letters(app: Detent, count: int = 2) -> list[str]:
    @app.job("refund")
    async def refund(order_id: int) -> None:
        raise Fail("no such order", code="ORDER_UNKNOWN", retryable=False)

    await refund.enqueue_many([{"order_id": n} for n in range(count)])
    worker = await app.worker(until_idle=True)
    assert await worker.run(handle_signals=False) == 0
    return [item.id for item in await app.dead_letters.list()]


async def test_requeue_with_a_corrected_payload(app: Detent) -> None:
    first, second = await make_dead_letters(app)
    with pytest.raises(DetentError) as caught:
        await app.dead_letters.requeue(first, payload={"order_id": "seven"})
    assert caught.value.code == "PAYLOAD_INVALID"
    assert (await app.dead_letters.show(first))["status"] == "open"
    submitted = await app.dead_letters.requeue(first, payload={"order_id": 7}, actor="ann", reason="typo")
    assert (submitted.job.payload, submitted.job.requeued_from) == ('{"order_id":7}', first)
    [act] = (await app.dead_letters.show(first))["acts"]
    assert (act["actor"], act["reason"], act["data"]["repaired"]) == ("ann", "typo", True)
    assert [item.id for item in await app.dead_letters.list()] == [second]


async def test_in_bulk(app: Detent) -> None:
    await make_dead_letters(app, 3)
    chosen = Filter(error_code="ORDER_UNKNOWN")
    assert (await app.dead_letters.requeue_many(chosen, dry_run=True)).matched == 3
    assert (await app.dead_letters.discard_many(chosen, person="ann", reason="old")).for_two == 3
    assert (await app.dead_letters.requeue_many(chosen, rate=100)).done == 3


def test_without_an_event_loop(plain: Detent) -> None:
    plain.sync.run(make_dead_letters(plain))
    dead_letters = plain.sync.dead_letters
    first, second = (item.id for item in dead_letters.list())
    assert dead_letters.requeue(first).job.requeued_from == first
    assert not dead_letters.discard(second, person="ann", reason="old").confirmed
    assert dead_letters.discard(second, person="bo", reason="old").confirmed
    assert dead_letters.show(second)["status"] == "discarded"
    assert dead_letters.requeue_many(Filter(), dry_run=True).matched == 0
    assert dead_letters.discard_many(Filter(), person="ann", reason="old").done == 0
