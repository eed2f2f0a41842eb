"""Dead letters by a filter: how many, then all of them, paced; one bad letter stops no other."""

import pytest

from detent.core.access import Scope
from detent.core.errors import InvalidInput
from detent.core.job import DeadLetter
from detent.core.times import SECOND
from detent.engine import Engine, Submission, dead_letters
from detent.ports.listing import Filter
from support.acts import PERMANENT, claim, refused, refused_untouched
from support.clock import FakeClock
from support.stores import Place

pytestmark = pytest.mark.anyio
COUNT = 45


async def create_dead_letters(
    engine: Engine, count: int = 1, contract: str = "standard", **fields: object
) -> list[str]:
    """So many new dead letters; their ids."""
    submissions = [Submission("mail", {"n": n}, contract=contract, **fields) for n in range(count)]  # type: ignore[arg-type]
    await engine.jobs.submit_many(submissions)
    held = await claim(engine, limit=count)
    found = [(await engine.settle(one.id, one.token, PERMANENT)).dlq_id or "" for one in held]
    assert len(found) == count
    return found


async def test_filters(engine: Engine, clock: FakeClock) -> None:
    [old] = await create_dead_letters(engine, queue="a", tenant_id="t")
    clock.advance(100)
    [young] = await create_dead_letters(engine, contract="streams")
    for chosen, expected in (
        (Filter(queue="a"), {old}),
        (Filter(tenant_id="t"), {old}),
        (Filter(contract="streams"), {young}),
        (Filter(job_type="mail"), {old, young}),
        (Filter(error_code="BROKEN"), {old, young}),
        (Filter(error_code="OTHER"), set()),
        (Filter(until=clock.now() - SECOND), {old}),
        (Filter(since=clock.now()), {young}),
        (Filter(text="never works"), {old, young}),
        (Filter(status="discarded"), set()),
    ):
        assert {item.id for item in await engine.dead_letters.list(chosen)} == expected, chosen
        counts = await engine.store.read(lambda tx, chosen=chosen: tx.dead_letters.count_dead_letters(chosen))
        assert sum(number for number, _ in counts.values()) == len(expected)


async def test_a_dry_run_only_counts(engine: Engine, place: Place) -> None:
    await create_dead_letters(engine, 3)
    before = place.dump()
    report = await engine.dead_letters.requeue_many(Filter(), Scope("ann"), dry_run=True)
    assert (report.matched, report.done, report.job_ids) == (3, 0, [])
    assert (await engine.dead_letters.discard_many(Filter(), Scope("ann", "old"), dry_run=True)).for_two == 3
    assert place.dump() == before


async def test_requeue_paced_over_pages(engine: Engine, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "PAGE", 20)
    created = await create_dead_letters(engine, COUNT)
    await create_dead_letters(engine, 2, queue="other")
    clock.advance(60)
    report = await engine.dead_letters.requeue_many(Filter(queue="default"), Scope("ann", "fixed"), rate=10)
    assert (report.matched, report.done, report.refused, len(report.job_ids)) == (COUNT, COUNT, 0, COUNT)
    jobs = [await engine.jobs.get(job_id) for job_id in report.job_ids]
    assert [job.due_at for job in jobs] == [clock.now() + number * SECOND // 10 for number in range(COUNT)]
    assert {job.requeued_from for job in jobs} == set(created)
    assert len(await claim(engine, limit=500)) == 1, "the others fall due one after the other"
    acts = [entry for _, _, entry in await engine.audit(1_000) if entry.act == "dlq.requeue"]
    assert {(entry.actor, entry.reason) for entry in acts} == {("ann", "fixed")} and len(acts) == COUNT
    assert (await engine.dead_letters.requeue_many(Filter(queue="default"), Scope("ann"))).matched == 0


async def test_what_comes_later_is_left_alone(engine: Engine, clock: FakeClock) -> None:
    """Else a job that fails at once would be requeued for ever; a letter from the future is one that came later."""
    [early] = await create_dead_letters(engine)
    clock.advance(60)
    await create_dead_letters(engine)
    clock.advance(-30)
    report = await engine.dead_letters.requeue_many(Filter(), Scope("ann"))
    assert (report.matched, report.done) == (1, 1)
    assert (await engine.dead_letters.get(early)).status == "requeued"


async def test_one_bad_dead_letter_stops_no_other(engine: Engine) -> None:
    dead_letters = await create_dead_letters(engine, 4)

    def check(item: DeadLetter) -> None:
        if item.id == dead_letters[1]:
            raise InvalidInput("mail: n: too small", code="PAYLOAD_INVALID")

    report = await engine.dead_letters.requeue_many(Filter(), Scope("ann"), check=check)
    assert (report.matched, report.done, report.refused, len(report.job_ids)) == (4, 3, 1, 3)
    assert report.refusals == [{"dlq_id": dead_letters[1], "code": "PAYLOAD_INVALID", "message": "mail: n: too small"}]
    assert (await engine.dead_letters.get(dead_letters[1])).status == "open"
    assert len(await claim(engine)) == 3


async def test_discard_where_one_person_is_enough(engine: Engine) -> None:
    await create_dead_letters(engine, 3, contract="streams")
    await create_dead_letters(engine, 2)
    report = await engine.dead_letters.discard_many(Filter(), Scope("ann", "a bad day"))
    assert (report.matched, report.done, report.for_two, report.refused) == (5, 3, 2, 0)
    assert await engine.store.read(lambda tx: tx.dead_letters.dead_letter_counts()) == {"discarded": 3, "open": 2}
    items = await engine.dead_letters.list(Filter(status="open"))
    assert {(item.contract, item.proposed_by) for item in items} == {("standard", "ann")}
    assert report.proposed == 2


async def test_one_person_proposes_to_discard_many_and_another_confirms(engine: Engine) -> None:
    await create_dead_letters(engine, 3)
    letters, ann, bo = engine.dead_letters, Scope("ann", "a bad day"), Scope("bo", "seen")
    assert (await letters.discard_many(Filter(), ann)).proposed == 3
    [late] = await create_dead_letters(engine)
    count = await letters.discard_many(Filter(), bo, dry_run=True)
    assert (count.matched, count.for_two, count.to_confirm) == (4, 4, 3)
    again = await letters.discard_many(Filter(proposed_by="ann"), Scope("Ann ", "me again"))
    assert (again.done, again.proposed, again.refused) == (0, 0, 3), "the same person, spelled differently"
    assert {row["code"] for row in again.refusals} == {"APPROVAL_REQUIRED"}
    unproven = await letters.discard_many(Filter(proposed_by="ann"), Scope("bo", "seen", shared_with=None))
    assert (unproven.done, unproven.refused) == (0, 3), "only a name"
    confirmed = await letters.discard_many(Filter(proposed_by="ann"), bo)
    assert (confirmed.matched, confirmed.done, confirmed.proposed) == (3, 3, 0)
    assert (await letters.get(late)).proposed_by is None, "it was not among what ann proposed"
    acts = [entry.act for _, _, entry in await engine.store.read(lambda tx: tx.audit.list_audit(100))]
    assert (acts.count("dlq.discard.propose"), acts.count("dlq.discard")) == (3, 3)


async def test_many_by_their_ids(engine: Engine) -> None:
    first, second, third = await create_dead_letters(engine, 3)
    await engine.dead_letters.requeue(third, Scope("ann"))
    chosen = Filter(ids=(first, third, "unknown"))
    assert (await engine.dead_letters.requeue_many(chosen, Scope("ann"), dry_run=True)).matched == 1
    done = await engine.dead_letters.requeue_many(chosen, Scope("ann"))
    assert (done.matched, done.done, done.refused) == (1, 1, 0)
    assert [item.id for item in await engine.dead_letters.list(Filter(status="open"))] == [second]
    assert (
        await engine.scoped(tenant="other").dead_letters.requeue_many(Filter(ids=(second,)), Scope("eve"))
    ).done == 0


async def test_bad_requests(engine: Engine, place: Place) -> None:
    await create_dead_letters(engine)
    for act, code in (
        (engine.dead_letters.requeue_many(Filter(status="discarded"), Scope("ann")), "FILTER_INVALID"),
        (engine.dead_letters.requeue_many(Filter(), Scope("ann"), rate=0), "RATE_INVALID"),
        (engine.dead_letters.discard_many(Filter(), Scope("ann", " ")), "APPROVAL_REQUIRED"),
        (engine.dead_letters.discard_many(Filter(), Scope("", "old")), "APPROVAL_REQUIRED"),
    ):
        await refused_untouched(place, act, code)


async def test_a_dead_letter_with_its_history(engine: Engine) -> None:
    [dlq_id] = await create_dead_letters(engine, tenant_id="t")
    await engine.dead_letters.discard(dlq_id, Scope("ann", "old"))
    await engine.dead_letters.discard(dlq_id, Scope("bo", "old indeed"))
    report = await engine.scoped(tenant="t").dead_letters.history(dlq_id)
    assert report["payload_json"] == {"n": 0} and report["error_code"] == "BROKEN"
    assert [event["target"] for event in report["history"]][-1] == "failed"
    assert [(act["actor"], act["act"], act["reason"]) for act in report["acts"]] == [
        ("ann", "dlq.discard.propose", "old"),
        ("bo", "dlq.discard", "old indeed"),
    ]
    assert (await engine.scoped(tenant=None, payloads=False).dead_letters.history(dlq_id))["payload_json"] is None
    await refused(engine.scoped(tenant="u").dead_letters.history(dlq_id), "DLQ_ITEM_NOT_FOUND", 404)
    await refused(engine.dead_letters.history("nope"), "DLQ_ITEM_NOT_FOUND", 404)
