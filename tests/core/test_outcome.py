"""Lost and stopped workers, exhausted retries, caps: the status, the counters and the final code of a job."""

import pytest

from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import LossRule, Move, Phase
from detent.core.job import Facts, Failure
from detent.core.outcome import after_failure, after_loss, after_stop
from detent.core.retry import Immediate, RetryRule
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
