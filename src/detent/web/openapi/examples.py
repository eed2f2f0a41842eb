"""Examples of request bodies by operation, for the OpenAPI document and its page; the tests send them to a server."""

from typing import Any

_LEASE = {"job_id": "01a1dd37-0000-7000-8000-000000000000", "token": "the-token-from-claim"}
EXAMPLES: dict[str, Any] = {
    "submitJob": {"job_type": "charge", "queue": "billing", "payload": {"order_id": 7}, "idempotency_key": "order-7"},
    "submitJobs": {"jobs": [{"job_type": "mail", "payload": {"to": "ann"}}, {"job_type": "mail", "priority": 10}]},
    "submitTask": {"task_id": "invoice-2030-01", "payload": {"month": "2030-01"}},
    "cancelJob": {"reason": "ordered twice", "force": False},
    "signalJob": {"name": "paid", "data": {"amount": 12}},
    "requeueJob": {"payload": {"order_id": 7}, "reason": "wrong order number"},
    "approveJob": {"reason": "checked with the customer"},
    "cancelJobs": {"queue": "billing", "phase": "claimable", "dry_run": True},
    "requeueJobs": {"job_type": "charge", "phase": "final", "dry_run": True},
    "requeueDeadLetters": {"error_code": "TIMEOUT", "rate": 5, "take_steps": True, "dry_run": True},
    "discardDeadLetters": {"queue": "mail", "reason": "addresses were deleted", "dry_run": True},
    "createSchedule": {"name": "nightly-report", "job_type": "report", "cron": "0 3 * * *", "tz": "Europe/Vienna"},
    "updateSchedule": {"cron": "0 4 * * *", "version": 1},
    "previewTiming": {"cron": "*/15 9-17 * * mon-fri", "tz": "Asia/Shanghai"},
    "backfillSchedule": {"first": "2030-01-01T00:00:00Z", "last": "2030-01-02T00:00:00Z", "dry_run": True},
    "pauseQueue": {"reason": "the bank is down"},
    "setLimit": {"queue": "billing", "per": "tenant", "concurrency": 2, "rate": 10, "period_seconds": 1},
    "setQuota": {"weight": 3, "max_backlog": 10_000},
    "createToken": {"name": "biller", "role": "worker", "queues": ["billing"], "job_types": ["charge"]},
    "claimJobs": {"worker": "biller-1", "job_types": ["charge"], "limit": 5, "lease_seconds": 30, "wait_seconds": 0},
    "extendLeases": {"worker": "biller-1", "held": {_LEASE["job_id"]: "the-token-from-claim"}, "lease_seconds": 30},
    "settleJob": {**_LEASE, "outcome": "succeed", "result": {"receipt": "r-1"}},
}
