"""The rules of the contracts, copied from the specifications: codes, keys, cancels, snoozes, dead letters, leases."""

import pytest

from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import Move, Phase
from detent.core.contract.moves import CODES
from support.contracts.job_history import NAMES

# keys: unique within, generated when missing, what must agree on a hit
KEYS = {
    "gate-b2": (("tenant_id",), False, "payload"),
    "men": (("idempotency_scope",), False, "critical"),
    "p3c": ((), True, "nothing"),
    "streams": ((), True, "nothing"),
    "formal": (("tenant_id",), False, "nothing"),
    "standard": (("tenant_id", "idempotency_scope"), False, "payload"),
}
# max_retries, people a discard needs (None: no dead letters), snooze, status a retry waits in
RULES = {
    "gate-b2": (3, 2, None, "retrying"),
    "men": (2, None, None, "ready"),
    "p3c": (3, None, None, "retry_scheduled"),
    "streams": (3, 1, None, "queued"),
    "formal": (2, None, Move.RELEASE, "Queued"),
    "standard": (3, 2, Move.RELEASE, "retrying"),
}
# statuses with a CANCEL edge, and those in which a cancel is only requested
CANCELS = {
    "gate-b2": (set(), set()),
    "men": ({"pending", "ready", "running"}, set()),
    "p3c": ({"queued", "running", "retry_scheduled", "interrupted"}, set()),
    "streams": (set(), set()),
    "formal": ({"Running", "Waiting", "Parked"}, {"Queued", "Retrying", "Running"}),
    "standard": ("every non-final", {"running"}),
}
# codes that a contract renames; all others have the shared name
OWN_CODES = {
    "gate-b2": {"illegal_transition": "WF_STATE_TRANSITION_INVALID"},
    "men": {
        "illegal_transition": "TASK_INVALID_TRANSITION",
        "idempotency_conflict": "TASK_DUPLICATE",
        "invalid_schedule": "TASK_INVALID_SCHEDULE",
        "execution_failed": "TASK_EXECUTION_FAILED",
        "timeout": "TASK_TIMEOUT",
        "lost": "TASK_TIMEOUT",
        "stopped": "TASK_EXECUTION_FAILED",
        "payload_invalid": "TASK_EXECUTION_FAILED",
        "retry_exhausted": "TASK_RETRY_EXHAUSTED",
    },
    "p3c": {
        "illegal_transition": "RUN_INVALID_TRANSITION",
        "lost": "PROCESS_RESTARTED",
        "stopped": "PROCESS_RESTARTED",
    },
    "streams": {"illegal_transition": "TASK_TRANSITION_INVALID"},
    "formal": {},
    "standard": {},
}
SHARED_CODES = {
    "illegal_transition": "JOB_TRANSITION_INVALID",
    "not_found": "JOB_NOT_FOUND",
    "dlq_item_not_found": "DLQ_ITEM_NOT_FOUND",
    "dlq_requeue_conflict": "DLQ_REQUEUE_CONFLICT",
    "dlq_discard_conflict": "DLQ_DISCARD_CONFLICT",
    "approval_required": "APPROVAL_REQUIRED",
    "idempotency_conflict": "IDEMPOTENCY_CONFLICT",
    "tenant_scope_violation": "TENANT_SCOPE_VIOLATION",
}


@pytest.mark.parametrize("name", NAMES)
def test_keys(name):
    keys = CONTRACTS[name].keys
    assert (keys.scope, keys.generated, keys.same_content) == KEYS[name]


def test_men_also_hits_by_task_id_and_compares_four_fields():
    keys = CONTRACTS["men"].keys
    assert keys.critical_fields == ("schedule_type", "scheduled_at", "timeout_ms", "max_retries")
    assert [name for name in NAMES if CONTRACTS[name].keys.task_id_is_key] == ["men"]


def test_p3c_keys_have_at_most_80_characters():
    assert CONTRACTS["p3c"].keys.max_length == 80


@pytest.mark.parametrize("name", NAMES)
def test_budget_dead_letters_snooze_and_where_a_retry_waits(name):
    contract = CONTRACTS[name]
    people = contract.dead_letters and contract.dead_letters.discard_people
    (retry,) = [edge for edge in contract.edges if edge.move is Move.RETRY]
    assert (contract.retry.max_retries, people, contract.snooze, retry.target) == RULES[name]


@pytest.mark.parametrize("name", NAMES)
def test_cancels(name):
    contract = CONTRACTS[name]
    sources = {edge.source for edge in contract.edges if edge.move is Move.CANCEL}
    expected, requests = CANCELS[name]
    if expected == "every non-final":
        expected = {status for status, phase in contract.statuses.items() if phase is not Phase.FINAL}
    assert (sources, contract.cancel_requests) == (expected, requests)


@pytest.mark.parametrize("name", NAMES)
def test_codes(name):
    contract = CONTRACTS[name]
    assert dict(contract.codes) == dict(CODES) | OWN_CODES[name]
    assert dict(CODES) == dict(CODES) | SHARED_CODES
    assert (CODES["retry_exhausted"], contract.code("not_found")) == (None, "JOB_NOT_FOUND")


def test_flags():
    def those_with(flag):
        return {name for name in NAMES if getattr(CONTRACTS[name], flag)}

    assert those_with("repeat_is_noop") == {"p3c"}
    assert those_with("task_attempts") == {"p3c"}
    assert those_with("utc_only") == {"men"}
    assert those_with("due_on_submit") == {"men"}
    assert those_with("strict_signals") == {"formal"}
    assert those_with("approval_statuses") == {"streams", "standard"}
    assert CONTRACTS["formal"].parks_as == "Parked"


def test_leases():
    assert CONTRACTS["formal"].lease_seconds == 30
    assert CONTRACTS["streams"].lease_seconds == 300
