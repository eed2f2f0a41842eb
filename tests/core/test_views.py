"""Views and envelopes of the contracts: the fields that the specifications fix."""

from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import Move
from detent.core.job import Wait
from detent.core.outcome import after_loss
from support.contracts.job_history import NOW, JobHistory

MEN_TASK = """task_id schedule_type state attempt max_retries timeout_ms idempotency_key last_error_code
    last_error_reason created_at updated_at started_at finished_at"""
MEN_PAYLOAD = "task_id from_state to_state occurred_at attempt reason_code reason_message idempotent_hit"
P3C_PAYLOAD = """run_id task_id previous_status status attempt idempotency_key next_retry_at error_code
    actor"""
GATE_JOB = """job_id tenant_id job_type status retry_count idempotency_key trace_id error_code payload_json
    created_at updated_at"""


def envelopes(history):
    """The envelope of every event, with the row of its commit."""
    sent = []
    for change in history.changes:
        sent += [history.contract.envelope(change.after, event) for event in change.events]
    return sent


def test_men_task_has_exactly_its_13_fields():
    view = JobHistory("men").view()
    assert len(view) == 13
    assert set(view) == set(MEN_TASK.split())
    assert view == view | {
        "task_id": "task-1",
        "schedule_type": "at",
        "state": "ready",
        "attempt": 1,
        "max_retries": 2,
        "timeout_ms": 30_000,
        "idempotency_key": "order-1",
        "last_error_code": None,
        "last_error_reason": None,
        "created_at": "2026-02-25T12:00:00Z",
        "updated_at": "2026-02-25T12:00:00Z",
        "started_at": None,
        "finished_at": None,
    }


def test_men_publishes_nothing_for_creation_and_one_envelope_for_the_wake():
    first, second = envelopes(JobHistory("men"))
    assert first is None
    assert (second["payload"]["from_state"], second["payload"]["to_state"]) == ("pending", "ready")


def test_men_envelope_has_the_eight_payload_fields():
    history = JobHistory("men", max_retries=0)
    history.fail_until_final("TASK_TIMEOUT")
    last = envelopes(history)[-1]
    assert set(last) == {"type", "source", "session_key", "event_id", "payload"}
    assert (last["type"], last["source"]) == ("task_state_changed", "gateway.scheduler")
    assert last["session_key"] == "scheduler:default"
    assert set(last["payload"]) == set(MEN_PAYLOAD.split())
    assert len(last["payload"]) == 8
    assert last["payload"] == last["payload"] | {
        "task_id": "task-1",
        "from_state": "running",
        "to_state": "failed",
        "occurred_at": "2026-02-25T12:00:02Z",
        "attempt": 1,
        "reason_code": "TASK_RETRY_EXHAUSTED",
        "idempotent_hit": False,
    }
    assert "TASK_TIMEOUT" in last["payload"]["reason_message"]


def test_men_event_ids_differ():
    history = JobHistory("men")
    history.fail_until_final("TASK_TIMEOUT")
    ids = [sent["event_id"] for sent in envelopes(history) if sent]
    assert len(ids) == len(set(ids)) == 7


def test_men_carries_the_attempt_that_failed_and_then_the_one_that_starts():
    history = JobHistory("men")
    history.fail_until_final("TASK_EXECUTION_FAILED")
    sent = [t["payload"] for t in envelopes(history) if t]
    assert [(t["from_state"], t["to_state"], t["attempt"]) for t in sent] == [
        ("pending", "ready", 1),
        ("ready", "running", 1),
        ("running", "ready", 1),
        ("ready", "running", 2),
        ("running", "ready", 2),
        ("ready", "running", 3),
        ("running", "failed", 3),
    ]


def test_men_row_is_raised_in_the_commit_of_the_retry():
    history = JobHistory("men")
    history.move(Move.CLAIM)
    history.fail("TASK_TIMEOUT")
    assert history.view()["attempt"] == 2


def test_p3c_envelope_has_exactly_the_nine_fields_on_every_transition():
    history = JobHistory("p3c", task_attempt=2)
    history.move(Move.CLAIM)
    history.fail("HTTP_503")
    history.move(Move.CLAIM)
    history.apply_rule(after_loss)
    history.move(Move.CANCEL, actor="ann", worker=None)
    sent = envelopes(history)
    assert len(sent) == 6
    for envelope in sent:
        assert envelope["type"] == "run.status.changed"
        assert envelope["trace_id"] == "trace-1"
        assert set(envelope["payload"]) == set(P3C_PAYLOAD.split())
        assert len(envelope["payload"]) == 9
        assert envelope["payload"]["attempt"] == 2
        assert (envelope["payload"]["run_id"], envelope["payload"]["task_id"]) == ("job-1", "task-1")
        assert envelope["payload"]["idempotency_key"] == "order-1"
    assert [(t["payload"]["previous_status"], t["payload"]["status"]) for t in sent] == [
        (None, "queued"),
        ("queued", "running"),
        ("running", "retry_scheduled"),
        ("retry_scheduled", "running"),
        ("running", "interrupted"),
        ("interrupted", "cancelled"),
    ]
    codes = [t["payload"]["error_code"] for t in sent]
    assert codes == [None, None, "HTTP_503", None, "PROCESS_RESTARTED", None]
    assert [t["payload"]["actor"] for t in sent] == ["ann", "w1", "w1", "w1", "sweeper", "ann"]


def test_p3c_publishes_next_retry_at_in_retry_scheduled_only():
    history = JobHistory("p3c")
    history.fail_until_final("HTTP_503")
    sent = [t["payload"] for t in envelopes(history)]
    assert [t["next_retry_at"] for t in sent if t["status"] == "retry_scheduled"] == [
        "2026-02-25T12:00:17Z",
        "2026-02-25T12:00:34Z",
        "2026-02-25T12:01:06Z",
    ]
    assert {t["next_retry_at"] for t in sent if t["status"] != "retry_scheduled"} == {None}


def test_p3c_view_and_envelope_agree_on_next_retry_at():
    history = JobHistory("p3c")
    history.move(Move.CLAIM)
    history.fail()
    assert history.view()["next_retry_at"] == envelopes(history)[-1]["payload"]["next_retry_at"]


def test_gate_b2_job_has_its_minimum_fields():
    history = JobHistory("gate-b2")
    view = history.view()
    assert set(GATE_JOB.split()) <= set(view)
    assert view == view | {
        "job_id": "job-1",
        "tenant_id": "acme",
        "job_type": "mail",
        "status": "queued",
        "retry_count": 0,
        "idempotency_key": "order-1",
        "trace_id": "trace-1",
        "error_code": None,
        "payload_json": {"to": "a@b.c"},
        "created_at": "2026-02-25T12:00:00Z",
    }


def test_gate_b2_records_the_four_fields_of_a_replay():
    history = JobHistory("gate-b2")
    history.fail_until_final()
    sent = envelopes(history)
    assert all(set(t) >= {"trace_id", "job_id", "retry_count", "status_transition"} for t in sent)
    assert [(t["status_transition"], t["retry_count"]) for t in sent] == [
        ("-> queued", 0),
        ("queued -> running", 0),
        ("running -> retrying", 1),
        ("retrying -> running", 1),
        ("running -> retrying", 2),
        ("retrying -> running", 2),
        ("running -> retrying", 3),
        ("retrying -> running", 3),
        ("running -> dlq_pending", 3),
        ("dlq_pending -> dlq_recorded", 3),
        ("dlq_recorded -> failed", 3),
    ]


def test_streams_publishes_the_retry_count_of_its_row():
    history = JobHistory("streams")
    history.fail_until_final()
    counts = [(t["event_type"], t["retry_count"]) for t in envelopes(history)]
    assert counts == [
        ("task.created", 0),
        ("task.claimed", 0),
        ("task.retrying", 1),
        ("task.claimed", 1),
        ("task.retrying", 2),
        ("task.claimed", 2),
        ("task.retrying", 3),
        ("task.claimed", 3),
        ("task.failed", 4),
    ]


def test_streams_rejected_before_dispatch_has_no_failure():
    history = JobHistory("streams", Move.HOLD)
    history.move(Move.REJECT, actor="ann", reason="no")
    sent = envelopes(history)[-1]
    assert (sent["event_type"], sent["retry_count"], sent["reason"]) == ("task.failed", 0, "no")
    assert history.view()["retry_count"] == 0
    assert history.changes[-1].dead_letter is None


def test_formal_shows_a_long_wait_as_parked_and_keeps_the_row_waiting():
    history = JobHistory("formal")
    history.move(Move.CLAIM)
    history.move(Move.WAIT, wait=Wait("k", "human", park=True))
    assert (history.job.status, history.view()["state"]) == ("Waiting", "Parked")
    assert (history.view()["correlation_key"], history.view()["wait_type"]) == ("k", "human")
    history.move(Move.WAKE)
    assert history.view()["state"] == "Queued"


def test_formal_attempt_id_is_new_at_every_claim():
    history = JobHistory("formal")
    attempt_ids = set()
    for _ in range(3):
        history.move(Move.CLAIM)
        attempt_ids.add(history.view()["attempt_id"])
        history.fail()
    assert len(attempt_ids) == 3


def test_the_times_of_a_view():
    history = JobHistory("p3c")
    history.move(Move.CLAIM)
    history.move(Move.SUCCEED)
    view = history.view()
    assert history.now == NOW + 2_000_000
    assert (view["created_at"], view["started_at"], view["finished_at"]) == (
        "2026-02-25T12:00:00Z",
        "2026-02-25T12:00:01Z",
        "2026-02-25T12:00:02Z",
    )


def test_only_men_p3c_gate_b2_and_streams_publish():
    without_envelopes = {name for name, contract in CONTRACTS.items() if contract.envelope is None}
    assert without_envelopes == {"formal", "standard"}
