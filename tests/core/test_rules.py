"""The rules of the contracts, copied from the specifications: codes, keys, cancels, snoozes, dead letters, leases."""

from dataclasses import replace
from importlib import import_module
from pkgutil import walk_packages

import pytest

from detent import core
from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.io import contract_to
from detent.core.contract.model import Contract, DeadLetterRule, Edge, KeyRule, LossRule, Move, Phase, key_space
from detent.core.contract.moves import CODES
from detent.core.retry import Exponential
from support.contracts.job_history import NAMES
from support.contracts.lamp import lamp

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


def ticket(**options):
    """A contract with nothing but what it needs."""
    statuses = {"open": Phase.CLAIMABLE, "running": Phase.LEASED, "done": Phase.FINAL, "failed": Phase.FINAL}
    edges = (
        Edge(Move.SUBMIT, None, "created", "open"),
        Edge(Move.CLAIM, "open", "claimed", "running"),
        Edge(Move.SUCCEED, "running", "done", "done"),
        Edge(Move.RETRY, "running", "retried", "open"),
        Edge(Move.FAIL, "running", "failed", "failed"),
        Edge(Move.EXPIRE, "running", "lost", "open"),
        Edge(Move.RELEASE, "running", "released", "open"),
    )
    return Contract(**({"name": "ticket", "statuses": statuses, "edges": edges} | options))


DEFAULTS = {
    "codes": dict(CODES),
    "retry": {
        "kind": "exponential", "base_ms": 1_000, "cap_ms": 30_000, "jitter_ms": 300, "factor": 2, "jitter_percent": 0,
        "max_retries": 3, "frozen": False, "only_codes": None, "permanent_codes": [], "opt_in": ["fail"], "caps": {},
    },
    "loss": {"move": "EXPIRE", "charged": True, "max_interruptions": 8},
    "stop": {"move": "RELEASE", "charged": False},
    "dead_letters": None,
    "keys": {
        "scope": ["tenant_id", "idempotency_scope"], "generated": False, "max_length": 255, "same_content": "payload",
        "critical_fields": [], "blank_is_absent": False, "task_id_is_key": False, "kept_by_requeue": False,
    },
    "approval_notes": {}, "snooze": None, "unreachable": [], "cancel_requests": [], "retry_at_statuses": [],
    "approval_statuses": [], "strict_signals": False, "repeat_is_noop": False, "utc_only": False,
    "retry_counter": "retries", "names_tasks": False, "task_attempts": False, "parks_as": None, "due_on_submit": False,
    "uses_stream": False, "heartbeat_note": None, "lease_seconds": 30.0, "trace_form": "trace-{job_id}",
    "description": "",
}  # fmt: skip


def test_a_contract_of_statuses_and_edges_has_the_documented_defaults():
    data = contract_to(ticket())
    assert {name: data[name] for name in data if name not in ("name", "statuses", "edges")} == DEFAULTS
    assert DeadLetterRule() == DeadLetterRule(discard_people=2, note=None)


def test_a_contract_does_not_change_after_it_is_built():
    statuses = dict(ticket().statuses)
    contract = ticket(statuses=statuses, codes={"lost": "GONE"})
    statuses["late"] = Phase.FINAL
    assert "late" not in contract.statuses
    for table in (contract.statuses, contract.codes):
        with pytest.raises(TypeError):
            table["late"] = None
    assert (contract.code("lost"), contract.code("timeout"), contract.code("retry_exhausted")) == (
        "GONE", "JOB_TIMEOUT", "",
    )  # fmt: skip


def test_generated_keys_name_their_job():
    keys = KeyRule(generated=True)
    assert keys.generated_key("j1") == "auto-j1"
    assert [keys.job_of_key(key) for key in ("auto-j1", "order-1", "", None)] == ["j1", None, None, None]
    assert KeyRule().generated_key("j1") is None and KeyRule().job_of_key("auto-j1") is None


def test_the_space_of_a_key_is_stored_as_one_text():
    assert key_space("standard", "key", "müller", None) == '["standard","key","müller",null]'


def test_what_a_contract_says_about_its_events_and_statuses():
    contract = lamp()
    assert contract.taking_events == {"lamp.lit", "lamp.flickered"}
    assert contract.leased_events == {"lamp.dimmed", "lamp.flickered", "lamp.burnt", "lamp.cooled"}
    assert contract.state_events["lamp.warmed"] == "off" and len(contract.state_events) == len(contract.edges)
    assert contract.targets("cold", "lamp.warmed") == {"off": [Move.WAKE]}
    assert contract.targets("cold", "lamp.lit") == {}
    assert contract.legal_events("cold") == ["lamp.dropped", "lamp.warmed"]
    assert contract.legal_moves("cold") == [Move.WAKE], "an event that is only legal in a history is no move"
    assert [contract.has(move) for move in (Move.WAIT, Move.PARK, Move.SUBMIT)] == [True, False, False]
    assert contract.success_statuses == {"done"}
    assert [contract.succeeded(status) for status in ("done", "broken", "on")] == [True, False, False]
    taken = {edge.event for edge in CONTRACTS["standard"].edges if edge.move in (Move.CLAIM, Move.EXPIRE, Move.RETRY)}
    assert CONTRACTS["standard"].taking_events == taken | {"job.released"}


def test_a_start_deadline_needs_a_cancel_before_the_start():
    assert [CONTRACTS[name].can_cancel_before_start for name in NAMES] == [False, True, True, False, False, True]
    assert [CONTRACTS[name].discard_people for name in NAMES] == [2, 1, 1, 1, 1, 2]


def test_options_replace_only_the_fields_they_name():
    standard = CONTRACTS["standard"]
    changed = standard.with_options(retry={"base_ms": 5}, lease_seconds=60.0)
    assert changed.retry.backoff == Exponential(base_ms=5) and changed.lease_seconds == 60
    assert changed.retry.permanent_codes == standard.retry.permanent_codes
    assert standard.with_options(lease_seconds=60.0) == replace(standard, lease_seconds=60.0)
    assert standard.with_options(loss=LossRule(charged=False)).loss == LossRule(charged=False)


def test_every_name_that_a_module_of_the_core_exports_exists():
    modules = [import_module(found.name) for found in walk_packages(core.__path__, "detent.core.")]
    exported = [(module, name) for module in modules for name in getattr(module, "__all__", ())]
    assert exported and not [(module.__name__, name) for module, name in exported if not hasattr(module, name)]
