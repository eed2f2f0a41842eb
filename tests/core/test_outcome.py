"""Lost and stopped workers, exhausted retries, caps: the status, the counters and the final code of a job."""

import pytest

from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import LossRule, Move, Phase
from detent.core.job import Facts, Failure
from detent.core.outcome import (
    NotBound,
    after_failure,
    after_loss,
    after_not_bound,
    after_reclaim,
    after_stop,
    after_timeout,
    fail_after_interruptions,
    timed_out,
)
from detent.core.retry import Immediate, Origin, RetryRule
from detent.core.times import SECOND
from support.contracts.job_history import NOW, JobHistory, running

MEN = CONTRACTS["men"]

# contract, charged, status after a loss, error code on the row, reason in the log
LOST = [
    ("gate-b2", True, "retrying", "WORKER_LOST"),
    ("men", True, "ready", "TASK_TIMEOUT"),
    ("p3c", False, "interrupted", "PROCESS_RESTARTED"),
    ("streams", False, "running", "WORKER_LOST"),
    ("formal", True, "Queued", "WORKER_LOST"),
    ("standard", True, "interrupted", "WORKER_LOST"),
]


@pytest.mark.parametrize("name, charged, status, code", LOST)
def test_a_lost_worker(name, charged, status, code):
    history = JobHistory(name)
    history.move(Move.CLAIM)
    change = history.apply_rule(after_loss)
    assert (change.after.status, change.after.failures) == (status, int(charged))
    assert change.after.error_code == code
    assert change.events[0].data["reason"] == "lease_expired"
    assert change.after.interruptions == (0 if charged else 1)
    if name in ("formal", "standard", "men"):
        assert change.after.due_at == history.now
    if name == "streams":
        assert (change.after.token, change.after.worker, change.after.execution_no) == ("t-new", "w2", 2)


@pytest.mark.parametrize("name, executions", [("gate-b2", 4), ("men", 3), ("formal", 3), ("standard", 4)])
def test_a_job_that_loses_every_worker_fails(name, executions):
    history = JobHistory(name)
    for _ in range(executions):
        history.move(Move.CLAIM)
        history.apply_rule(after_loss)
    assert history.job.status.lower() == "failed"
    assert [change.after.phase for change in history.changes[:-1]].count(Phase.FINAL) == 0
    assert (history.changes[-1].dead_letter is not None) == (name in ("gate-b2", "standard"))


@pytest.mark.parametrize("name, again", [("p3c", Move.CLAIM), ("streams", None)])
def test_an_uncharged_loss_uses_up_no_retry(name, again):
    history = JobHistory(name)
    history.move(Move.CLAIM)
    for _ in range(8):
        history.apply_rule(after_loss)
        if again:
            history.move(again)
    assert (history.job.failures, history.job.retries, history.job.interruptions) == (0, 0, 8)
    history.fail()
    assert history.fail_until_final() == 3


# contract, charged, status after a shutdown, event
STOPPED = [
    ("gate-b2", True, "retrying", "job.retrying"),
    ("men", True, "ready", "task.ready"),
    ("p3c", False, "interrupted", "process_restart"),
    ("formal", False, "Queued", "job_requeued"),
    ("standard", False, "queued", "job.released"),
]


@pytest.mark.parametrize("name, charged, status, event", STOPPED)
def test_a_worker_that_shuts_down(name, charged, status, event):
    history = JobHistory(name)
    history.move(Move.CLAIM)
    change = history.apply_rule(after_stop)
    assert (change.after.status, change.after.failures) == (status, int(charged))
    assert [e.event for e in change.events] == [event]
    stopped = {"gate-b2": "WORKER_STOPPED", "men": "TASK_EXECUTION_FAILED", "p3c": "PROCESS_RESTARTED"}.get(name)
    assert change.after.error_code == stopped
    assert change.events[0].data["reason"] == "worker_stopped"


def test_streams_leaves_the_message_for_reclaim_when_its_worker_stops():
    job = running(CONTRACTS["streams"])
    assert after_stop(CONTRACTS["streams"], job, NOW, Facts()) is None


@pytest.mark.parametrize("code", ["TASK_TIMEOUT", "TASK_EXECUTION_FAILED"])
def test_men_exhausted_has_its_own_code_and_keeps_the_cause(code):
    history = JobHistory("men")
    assert history.fail_until_final(code) == 3
    view = history.view()
    assert (view["state"], view["attempt"]) == ("failed", 3)
    assert view["last_error_code"] == "TASK_RETRY_EXHAUSTED"
    assert code in view["last_error_reason"]
    assert "broke" in view["last_error_reason"]
    assert history.events[-1].data["error_code"] == "TASK_RETRY_EXHAUSTED"


@pytest.mark.parametrize("code", ["TASK_TIMEOUT", "TASK_EXECUTION_FAILED"])
def test_men_without_retries_is_exhausted_at_the_first_failure(code):
    history = JobHistory("men", max_retries=0)
    assert history.fail_until_final(code) == 1
    assert (history.view()["attempt"], history.job.error_code) == (1, "TASK_RETRY_EXHAUSTED")


@pytest.mark.parametrize("failure", [Failure("CARD_DECLINED", "no"), Failure("TASK_TIMEOUT", "no", retryable=False)])
def test_men_not_retryable_fails_with_its_own_code(failure):
    after = after_failure(MEN, running(MEN), failure, NOW, Facts()).after
    assert (after.status, after.error_code, after.error_message) == ("failed", failure.code, "no")


def test_men_not_retryable_at_the_last_attempt_still_has_its_own_code():
    after = after_failure(MEN, running(MEN, max_retries=0), Failure("CARD_DECLINED", "no"), NOW, Facts()).after
    assert after.error_code == "CARD_DECLINED"


def test_men_lost_at_the_last_attempt_is_exhausted():
    history = JobHistory("men", max_retries=0)
    history.move(Move.CLAIM)
    history.apply_rule(after_loss)
    assert (history.job.status, history.job.error_code) == ("failed", "TASK_RETRY_EXHAUSTED")
    assert "TASK_TIMEOUT" in history.job.error_message


def test_men_lost_before_the_last_attempt_is_a_timeout():
    history = JobHistory("men")
    history.move(Move.CLAIM)
    change = history.apply_rule(after_loss)
    assert change.events[0].data["error_code"] == "TASK_TIMEOUT"
    assert history.view()["attempt"] == 2


def test_men_exhausted_keeps_its_code_when_the_error_is_capped_as_well():
    retry = RetryRule(Immediate(), max_retries=2, only_codes=MEN.retry.only_codes, caps={"TASK_TIMEOUT": 2})
    history = JobHistory(MEN.with_options(retry=retry))
    assert history.fail_until_final("TASK_TIMEOUT") == 3
    assert history.job.error_code == "TASK_RETRY_EXHAUSTED"


@pytest.mark.parametrize("name", ["gate-b2", "p3c", "streams", "formal", "standard"])
def test_in_other_contracts_the_last_error_keeps_its_code(name):
    history = JobHistory(name)
    history.fail_until_final("HTTP_503")
    assert (history.job.error_code, history.job.error_message) == ("HTTP_503", "broke")


def test_p3c_without_retries_left_is_a_non_retryable_error():
    history = JobHistory("p3c")
    history.fail_until_final("HTTP_503")
    last = history.events[-1]
    assert (last.event, last.data["error_code"]) == ("non_retryable_error", "HTTP_503")


def with_max_interruptions(limit, name="p3c"):
    contract = CONTRACTS[name]
    return JobHistory(contract.with_options(loss=LossRule(contract.loss.move, False, max_interruptions=limit)))


@pytest.mark.parametrize("limit", [1, 2])
@pytest.mark.parametrize("rule", [after_loss, after_stop])
def test_p3c_interrupted_once_too_often_is_aborted(limit, rule):
    history = with_max_interruptions(limit)
    for _ in range(limit):
        history.move(Move.CLAIM)
        assert history.apply_rule(rule).after.status == "interrupted"
    history.move(Move.CLAIM)
    version = history.job.version
    change = history.apply_rule(rule)
    assert [e.event for e in change.events] == ["process_restart", "recovery_abort"]
    assert [e.seq for e in change.events] == [version + 1, version + 2]
    assert (change.before.status, change.before.version) == ("running", version)
    assert (change.after.status, change.after.error_code) == ("failed", "PROCESS_RESTARTED")
    assert change.after.failures == 0


@pytest.mark.parametrize("name", ["p3c", "streams"])
def test_uncharged_losses_are_limited_by_default(name):
    assert CONTRACTS[name].loss.max_interruptions == 8


def test_zero_is_no_limit_of_interruptions():
    history = with_max_interruptions(0)
    for _ in range(20):
        history.move(Move.CLAIM)
        assert history.apply_rule(after_loss).after.status == "interrupted"


def test_streams_becomes_a_dead_letter_after_too_many_deliveries():
    history = with_max_interruptions(1, "streams")
    history.move(Move.CLAIM)
    assert history.apply_rule(after_loss).after.status == "running"
    change = history.apply_rule(after_loss)
    assert [e.event for e in change.events] == ["task.reclaimed", "task.failed"]
    assert change.dead_letter is not None
    assert [note.name for note in change.notes] == ["task.dlq"]


def test_streams_failed_without_an_error_has_the_retry_count_of_its_row():
    history = with_max_interruptions(1, "streams")
    history.move(Move.CLAIM)
    history.apply_rule(after_loss)
    change = history.apply_rule(after_loss)
    envelope = history.contract.envelope(change.after, change.events[-1])
    assert (envelope["retry_count"], history.view()["retry_count"]) == (0, 0)


def test_recovery_abort_by_a_person():
    history = JobHistory("p3c")
    history.move(Move.CLAIM)
    history.apply_rule(after_loss)
    change = history.move(Move.FAIL, actor="ann", reason="enough")
    assert [(e.event, e.actor) for e in change.events] == [("recovery_abort", "ann")]
    assert change.after.status == "failed"


def test_caps_per_error_code():
    contract = CONTRACTS["standard"].with_options(retry=RetryRule(Immediate(), max_retries=9, caps={"A": 2, "B": 0}))
    history = JobHistory(contract, max_retries=9)
    assert history.fail_until_final("A") == 3
    assert JobHistory(contract, max_retries=9).fail_until_final("B") == 1
    assert JobHistory(contract, max_retries=9).fail_until_final("C") == 10


def test_caps_count_lost_workers_too():
    contract = CONTRACTS["standard"].with_options(retry=RetryRule(max_retries=9, caps={"WORKER_LOST": 1}))
    history = JobHistory(contract, max_retries=9)
    history.move(Move.CLAIM)
    assert history.apply_rule(after_loss).after.status == "interrupted"
    history.move(Move.CLAIM)
    assert history.apply_rule(after_loss).after.status == "failed"


def test_losses_and_failures_share_one_budget():
    history = JobHistory("standard")
    for step in (history.fail, lambda: history.apply_rule(after_loss), history.fail):
        history.move(Move.CLAIM)
        assert step().after.status in ("retrying", "interrupted")
    history.move(Move.CLAIM)
    assert history.apply_rule(after_loss).after.status == "failed"


def test_a_failure_without_a_code_has_the_code_of_the_contract():
    history = JobHistory("standard")
    history.move(Move.CLAIM)
    assert history.fail("").after.error_code == "JOB_EXECUTION_FAILED"


@pytest.mark.parametrize(
    "origin, retryable, status",
    [
        (Origin.FAIL, None, "failed"),
        (Origin.FAIL, True, "retrying"),
        (Origin.REPORT, None, "retrying"),
        (Origin.REPORT, False, "failed"),
    ],
)
def test_a_handler_that_fails_on_purpose_is_retried_only_if_it_says_so(origin, retryable, status):
    history = JobHistory("standard")
    history.move(Move.CLAIM)
    assert history.fail(origin=origin, retryable=retryable).after.status == status


def test_each_capped_code_has_its_own_count():
    contract = CONTRACTS["standard"].with_options(retry={"caps": {"A": 1, "B": 1}})
    history = JobHistory(contract)
    statuses = []
    for code in ("A", "B", "A"):
        history.move(Move.CLAIM)
        statuses.append(history.fail(code).after.status)
    assert statuses == ["retrying", "retrying", "failed"]


def test_an_execution_times_out_after_its_time_unless_its_lease_ended_before():
    job = running(CONTRACTS["standard"], timeout_ms=2_500)
    end = NOW + 2_500_000
    assert [timed_out(job, now) for now in (end - 1, end, end + 1)] == [False, False, True]
    job.lease_until = end
    assert timed_out(job, end + 1)
    for lease_until in (end - 1, None):
        job.lease_until = lease_until
        assert not timed_out(job, end + 1), "its worker was lost"


def test_a_timeout_is_a_failure_with_its_own_code():
    job = running(CONTRACTS["standard"], timeout_ms=2_500)
    job.losses = 2
    change = after_timeout(CONTRACTS["standard"], job, NOW, Facts(dlq_id="d"))
    assert (change.after.error_code, change.after.losses) == ("JOB_TIMEOUT", 2)
    assert change.after.error_message == "the execution took longer than its timeout of 2.5 s"
    assert change.events[0].data["reason"] == "execution_timeout"
    job.timeout_ms = None
    assert "timeout of 0 s" in after_timeout(CONTRACTS["standard"], job, NOW, Facts()).after.error_message


def test_a_loss_is_counted_until_the_job_ends_and_marks_the_lease_as_lost():
    history = JobHistory("standard")
    for losses in (1, 2):
        history.move(Move.CLAIM)
        change = history.apply_rule(after_loss)
        assert (change.after.losses, change.lease_lost) == (losses, True)


NOT_BOUND = NotBound(Failure("PAYLOAD_INVALID", "no such field"), 60 * SECOND)


def hand_back(contract, handed_back=(), now=NOW, jitter=lambda job_id, number, upper: 0, outcome=NOT_BOUND):
    job = running(CONTRACTS[contract])
    return after_not_bound(CONTRACTS[contract], job, outcome, handed_back, now, Facts(actor="w1", dlq_id="d"), jitter)


def test_a_payload_that_a_worker_cannot_bind_is_handed_to_other_workers():
    change = hand_back("standard")
    after, note = change.after, change.notes[0]
    assert (after.status, after.due_at, after.failures) == ("queued", NOW + SECOND, 0)
    assert change.events[0].data["reason"] == "handed_back"
    assert (note.name, note.actor) == ("job.handed_back", "w1")
    failure = {"error_code": "PAYLOAD_INVALID", "error_message": "no such field"}
    assert note.data == {**failure, "give_up_at": NOW + 60 * SECOND}


def test_hand_backs_slow_down_and_end_with_the_failure():
    begin = NOW - 20 * SECOND
    delays = [hand_back("standard", [begin, *[NOW] * n]).after.due_at - NOW for n in range(5)]
    assert delays == [2 * SECOND, 4 * SECOND, 8 * SECOND, 10 * SECOND, 10 * SECOND]
    assert hand_back("standard", [begin, NOW]).notes[0].data["give_up_at"] == begin + 60 * SECOND
    last = hand_back("standard", [NOW - 60 * SECOND + 1])
    assert (last.after.status, last.after.due_at) == ("queued", NOW + 1), "not later than the end"
    assert hand_back("standard", [NOW - 60 * SECOND]).after.status == "failed"
    assert hand_back("standard", outcome=NotBound(NOT_BOUND.failure, 0)).after.status == "failed"
    assert hand_back("gate-b2").after.status in ("retrying", "failed"), "a contract without RELEASE"


def test_hand_backs_are_spread_by_the_job_and_their_number():
    drawn = []
    for handed_back in ([], [NOW]):
        change = hand_back("standard", handed_back, jitter=lambda *values: drawn.append(values) or 7)
        assert change.after.due_at == NOW + SECOND * (1 + len(handed_back)) + 7
    assert drawn == [("job-1", 1, SECOND // 2), ("job-1", 2, SECOND)]


def test_a_reclaimed_job_names_both_workers_and_costs_no_retry():
    streams = CONTRACTS["streams"]
    job = running(streams)
    change = after_reclaim(streams, job, NOW, "w2", "t2", 5 * SECOND, new_message_id="t2")
    after = change.after
    assert change.events[0].data == {
        "old_consumer": "w1", "new_consumer": "w2", "message_id": "t1", "new_message_id": "t2",
    }  # fmt: skip
    assert (after.worker, after.token, after.lease_until) == ("w2", "t2", NOW + 5 * SECOND)
    assert (after.interruptions, after.losses, after.failures, change.lease_lost) == (1, 1, 0, True)
    job.interruptions = 99
    reclaimed = after_reclaim(streams, job, NOW, "w2", "t2", 5 * SECOND)
    failed = fail_after_interruptions(streams, reclaimed, NOW, Facts(actor="w2", charged=False, dlq_id="d"))
    assert (failed.after.status, failed.lease_lost) == ("failed", True)
