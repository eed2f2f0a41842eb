"""Changes of a stored job that the constraints of each database must refuse."""

import re
from typing import Any

NAMED = re.compile(r"\b(contract|status|phase|queue|job_type|tenant_id)\b")
"""Columns that tables do not have: a state or a lane stands for them."""

ROWS = [
    ("standard", "queued"),
    ("standard", "running"),
    ("standard", "waiting"),
    ("standard", "succeeded"),
    ("formal", "Queued"),
    ("p3c", "queued"),
    ("p3c", "running"),
    ("p3c", "retry_scheduled"),
    ("gate-b2", "retrying"),
    ("gate-b2", "failed"),
]
# which row, what is set; every one of these must be refused
LIES = [
    ("standard-running", "status = 'succeeded'"),
    ("standard-running", "phase = 'final'"),
    ("standard-running", "phase = 'napping'"),
    ("standard-running", "status = 'exploded'"),
    ("standard-running", "contract = 'nobody'"),
    ("standard-queued", "contract = 'formal'"),
    ("standard-queued", "status = 'running', phase = 'leased', ready = 0"),
    ("standard-queued", "status = 'succeeded', phase = 'final', ready = 0"),
    ("standard-queued", "status = 'Queued'"),
    ("formal-Queued", "status = 'queued'"),
    ("standard-running", "token = NULL"),
    ("standard-running", "worker = NULL"),
    ("standard-running", "lease_until = NULL"),
    ("standard-running", "ready = 1"),
    ("standard-running", "execution_no = 0"),
    ("standard-running", "started_at = NULL"),
    ("standard-running", "finished_at = updated_at"),
    ("standard-running", "result = '{}'"),
    ("standard-running", "wait_name = 'answer'"),
    ("standard-queued", "worker = 'w1'"),
    ("standard-queued", "lease_until = due_at"),
    ("standard-queued", "ready = 2"),
    ("standard-queued", "due_at = NULL"),
    ("standard-queued", "started_at = created_at"),
    ("standard-queued", "next_retry_at = due_at"),
    ("standard-queued", "version = 0"),
    ("standard-queued", "version = 'two'"),
    ("standard-queued", "updated_at = created_at - 1"),
    ("standard-queued", "failures = -1"),
    ("standard-queued", "failures = 99"),
    ("standard-queued", "retries = 1"),
    ("standard-queued", "interruptions = -1"),
    ("standard-queued", "max_retries = -1"),
    ("standard-queued", "timeout_ms = 0"),
    ("standard-queued", "payload = '{oops'"),
    ("standard-queued", "payload = NULL"),
    ("standard-queued", "tenant_id = NULL"),
    ("standard-succeeded", "result = '{oops'"),
    ("standard-succeeded", "finished_at = NULL"),
    ("standard-succeeded", "worker = 'w1'"),
    ("standard-succeeded", "ready = 1"),
    ("standard-succeeded", "cancel_requested = '{}'"),
    ("standard-waiting", "ready = 1"),
    ("standard-waiting", "lease_until = 1"),
    ("p3c-retry_scheduled", "next_retry_at = NULL"),
    ("p3c-retry_scheduled", "next_retry_at = next_retry_at + 1"),
    ("p3c-retry_scheduled", "due_at = due_at + 1"),
    ("p3c-retry_scheduled", "status = 'queued'"),
    ("p3c-queued", "next_retry_at = due_at"),
    ("p3c-queued", "status = 'retry_scheduled'"),
    ("p3c-running", "next_retry_at = due_at"),
    ("p3c-queued", "task_attempt = 0"),
    ("p3c-queued", "(task_id, task_attempt) = (SELECT task_id, task_attempt FROM {jobs} WHERE id = 'p3c-running')"),
    ("gate-b2-retrying", "next_retry_at = NULL"),
    ("gate-b2-retrying", "retries = 5"),
]
# A view would show what the row is not; the engine would stumble over it; the lane would say otherwise.
DEEPER_LIES = [
    ("formal-Queued", "wait_parked = 1"),
    ("standard-queued", "wait_parked = 7"),
    ("standard-queued", "wait_kind = 'human'"),
    ("standard-running", "cancel_requested = 'please'"),
    ("standard-queued", "payload = '[1]'"),
    ("standard-queued", "error_counts = 'many'"),
    ("standard-queued", "queue = 'other'"),
    ("standard-queued", "job_type = 'other'"),
    ("standard-queued", "tenant_id = 'other'"),
    ("standard-queued", "priority = 50"),
]
# which row is copied under a new id, and what is changed in the copy
FORGERIES = [
    ("standard-queued", {"status": "exploded"}),
    ("standard-queued", {"contract": "nobody"}),
    ("standard-queued", {"phase": "blocked", "ready": 0}),
    ("standard-queued", {"next_retry_at": 1}),
    ("standard-running", {"token": None}),
    ("p3c-retry_scheduled", {"next_retry_at": None, "task_attempt": 9}),
    ("p3c-queued", {}),
    ("standard-succeeded", {"finished_at": None}),
]


def to_state(contract: str, status: str) -> str:
    return f"state = (SELECT id FROM {{states}} WHERE contract = '{contract}' AND status = '{status}')"


STATE_LIES = [
    ("standard-running", to_state("standard", "succeeded")),
    ("standard-running", to_state("standard", "queued")),
    ("standard-running", to_state("standard", "waiting")),
    ("standard-queued", to_state("standard", "running")),
    ("standard-queued", to_state("standard", "succeeded")),
    ("standard-waiting", to_state("standard", "running")),
    # of another contract
    ("standard-queued", to_state("formal", "Queued")),
    ("formal-Queued", to_state("standard", "queued")),
    ("standard-running", to_state("p3c", "running")),
    # with or without a time to retry at
    ("p3c-retry_scheduled", to_state("p3c", "queued")),
    ("p3c-queued", to_state("p3c", "retry_scheduled")),
    # that nobody has declared, among them the same status with another phase or flag
    ("standard-running", to_state("standard", "exploded")),
    ("standard-running", "state = state | 3"),
    ("standard-running", "state = state & ~3"),
    ("standard-queued", "state = state | 2"),
    ("standard-queued", "state = state | 4, next_retry_at = due_at"),
    ("p3c-retry_scheduled", "state = state & ~4, next_retry_at = NULL"),
    ("standard-succeeded", "state = state | 8"),
    ("standard-queued", "state = state + 1024"),
    ("standard-queued", "state = state + (1 << 24)"),
    ("standard-queued", "state = 0"),
    ("standard-queued", "state = -state"),
    ("standard-queued", "state = NULL"),
    ("standard-queued", "state = 'queued'"),
]
"""A state is a status with its phase and flags, see table states."""
LANE_LIES = [
    ("standard-queued", "lane = lane + 1"),  # another tenant or limit key
    ("standard-queued", "lane = lane - 1"),
    ("standard-queued", "lane = lane + (1 << 31)"),  # another contract, queue or job type
    ("standard-queued", "lane = lane + (1 << 55)"),  # another priority
    ("standard-queued", "lane = lane + (1 << 55), priority = priority - 1"),
    ("standard-queued", "lane = (lane & ((1 << 55) - 1)) + (255 << 55)"),  # a suspect without losses
    ("standard-queued", "losses = -1"),
    ("standard-queued", "lane = NULL"),
    ("standard-queued", "max_retries = NULL"),
    ("standard-queued", "error_counts = '{oops'"),
    ("standard-queued", "created_at = created_at - 1"),
    ("standard-queued", "payload = '{\"other\":1}'"),
    ("standard-queued", "id = 'another'"),
]
END_LIES = [
    ("standard-succeeded", to_state("standard", "failed")),
    ("standard-succeeded", "version = version + 1"),
    ("standard-succeeded", to_state("standard", "queued") + ", finished_at = NULL, due_at = 1, result = NULL"),
]
FORGED_STATES: list[tuple[str, dict[str, Any]]] = [
    ("standard-queued", {"state": 16}),
    ("standard-queued", {"state": 1 << 24}),
    ("standard-queued", {"state": None}),
    ("standard-queued", {"lane": None}),
    ("standard-queued", {"payload": "[1]"}),
    ("standard-queued", {"payload": "{oops"}),
    ("standard-succeeded", {"result": "{oops"}),
    ("standard-running", {"version": 0}),
]
