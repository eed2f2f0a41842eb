"""What a contract shows and publishes: the fields its document fixes, no more where it says so."""

from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import Move
from detent.core.job import Wait
from detent.core.outcome import after_loss

from .lives import NOW, Life

MEN_TASK = """task_id schedule_type state attempt max_retries timeout_ms idempotency_key last_error_code
    last_error_reason created_at updated_at started_at finished_at"""
MEN_PAYLOAD = "task_id from_state to_state occurred_at attempt reason_code reason_message idempotent_hit"
P3C_PAYLOAD = """run_id task_id previous_status status attempt idempotency_key next_retry_at error_code
    actor"""
GATE_JOB = """job_id tenant_id job_type status retry_count idempotency_key trace_id error_code payload_json
    created_at updated_at"""


def envelopes(life):
    """Each event told as it was published: with the row of its own commit."""
    told = []
    for change in life.changes:
        told += [life.contract.envelope(change.after, event) for event in change.events]
    return told


def test_men_task_has_exactly_its_13_fields():
    view = Life("men").view()
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
    first, second = envelopes(Life("men"))
    assert first is None
    assert (second["payload"]["from_state"], second["payload"]["to_state"]) == ("pending", "ready")


def test_men_envelope_has_the_eight_payload_fields():
    life = Life("men", max_retries=0)
    life.fail_until_the_end("TASK_TIMEOUT")
    last = envelopes(life)[-1]
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
    life = Life("men")
    life.fail_until_the_end("TASK_TIMEOUT")
    ids = [told["event_id"] for told in envelopes(life) if told]
    assert len(ids) == len(set(ids)) == 7


def test_men_carries_the_attempt_that_failed_and_then_the_one_that_starts():
    life = Life("men")
    life.fail_until_the_end("TASK_EXECUTION_FAILED")
    told = [t["payload"] for t in envelopes(life) if t]
    assert [(t["from_state"], t["to_state"], t["attempt"]) for t in told] == [
        ("pending", "ready", 1),
        ("ready", "running", 1),
        ("running", "ready", 1),
        ("ready", "running", 2),
        ("running", "ready", 2),
        ("ready", "running", 3),
        ("running", "failed", 3),
    ]


def test_men_row_is_raised_in_the_commit_of_the_retry():
    life = Life("men")
    life.move(Move.CLAIM)
    life.fail("TASK_TIMEOUT")
    assert life.view()["attempt"] == 2


def test_p3c_envelope_has_exactly_the_nine_fields_on_every_transition():
    life = Life("p3c", task_attempt=2)
    life.move(Move.CLAIM)
    life.fail("HTTP_503")
    life.move(Move.CLAIM)
    life.by(after_loss)
    life.move(Move.CANCEL, actor="ann", worker=None)
    told = envelopes(life)
    assert len(told) == 6
    for one in told:
        assert one["type"] == "run.status.changed"
        assert one["trace_id"] == "trace-1"
        assert set(one["payload"]) == set(P3C_PAYLOAD.split())
        assert len(one["payload"]) == 9
        assert one["payload"]["attempt"] == 2
        assert (one["payload"]["run_id"], one["payload"]["task_id"]) == ("job-1", "task-1")
        assert one["payload"]["idempotency_key"] == "order-1"
    assert [(t["payload"]["previous_status"], t["payload"]["status"]) for t in told] == [
        (None, "queued"),
        ("queued", "running"),
        ("running", "retry_scheduled"),
        ("retry_scheduled", "running"),
        ("running", "interrupted"),
        ("interrupted", "cancelled"),
    ]
    codes = [t["payload"]["error_code"] for t in told]
    assert codes == [None, None, "HTTP_503", None, "PROCESS_RESTARTED", None]
    assert [t["payload"]["actor"] for t in told] == ["ann", "w1", "w1", "w1", "sweeper", "ann"]


def test_p3c_tells_next_retry_at_in_retry_scheduled_only():
    life = Life("p3c")
    life.fail_until_the_end("HTTP_503")
    told = [t["payload"] for t in envelopes(life)]
    assert [t["next_retry_at"] for t in told if t["status"] == "retry_scheduled"] == [
        "2026-02-25T12:00:17Z",
        "2026-02-25T12:00:34Z",
        "2026-02-25T12:01:06Z",
    ]
    assert {t["next_retry_at"] for t in told if t["status"] != "retry_scheduled"} == {None}


def test_p3c_view_and_envelope_agree_on_next_retry_at():
    life = Life("p3c")
    life.move(Move.CLAIM)
    life.fail()
    assert life.view()["next_retry_at"] == envelopes(life)[-1]["payload"]["next_retry_at"]


def test_gate_b2_job_has_its_minimum_fields():
    life = Life("gate-b2")
    view = life.view()
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
    life = Life("gate-b2")
    life.fail_until_the_end()
    told = envelopes(life)
    assert all(set(t) >= {"trace_id", "job_id", "retry_count", "status_transition"} for t in told)
    assert [(t["status_transition"], t["retry_count"]) for t in told] == [
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


def test_streams_tells_the_retry_count_of_its_row():
    life = Life("streams")
    life.fail_until_the_end()
    counts = [(t["event_type"], t["retry_count"]) for t in envelopes(life)]
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


def test_streams_rejected_before_dispatch_was_never_a_failed_try():
    life = Life("streams", Move.HOLD)
    life.move(Move.REJECT, actor="ann", reason="no")
    told = envelopes(life)[-1]
    assert (told["event_type"], told["retry_count"], told["reason"]) == ("task.failed", 0, "no")
    assert life.view()["retry_count"] == 0
    assert life.changes[-1].dead_letter is None


def test_formal_shows_a_long_wait_as_parked_and_keeps_the_row_waiting():
    life = Life("formal")
    life.move(Move.CLAIM)
    life.move(Move.WAIT, wait=Wait("k", "human", park=True))
    assert (life.job.status, life.view()["state"]) == ("Waiting", "Parked")
    assert (life.view()["correlation_key"], life.view()["wait_type"]) == ("k", "human")
    life.move(Move.WAKE)
    assert life.view()["state"] == "Queued"


def test_formal_attempt_id_is_new_at_every_claim():
    life = Life("formal")
    seen = set()
    for _ in range(3):
        life.move(Move.CLAIM)
        seen.add(life.view()["attempt_id"])
        life.fail()
    assert len(seen) == 3


def test_times_shown_are_of_the_job():
    life = Life("p3c")
    life.move(Move.CLAIM)
    life.move(Move.SUCCEED)
    view = life.view()
    assert life.now == NOW + 2_000_000
    assert (view["created_at"], view["started_at"], view["finished_at"]) == (
        "2026-02-25T12:00:00Z",
        "2026-02-25T12:00:01Z",
        "2026-02-25T12:00:02Z",
    )


def test_only_men_p3c_gate_b2_and_streams_publish():
    silent = {name for name in CONTRACTS if not any(envelopes(Life(name)))}
    assert silent == {"formal", "standard"}
