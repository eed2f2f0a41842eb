"""The Change of one move: row, log and dead letter after it, and the counters of each contract."""

import json
from dataclasses import replace

import pytest

from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import Contract, Edge, Move, Phase
from detent.core.decide import add_move, create, decide, request_cancel
from detent.core.errors import IllegalMove
from detent.core.job import DEAD_LETTER, TASK, Facts, Failure, Wait
from detent.core.outcome import after_failure
from detent.core.times import SECOND
from support.contracts.job_history import (
    CLAIM,
    LEASE,
    NAMES,
    NOW,
    JobHistory,
    blank,
    claimed,
    created,
    job_in_status,
    running,
)
from support.contracts.lamp import cooling_lamp, lamp

ERROR = {name: "TASK_EXECUTION_FAILED" if name == "men" else "X" for name in NAMES}


# contract, executions in all, the visible counter, its value after the last failure, where the job ends
COUNTED = [
    ("gate-b2", 4, "retry_count", 3, "failed"),
    ("men", 3, "attempt", 3, "failed"),
    ("p3c", 4, "attempt", 1, "failed"),
    ("streams", 4, "retry_count", 4, "failed"),
    ("formal", 3, None, None, "Failed"),
    ("standard", 4, None, None, "failed"),
]


@pytest.mark.parametrize("name, executions, counter, last, end", COUNTED)
def test_executions_and_the_visible_counter(name, executions, counter, last, end):
    history = JobHistory(name)
    assert history.fail_until_final(ERROR[name]) == executions
    assert (history.job.status, history.job.execution_no, history.job.failures) == (end, executions, executions)
    if counter:
        assert history.view()[counter] == last


COUNTS_ON_THE_WAY = {
    "gate-b2": ("retry_count", [0, 0, 1, 1, 2, 2, 3, 3, 3]),
    "men": ("attempt", [1, 1, 2, 2, 3, 3, 3]),
    "p3c": ("attempt", [1] * 9),
    "streams": ("retry_count", [0, 0, 1, 1, 2, 2, 3, 3, 4]),
}


@pytest.mark.parametrize("name", COUNTS_ON_THE_WAY)
def test_the_visible_counter_after_every_step(name):
    counter, expected = COUNTS_ON_THE_WAY[name]
    history = JobHistory(name)
    history.fail_until_final(ERROR[name])
    assert [history.contract.view(change.after)[counter] for change in history.changes][: len(expected)] == expected


@pytest.mark.parametrize("max_retries", [0, 1, 5])
@pytest.mark.parametrize("name", ["men", "p3c", "streams", "formal", "standard"])
def test_executions_are_one_and_max_retries(name, max_retries):
    assert JobHistory(name, max_retries=max_retries).fail_until_final(ERROR[name]) == 1 + max_retries


@pytest.mark.parametrize("name", NAMES)
def test_a_permanent_error_is_not_retried(name):
    history = JobHistory(name)
    history.move(Move.CLAIM)
    change = history.fail(ERROR[name], retryable=False)
    assert change.after.phase is Phase.FINAL
    assert change.after.error_code == ERROR[name]
    assert (change.after.execution_no, change.after.failures, change.after.retries) == (1, 1, 0)


@pytest.mark.parametrize(
    "name, events",
    [
        ("gate-b2", ["job.dlq_pending", "job.dlq_recorded", "job.failed"]),
        ("standard", ["job.failing", "job.dead_lettered", "job.failed"]),
    ],
)
def test_follow_ups_are_in_the_same_change(name, events):
    job = running(CONTRACTS[name])
    change = decide(CONTRACTS[name], job, Move.FAIL, NOW + 5, Facts(dlq_id="d", failure=Failure("X", "why", "E")))
    assert [event.event for event in change.events] == events
    assert [event.seq for event in change.events] == [job.version + n for n in (1, 2, 3)]
    assert [event.at for event in change.events] == [NOW + 5] * 3
    assert [event.source for event in change.events] == ["running", "dlq_pending", "dlq_recorded"]
    assert (change.after.status, change.after.version) == ("failed", job.version + 3)
    assert [(event.data or {}).get("error_code") for event in change.events] == ["X", None, None]


def test_the_dead_letter_of_gate_b2():
    history = JobHistory("gate-b2", payload='{"n": 1}')
    history.fail_until_final("HTTP_503")
    item = history.changes[-1].dead_letter
    assert item == replace(
        item,
        id="dlq-1",
        job_id="job-1",
        tenant_id="acme",
        contract="gate-b2",
        job_type="mail",
        queue="default",
        error_code="HTTP_503",
        error_message="broke",
        payload='{"n": 1}',
        retries=3,
        status="open",
        created_at=history.now,
        updated_at=history.now,
        requeued_as=None,
        proposed_by=None,
    )
    assert json.loads(item.context) == {"trace_id": "trace-1", "execution_no": 4, "reason": None}
    assert history.job.dlq_id == "dlq-1"
    assert [change.dead_letter for change in history.changes[:-1]] == [None] * (len(history.changes) - 1)


def test_the_dead_letter_keeps_the_class_of_the_error():
    job = running(CONTRACTS["gate-b2"])
    failure = Failure("X", "x", "ValueError", retryable=False)
    change = after_failure(CONTRACTS["gate-b2"], job, failure, NOW, Facts(dlq_id="d"))
    assert (change.dead_letter.error_class, change.dead_letter.retries) == ("ValueError", 0)


def test_streams_notes_its_dead_letter_with_retry_count_4():
    history = JobHistory("streams")
    history.fail_until_final()
    (note,) = history.changes[-1].notes
    assert note.name == "task.dlq"
    assert note.data == {"dlq_id": "dlq-1", "retry_count": 4, "error_code": "X"}
    assert note.seq == history.job.version == history.events[-1].seq


def test_the_dead_letter_of_streams_carries_4():
    history = JobHistory("streams")
    history.fail_until_final()
    assert history.changes[-1].dead_letter.retries == 4


@pytest.mark.parametrize("name", ["men", "p3c", "formal"])
def test_contracts_without_dead_letters_write_none(name):
    history = JobHistory(name)
    history.fail_until_final(ERROR[name])
    assert history.changes[-1].dead_letter is None
    assert history.job.dlq_id is None


@pytest.mark.parametrize("name, status", [("gate-b2", "retrying"), ("standard", "retrying")])
def test_failing_a_waiting_retry_writes_a_dead_letter(name, status):
    history = JobHistory(name)
    history.move(Move.CLAIM)
    history.fail()
    assert history.job.status == status
    change = history.move(Move.FAIL, reason="not needed", actor="ann")
    assert change.dead_letter.error_message == "not needed"
    assert (change.after.status, change.after.failures, change.after.next_retry_at) == ("failed", 1, None)


@pytest.mark.parametrize("name", NAMES)
def test_next_retry_at_is_set_exactly_in_the_retry_status(name):
    retry_status = {"gate-b2": "retrying", "p3c": "retry_scheduled", "standard": "retrying"}.get(name)
    history = JobHistory(name)
    history.fail_until_final(ERROR[name])
    seen = set()
    for change in history.changes:
        assert (change.after.next_retry_at is not None) == (change.after.status == retry_status)
        assert change.after.next_retry_at in (None, change.after.due_at)
        seen.add(change.after.status)
    assert retry_status is None or retry_status in seen


def test_a_retry_in_a_blocked_status_has_a_due_time():
    lamp = cooling_lamp()
    job = running(lamp)
    after = after_failure(lamp, job, Failure("X", "x"), NOW, Facts()).after
    assert after.status == "cold"
    assert after.due_at == NOW + 10_000
    assert after.next_retry_at == after.due_at


@pytest.mark.parametrize("name", NAMES)
def test_event_times_never_decrease(name):
    contract = CONTRACTS[name]
    first = created(contract)
    job = first.after
    times = [event.at for event in first.events]
    for move, now in ((Move.CLAIM, NOW - 5 * SECOND), (Move.SUCCEED, NOW - 9 * SECOND)):
        change = decide(contract, job, move, now, CLAIM)
        times += [event.at for event in change.events]
        job = change.after
    assert times == [NOW] * len(times)
    assert job.updated_at == job.finished_at == NOW


def test_a_lease_starts_at_the_later_of_clock_and_row():
    gate = CONTRACTS["gate-b2"]
    job = claimed(gate, created(gate).after, now=NOW - 3 * SECOND)
    assert job.lease_until == NOW + LEASE


LEAVING = [(name, edge) for name in NAMES for edge in CONTRACTS[name].edges if edge.move and edge.source]


@pytest.mark.parametrize("name, edge", LEAVING, ids=str)
def test_only_a_leased_job_has_a_worker_and_a_lease(name, edge):
    contract = CONTRACTS[name]
    leased = contract.statuses[edge.source] is Phase.LEASED
    job = job_in_status(
        contract, edge.source, **({"token": "t0", "worker": "w0", "lease_until": NOW} if leased else {})
    )
    after = decide(contract, job, edge.move, NOW, replace(CLAIM, dlq_id="d")).after
    expected = ("w1", NOW + LEASE) if after.phase is Phase.LEASED else (None, None)
    assert (after.worker, after.lease_until) == expected
    assert after.ready == (after.phase is Phase.CLAIMABLE)
    assert (after.finished_at is not None) == (after.phase is Phase.FINAL)
    assert after.phase is contract.statuses[after.status]


@pytest.mark.parametrize("name", NAMES)
def test_the_token_outlives_the_lease_until_the_next_claim(name):
    """So that a repeated settle is recognised. A job is held only if its phase is leased and the token matches."""
    history = JobHistory(name)
    first = history.move(Move.CLAIM).after.token
    history.fail(ERROR[name])
    assert (history.job.token, history.job.worker, history.job.lease_until) == (first, None, None)
    assert history.move(Move.CLAIM).after.token not in (None, first)


def test_decide_is_pure():
    job = running(CONTRACTS["standard"])
    before = replace(job)
    facts = Facts(dlq_id="d", failure=Failure("X", "x"), data={"k": 1})
    first = decide(CONTRACTS["standard"], job, Move.FAIL, NOW, facts)
    assert first == decide(CONTRACTS["standard"], job, Move.FAIL, NOW, facts)
    assert job == before
    assert facts.data == {"k": 1}


def test_every_event_raises_the_version_by_one():
    history = JobHistory("standard")
    history.fail_until_final()
    assert [event.seq for event in history.events] == list(range(1, history.job.version + 1))


def test_a_second_move_in_the_same_commit_keeps_what_the_first_one_said():
    streams = CONTRACTS["streams"]
    first = create(streams, blank(streams), Move.HOLD, NOW, Facts(actor="guard"))
    held = replace(first.after)
    both = add_move(streams, first, Move.WAKE, NOW + 1, Facts(actor="ann"))
    assert (both.before, both.after.status, both.after.version) == (None, "queued", 2)
    assert [event.event for event in both.events] == ["task.created", "approval.approved"]
    assert [note.name for note in both.notes] == ["approval.requested"]
    assert first.after == held


def test_reopen_is_the_same_job_with_a_fresh_budget():
    history = JobHistory("formal")
    assert history.fail_until_final() == 3
    after = history.move(Move.REOPEN, actor="ann", reason="fixed").after
    assert (after.id, after.status, after.due_at, after.ready) == ("job-1", "Queued", history.now, True)
    assert (after.failures, after.retries, after.interruptions) == (0, 0, 0)
    assert (after.error_code, after.error_message, after.finished_at) == (None, None, None)
    assert history.fail_until_final() == 3
    assert history.job.execution_no == 6


def test_only_formal_can_reopen():
    assert [n for n in NAMES if any(e.move is Move.REOPEN for e in CONTRACTS[n].edges)] == ["formal"]


def test_success_keeps_the_result_and_forgets_the_errors():
    history = JobHistory("gate-b2")
    history.move(Move.CLAIM)
    history.fail("X")
    history.move(Move.CLAIM)
    after = history.move(Move.SUCCEED, result='"ok"').after
    assert (after.result, after.error_code, after.error_message, after.retries) == ('"ok"', None, None, 1)


def test_started_at_is_the_first_start():
    history = JobHistory("gate-b2")
    history.move(Move.CLAIM)
    first = history.job.started_at
    history.fail()
    history.move(Move.CLAIM)
    assert history.job.started_at == first == NOW + SECOND


def test_waiting_keeps_what_is_awaited_until_it_ends():
    formal = CONTRACTS["formal"]
    wait = Wait("order-7", "webhook", timeout=5 * SECOND, park=True)
    change = decide(formal, running(formal), Move.WAIT, NOW, Facts(wait=wait))
    after = change.after
    assert (after.wait_name, after.wait_kind, after.wait_parked) == ("order-7", "webhook", True)
    assert (after.due_at, after.ready) == (NOW + 5 * SECOND, False)
    data = change.events[0].data
    assert (data["correlation_key"], data["wait_type"], data["park"]) == ("order-7", "webhook", True)
    woken = decide(formal, after, Move.WAKE, NOW + 1, Facts()).after
    assert (woken.wait_name, woken.wait_kind, woken.wait_parked) == (None, None, False)
    assert (woken.due_at, woken.ready) == (NOW + 1, True)
    assert decide(formal, after, Move.CANCEL, NOW, Facts()).after.due_at is None


def test_men_due_now_is_woken_in_the_commit_that_creates_it():
    change = created(CONTRACTS["men"])
    assert [(e.source, e.target, e.seq) for e in change.events] == [
        (None, "pending", 1),
        ("pending", "ready", 2),
    ]
    assert (change.before, change.after.status, change.after.ready) == (None, "ready", True)


def test_men_due_later_stays_pending():
    men = CONTRACTS["men"]
    change = create(men, blank(men), Move.SUBMIT, NOW, Facts(due_at=NOW + 1))
    assert [event.target for event in change.events] == ["pending"]
    assert (change.after.due_at, change.after.ready) == (NOW + 1, False)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "men"])
def test_submit_with_a_later_due_time_is_not_ready(name):
    contract = CONTRACTS[name]
    after = create(contract, blank(contract), Move.SUBMIT, NOW, Facts(due_at=NOW + 9)).after
    assert (after.due_at, after.ready, after.version) == (NOW + 9, False, 1)


@pytest.mark.parametrize("name", ["streams", "standard"])
def test_holding_a_new_job_notes_the_approval_request(name):
    contract = CONTRACTS[name]
    change = create(contract, blank(contract), Move.HOLD, NOW, Facts(actor="guard", reason="risky"))
    (note,) = change.notes
    assert (note.name, note.actor, note.data) == ("approval.requested", "guard", {"reason": "risky"})
    assert (note.seq, change.after.version) == (1, 1)
    assert (change.after.status, change.after.due_at) == ("waiting_approval", None)


def test_claimable_tasks_and_dead_letters_of_a_stream_contract_are_published():
    history = JobHistory("streams", max_retries=1)
    assert history.changes[-1].outbox_item == TASK
    assert history.move(Move.CLAIM).outbox_item is None
    assert history.fail().outbox_item == TASK
    history.move(Move.CLAIM)
    assert history.fail().outbox_item == DEAD_LETTER
    plain = JobHistory("standard", max_retries=0)
    plain.move(Move.CLAIM)
    assert [change.outbox_item for change in (*plain.changes, plain.fail())] == [None] * 3


def test_the_change_names_the_move_that_ended_the_job():
    history = JobHistory("standard")
    assert [history.move(move).ended for move in (Move.CLAIM, Move.RETRY, Move.CANCEL)] == [None, None, Move.CANCEL]


def test_the_log_of_a_new_job_starts_at_one():
    change = create(CONTRACTS["standard"], blank(CONTRACTS["standard"], version=7), Move.SUBMIT, NOW, Facts())
    assert (change.after.version, change.events[0].seq) == (1, 1)


def blocking_lamp() -> Contract:
    """A lamp that waits after a failure, until it is cancelled."""
    edges = [edge for edge in lamp().edges if edge.move is not Move.FAIL]
    failed = [Edge(Move.FAIL, source, "lamp.burnt", "cold") for source in ("on", "off")]
    return lamp(edges=(*edges, *failed, Edge(Move.CANCEL, "cold", "lamp.binned", "broken")))


def test_a_cancel_in_the_commit_of_a_failure_keeps_the_failure_and_its_dead_letter():
    contract = blocking_lamp()
    failure = Failure("BURNT", "too hot")
    failed = decide(contract, running(contract), Move.FAIL, NOW, Facts(failure=failure, dlq_id="dlq-1"))
    failed.lease_lost = True
    both = add_move(contract, failed, Move.CANCEL, NOW, Facts(actor="ann"))
    assert (both.failure, both.lease_lost, both.ended) == (failure, True, Move.CANCEL)
    assert both.dead_letter is failed.dead_letter is not None


def test_a_job_that_is_blocked_or_has_ended_is_not_ready():
    lamp_off = created(blocking_lamp()).after
    blocked = decide(blocking_lamp(), lamp_off, Move.FAIL, NOW, Facts(dlq_id="dlq-1")).after
    assert (lamp_off.ready, blocked.phase, blocked.ready) == (True, Phase.BLOCKED, False)
    history = JobHistory("standard")
    assert history.job.ready
    assert not history.move(Move.CANCEL).after.ready


def test_a_cancelled_job_is_no_longer_parked():
    history = JobHistory("standard")
    history.move(Move.CLAIM)
    parked = history.move(Move.PARK, wait=Wait("paid", park=True)).after
    assert (parked.wait_parked, parked.wait_name, parked.due_at) == (True, "paid", None)
    after = history.move(Move.CANCEL).after
    assert (after.wait_parked, after.wait_name) == (False, None)


def test_a_requested_cancel_says_who_when_and_why_and_counts_once():
    job = running(CONTRACTS["standard"])
    change = request_cancel(job, NOW + 5, "ann", "übrig")
    assert json.loads(change.after.cancel_requested) == {"actor": "ann", "reason": "übrig", "at": NOW + 5}
    assert [(note.name, note.actor, note.data) for note in change.notes] == [
        ("cancel.requested", "ann", {"reason": "übrig"})
    ]
    again = request_cancel(change.after, NOW + 9, "bob", None)
    assert (again.after, again.notes) == (change.after, [])


def test_a_refused_move_names_what_is_allowed():
    history = JobHistory("standard")
    with pytest.raises(IllegalMove, match=r"allowed moves: CLAIM, CANCEL$"):
        history.move(Move.SUCCEED)
    history.move(Move.CANCEL)
    with pytest.raises(IllegalMove, match=r"SUCCEED is not allowed .* status cancelled; allowed moves: none$"):
        history.move(Move.SUCCEED)


def test_a_claim_without_a_lease_time_is_over_at_once():
    standard = CONTRACTS["standard"]
    assert decide(standard, created(standard).after, Move.CLAIM, NOW, Facts(worker="w")).after.lease_until == NOW


def test_the_first_failure_stays_the_first():
    history = JobHistory("standard", max_retries=1)
    history.move(Move.CLAIM)
    first = history.fail().after.first_failed_at
    assert first == history.now
    history.move(Move.CLAIM)
    last = history.fail()
    assert last.after.first_failed_at == last.dead_letter.first_failed_at == first < history.now
    assert history.job.error_counts is None, "only capped codes are counted"


def test_an_event_has_a_due_time_only_if_the_job_is_due_later():
    standard = CONTRACTS["standard"]
    later = create(standard, blank(standard), Move.SUBMIT, NOW, Facts(due_at=NOW + SECOND))
    assert later.events[0].data == {"due_at": NOW + SECOND}
    history = JobHistory("standard")
    assert history.events[0].data is None
    assert history.move(Move.CLAIM).events[0].data is None
    assert history.move(Move.RETRY, delay=7).events[0].data == {"due_at": history.now + 7}


def test_the_event_of_a_failure_has_its_class_and_traceback():
    history = JobHistory("standard")
    history.move(Move.CLAIM)
    data = history.fail(error_class="ValueError", traceback="line 1").events[0].data
    assert {name: data[name] for name in data if name != "due_at"} == {
        "error_code": "X",
        "error_message": "broke",
        "error_class": "ValueError",
        "traceback": "line 1",
        "charged": True,
    }
    history.move(Move.CLAIM)
    assert history.fail().events[0].data.keys() == {"due_at", "error_code", "error_message", "charged"}


def test_a_dead_letter_keeps_its_reason_as_it_was_written():
    streams = CONTRACTS["streams"]
    facts = Facts(worker="w1", reason="Müll", dlq_id="dlq-1")
    change = decide(streams, running(streams), Move.FAIL, NOW, facts)
    assert change.dead_letter.context == '{"trace_id": "trace-1", "execution_no": 1, "reason": "Müll"}'
    assert [note.actor for note in change.notes] == ["w1"], "without a person, the worker"
