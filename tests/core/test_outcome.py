"""Lost and stopped workers, exhaustion, caps: where a job goes, what is charged, which code it ends with."""

import pytest

from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import LossRule, Move, Phase
from detent.core.job import Facts, Failure
from detent.core.outcome import after_failure, after_loss, after_stop
from detent.core.retry import Immediate, RetryRule

from .lives import NOW, Life, running

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
    life = Life(name)
    life.move(Move.CLAIM)
    change = life.by(after_loss)
    assert (change.after.status, change.after.failures) == (status, int(charged))
    assert change.after.error_code == code
    assert change.events[0].data["reason"] == "lease_expired"
    assert change.after.interruptions == (0 if charged else 1)
    if name in ("formal", "standard", "men"):
        assert change.after.due_at == life.now
    if name == "streams":
        assert (change.after.token, change.after.worker, change.after.execution_no) == ("t-new", "w2", 2)


@pytest.mark.parametrize("name, executions", [("gate-b2", 4), ("men", 3), ("formal", 3), ("standard", 4)])
def test_a_job_that_kills_its_workers_ends(name, executions):
    life = Life(name)
    for _ in range(executions):
        life.move(Move.CLAIM)
        life.by(after_loss)
    assert life.job.status.lower() == "failed"
    assert [change.after.phase for change in life.changes[:-1]].count(Phase.FINAL) == 0
    assert (life.changes[-1].dead_letter is not None) == (name in ("gate-b2", "standard"))


@pytest.mark.parametrize("name, again", [("p3c", Move.CLAIM), ("streams", None)])
def test_an_uncharged_loss_uses_up_no_retry(name, again):
    life = Life(name)
    life.move(Move.CLAIM)
    for _ in range(10):
        life.by(after_loss)
        if again:
            life.move(again)
    assert (life.job.failures, life.job.retries, life.job.interruptions) == (0, 0, 10)
    life.fail()
    assert life.fail_until_the_end() == 3


# contract, charged, status after a stop in good order, event
STOPPED = [
    ("gate-b2", True, "retrying", "job.retrying"),
    ("men", True, "ready", "task.ready"),
    ("p3c", False, "interrupted", "process_restart"),
    ("formal", False, "Queued", "job_requeued"),
    ("standard", False, "queued", "job.released"),
]


@pytest.mark.parametrize("name, charged, status, event", STOPPED)
def test_a_worker_that_stops_in_good_order(name, charged, status, event):
    life = Life(name)
    life.move(Move.CLAIM)
    change = life.by(after_stop)
    assert (change.after.status, change.after.failures) == (status, int(charged))
    assert [e.event for e in change.events] == [event]
    lost = {"gate-b2": "WORKER_LOST", "men": "TASK_TIMEOUT", "p3c": "PROCESS_RESTARTED"}.get(name)
    assert change.after.error_code == lost
    assert change.events[0].data["reason"] == "worker_stopped"


def test_streams_leaves_the_message_for_reclaim_when_its_worker_stops():
    job = running(CONTRACTS["streams"])
    assert after_stop(CONTRACTS["streams"], job, NOW, Facts()) is None


@pytest.mark.parametrize("code", ["TASK_TIMEOUT", "TASK_EXECUTION_FAILED"])
def test_men_exhausted_has_its_own_code_and_keeps_the_cause(code):
    life = Life("men")
    assert life.fail_until_the_end(code) == 3
    view = life.view()
    assert (view["state"], view["attempt"]) == ("failed", 3)
    assert view["last_error_code"] == "TASK_RETRY_EXHAUSTED"
    assert code in view["last_error_reason"]
    assert "broke" in view["last_error_reason"]
    assert life.events[-1].data["error_code"] == "TASK_RETRY_EXHAUSTED"


@pytest.mark.parametrize("code", ["TASK_TIMEOUT", "TASK_EXECUTION_FAILED"])
def test_men_without_retries_is_exhausted_at_the_first_failure(code):
    life = Life("men", max_retries=0)
    assert life.fail_until_the_end(code) == 1
    assert (life.view()["attempt"], life.job.error_code) == (1, "TASK_RETRY_EXHAUSTED")


@pytest.mark.parametrize("failure", [Failure("CARD_DECLINED", "no"), Failure("TASK_TIMEOUT", "no", retryable=False)])
def test_men_not_retryable_fails_with_its_own_code(failure):
    after = after_failure(MEN, running(MEN), failure, NOW, Facts()).after
    assert (after.status, after.error_code, after.error_message) == ("failed", failure.code, "no")


def test_men_not_retryable_at_the_last_attempt_still_has_its_own_code():
    after = after_failure(MEN, running(MEN, max_retries=0), Failure("CARD_DECLINED", "no"), NOW, Facts()).after
    assert after.error_code == "CARD_DECLINED"


def test_men_lost_at_the_last_attempt_is_exhausted():
    life = Life("men", max_retries=0)
    life.move(Move.CLAIM)
    life.by(after_loss)
    assert (life.job.status, life.job.error_code) == ("failed", "TASK_RETRY_EXHAUSTED")
    assert "TASK_TIMEOUT" in life.job.error_message


def test_men_lost_before_the_last_attempt_is_a_timeout():
    life = Life("men")
    life.move(Move.CLAIM)
    change = life.by(after_loss)
    assert change.events[0].data["error_code"] == "TASK_TIMEOUT"
    assert life.view()["attempt"] == 2


def test_men_exhausted_keeps_its_code_when_the_error_is_capped_as_well():
    retry = RetryRule(Immediate(), max_retries=2, only_codes=MEN.retry.only_codes, caps={"TASK_TIMEOUT": 2})
    life = Life(MEN.with_options(retry=retry))
    assert life.fail_until_the_end("TASK_TIMEOUT") == 3
    assert life.job.error_code == "TASK_RETRY_EXHAUSTED"


@pytest.mark.parametrize("name", ["gate-b2", "p3c", "streams", "formal", "standard"])
def test_elsewhere_the_last_error_keeps_its_own_code(name):
    life = Life(name)
    life.fail_until_the_end("HTTP_503")
    assert (life.job.error_code, life.job.error_message) == ("HTTP_503", "broke")


def test_p3c_with_no_tries_left_is_a_non_retryable_error():
    life = Life("p3c")
    life.fail_until_the_end("HTTP_503")
    last = life.events[-1]
    assert (last.event, last.data["error_code"]) == ("non_retryable_error", "HTTP_503")


def interrupted_at_most(limit, name="p3c"):
    contract = CONTRACTS[name]
    return Life(contract.with_options(loss=LossRule(contract.loss.move, False, max_interruptions=limit)))


@pytest.mark.parametrize("limit", [0, 2])
@pytest.mark.parametrize("rule", [after_loss, after_stop])
def test_p3c_interrupted_once_too_often_is_aborted(limit, rule):
    life = interrupted_at_most(limit)
    for _ in range(limit):
        life.move(Move.CLAIM)
        assert life.by(rule).after.status == "interrupted"
    life.move(Move.CLAIM)
    version = life.job.version
    change = life.by(rule)
    assert [e.event for e in change.events] == ["process_restart", "recovery_abort"]
    assert [e.seq for e in change.events] == [version + 1, version + 2]
    assert (change.before.status, change.before.version) == ("running", version)
    assert (change.after.status, change.after.error_code) == ("failed", "PROCESS_RESTARTED")
    assert change.after.failures == 0


def test_p3c_is_interrupted_without_end_by_default():
    assert CONTRACTS["p3c"].loss.max_interruptions is None


def test_streams_delivered_once_too_often_goes_to_the_dead_letters():
    life = interrupted_at_most(1, "streams")
    life.move(Move.CLAIM)
    assert life.by(after_loss).after.status == "running"
    change = life.by(after_loss)
    assert [e.event for e in change.events] == ["task.reclaimed", "task.failed"]
    assert change.dead_letter is not None
    assert [note.name for note in change.notes] == ["task.dlq"]


def test_streams_given_up_without_a_failure_tells_the_retry_count_of_its_row():
    life = interrupted_at_most(0, "streams")
    life.move(Move.CLAIM)
    change = life.by(after_loss)
    told = life.contract.envelope(change.after, change.events[-1])
    assert (told["retry_count"], life.view()["retry_count"]) == (0, 0)


def test_recovery_abort_by_hand():
    life = Life("p3c")
    life.move(Move.CLAIM)
    life.by(after_loss)
    change = life.move(Move.FAIL, actor="ann", reason="enough")
    assert [(e.event, e.actor) for e in change.events] == [("recovery_abort", "ann")]
    assert change.after.status == "failed"


def test_caps_per_error_code():
    contract = CONTRACTS["standard"].with_options(retry=RetryRule(Immediate(), max_retries=9, caps={"A": 2, "B": 0}))
    life = Life(contract, max_retries=9)
    assert life.fail_until_the_end("A") == 3
    assert Life(contract, max_retries=9).fail_until_the_end("B") == 1
    assert Life(contract, max_retries=9).fail_until_the_end("C") == 10


def test_caps_count_lost_workers_too():
    contract = CONTRACTS["standard"].with_options(retry=RetryRule(max_retries=9, caps={"WORKER_LOST": 1}))
    life = Life(contract, max_retries=9)
    life.move(Move.CLAIM)
    assert life.by(after_loss).after.status == "interrupted"
    life.move(Move.CLAIM)
    assert life.by(after_loss).after.status == "failed"


def test_losses_and_failures_share_one_budget():
    life = Life("standard")
    for step in (life.fail, lambda: life.by(after_loss), life.fail):
        life.move(Move.CLAIM)
        assert step().after.status in ("retrying", "interrupted")
    life.move(Move.CLAIM)
    assert life.by(after_loss).after.status == "failed"
