"""Corners the machines led to, each kept as one plain example."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from detent.core.access import Scope
from detent.core.errors import DetentError, IdempotencyConflict
from detent.core.job import Failure, Wait
from detent.core.outcome import Failed, Succeeded, Waits
from detent.engine import Settlement, Submission
from detent.engine.jobs import MAX_SIGNALS
from detent.ports.claims import Claimed
from detent.ports.listing import Filter

from .places import PLACES, Place

BROKEN = Failed(Failure("BOOM", "it broke"))


TAKEN, NEW = (f"01900000-0000-7000-8000-{number:012d}" for number in (1, 2))


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    opened = PLACES[request.param]()
    yield opened
    opened.close()


def submit(place: Place, **submit_options: Any) -> str:
    return place.run(place.engine.jobs.submit(Submission(**{"job_type": "x", **submit_options}))).job.id


def claim(place: Place, limit: int = 10, **options: Any) -> list[Claimed]:
    return place.run(place.engine.claim(place.engine.claim_request("w", limit, 10.0, **options)))


def status(place: Place, job_id: str) -> str:
    return place.run(place.engine.jobs.get(job_id)).status


def settlement_of(job: Claimed, outcome: Any) -> Settlement:
    return Settlement(job.id, job.token, job.contract, outcome)


def test_a_reclaim_keeps_to_the_room_that_the_claim_left(place: Place) -> None:
    for _ in range(2):
        submit(place, contract="streams")
    assert len(claim(place)) == 2
    submit(place, contract="streams")
    place.clock.advance(11)
    assert len(claim(place, 2, reclaim=True)) == 2


def test_lost_jobs_of_other_types_do_not_hide_those_a_worker_can_take_over(place: Place) -> None:
    for job_type in ("theirs", "mine"):
        submit(place, contract="streams", job_type=job_type)
        claim(place)
        place.clock.advance(1)
    place.clock.advance(11)
    taken = claim(place, 1, reclaim=True, job_types=frozenset({"mine"}))
    assert [job.job_type for job in taken] == ["mine"]


def test_a_settlement_that_comes_twice_in_one_batch_does_not_stop_the_batch(place: Place) -> None:
    ids = [submit(place), submit(place)]
    first, second = claim(place)
    batch = [settlement_of(first, BROKEN), settlement_of(first, BROKEN), settlement_of(second, BROKEN)]
    assert place.run(place.engine.settle_and_claim(batch, None)).refused == {}
    assert {status(place, job_id) for job_id in ids} == {"retrying"}


def test_a_stale_success_leaves_no_result_behind_the_good_one(place: Place) -> None:
    job_id = submit(place)
    (old,) = claim(place)
    place.clock.advance(11)
    place.run(place.engine.expire())
    (new,) = claim(place)
    place.run(
        place.engine.settle_and_claim(
            [settlement_of(old, Succeeded('"stale"')), settlement_of(new, Succeeded(None))], None
        )
    )
    job = place.run(place.engine.jobs.get(job_id))
    assert (job.status, job.result) == ("succeeded", None)


def test_a_result_that_is_no_json_is_one_jobs_trouble(place: Place) -> None:
    submit(place), submit(place)
    bad, good = claim(place)
    answer = place.run(
        place.engine.settle_and_claim([settlement_of(bad, Succeeded("{")), settlement_of(good, Succeeded("{}"))], None)
    )
    assert set(answer.refused) == {bad.id} and isinstance(answer.refused[bad.id], DetentError)
    assert status(place, good.id) == "succeeded"


def test_a_task_can_be_found_by_the_task_id_it_was_given(place: Place) -> None:
    first = place.run(place.engine.jobs.submit(Submission("x", contract="men"))).job
    again = place.run(place.engine.jobs.submit(Submission("x", contract="men", task_id=first.task_id)))
    assert again.hit and again.job.id == first.id


def test_a_bulk_submit_is_all_or_none_also_when_an_id_is_taken(place: Place) -> None:
    submit(place, id=TAKEN)
    with pytest.raises(IdempotencyConflict):
        place.run(place.engine.jobs.submit_many([Submission("x", id=NEW), Submission("other", id=TAKEN)]))
    assert [job.id for job in place.run(place.engine.jobs.list(Filter()))] == [TAKEN]


def test_a_repeated_id_does_not_bind_another_key_to_the_job(place: Place) -> None:
    submit(place, id=TAKEN, idempotency_key="k1")
    with pytest.raises(DetentError):
        submit(place, id=TAKEN, idempotency_key="k2")
    assert submit(place, idempotency_key="k2") != TAKEN


def test_an_unknown_kind_of_pause_is_refused_with_a_code(place: Place) -> None:
    with pytest.raises(DetentError):
        place.run(place.engine.limits.pause("planet", "earth", Scope("ann")))


def test_a_transition_does_not_go_past_the_frozen_number_of_retries(place: Place) -> None:
    job_id = submit(place, contract="gate-b2")
    for _ in range(3):
        place.run(place.engine.jobs.transition(job_id, "running", Scope("ann")))
        place.run(place.engine.jobs.transition(job_id, "retrying", Scope("ann")))
    place.run(place.engine.jobs.transition(job_id, "running", Scope("ann")))
    with pytest.raises(DetentError):
        place.run(place.engine.jobs.transition(job_id, "retrying", Scope("ann")))


def test_a_job_may_be_held_twice_inside_its_handler(place: Place) -> None:
    job_id = submit(place)
    for _ in range(2):
        claim(place)
        place.run(place.engine.jobs.transition(job_id, "waiting_approval", Scope("ann")))
        assert place.run(place.engine.approvals.approve(job_id, Scope("bob"))).status == "queued"


def test_a_full_inbox_still_takes_the_signal_the_job_waits_for(place: Place) -> None:
    job_id = submit(place)
    for number in range(MAX_SIGNALS):
        place.run(place.engine.jobs.signal(job_id, f"early-{number}", Scope("test")))
    (job,) = claim(place)
    place.run(place.engine.settle(job.id, job.token, Waits(Wait("awaited"))))
    woken, news = place.run(place.engine.jobs.signal(job_id, "awaited", Scope("test")))
    assert news and woken.status == "queued"


def test_a_delay_asked_for_by_a_failure_does_not_lie_in_the_past(place: Place) -> None:
    submit(place)
    (job,) = claim(place)
    failure = Failure("BOOM", "it broke", after=-5_000_000)
    with suppress(DetentError):
        place.run(place.engine.settle(job.id, job.token, Failed(failure)))
    after = place.run(place.engine.jobs.get(job.id))
    assert after.phase == "leased" or (after.due_at or 0) >= place.clock.now()
