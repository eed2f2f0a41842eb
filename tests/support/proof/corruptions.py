"""Corruptions that a bug, a bad disk or manual SQL could cause, each with the rule that must report it."""

from support.proof.corrupted_children_and_approvals import CHILDREN_AND_APPROVALS
from support.proof.corrupted_fires import FIRES
from support.proof.planting import also_logged, corrupt, event, job, owned, row

MISSING_JOB = "'01900000-0000-7000-8000-000000000000'"
DONE = job("standard", "succeeded", "execution_no = 1")
RETRIED = job("standard", "succeeded", "execution_no = 2 AND retries = 1")
RUNNING = job("standard", "running")
RETRYING = job("standard", "retrying")
DEAD_LETTERED = job("gate-b2", "failed", "retries = 3")
WAITING = job("formal", "Waiting", "wait_parked = 0")
JOB_WITH_KEY = "SELECT id FROM detent_job_list WHERE idempotency_key = 'key-standard'"
REQUEUED = (
    "SELECT j.id FROM detent_job_list j JOIN detent_dead_letters d ON d.job_id = j.id AND d.status ="
    " 'requeued' ORDER BY j.id LIMIT 1"
)
NEW_JOB = (
    "SELECT id FROM detent_job_list WHERE requeued_from IN (SELECT id FROM detent_dead_letters) ORDER BY id LIMIT 1"
)
REQUEUED_JOB = (
    "SELECT id FROM detent_job_list WHERE requeued_from IN (SELECT id FROM detent_job_list) ORDER BY id LIMIT 1"
)
JOB_WITH_STEPS = (
    "SELECT min(job_id) FROM detent_steps WHERE job_id IN (SELECT id FROM detent_job_list WHERE requeued_from IS NULL)"
)
DISCARDED = (
    "SELECT job_id FROM detent_dead_letters WHERE contract = 'standard' AND status = 'discarded' ORDER"
    " BY job_id LIMIT 1"
)
DISCARDED_BY_ONE = (
    "SELECT job_id FROM detent_dead_letters WHERE contract = 'streams' AND status = 'discarded' ORDER BY job_id LIMIT 1"
)
ITEM = "(SELECT id FROM detent_dead_letters WHERE job_id = :job)"

LOGS = (
    corrupt("contract renamed", "contract-unknown", DONE, row("contract = 'nowhere'")),
    corrupt("log gone", "creation-first", DONE, "DELETE FROM detent_event_list WHERE job_id = :job"),
    corrupt("creation lost", "creation-first", DONE, "DELETE FROM detent_event_list WHERE job_id = :job AND seq = 1"),
    corrupt("creation with a source", "creation-first", DONE, event("source = 'queued'", "1")),
    corrupt("event lost", "seq-gap", DONE, "DELETE FROM detent_event_list WHERE job_id = :job AND seq = 2"),
    corrupt("events renumbered", "seq-gap", DONE, "UPDATE detent_event_list SET seq = seq + 10 WHERE job_id = :job"),
    corrupt(
        "last event lost", "version-differs", RETRYING, "DELETE FROM detent_event_list WHERE job_id = :job AND seq = 3"
    ),
    corrupt("version not raised", "version-differs", RUNNING, row("version = version - 1")),
    corrupt("version run ahead", "version-differs", RUNNING, row("version = version + 1")),
    corrupt("source rewritten", "source-differs", DONE, event("source = 'retrying'", "2")),
    corrupt("event renamed", "step-illegal", DONE, event("event = 'job.parked'", "2")),
    corrupt("target rewritten", "step-illegal", DONE, event("target = 'parked'", "2")),
    corrupt("unknown event", "step-illegal", DONE, event("event = 'job.teleported'", "3")),
    corrupt(
        "gate-b2 skips the dead letters",
        "step-illegal",
        job("gate-b2", "running"),
        *also_logged("job.failed", "running", "failed"),
        row("status = 'failed', phase = 'final', worker = NULL, lease_until = NULL, finished_at = updated_at"),
    ),
    corrupt(
        "settled twice",
        "final-absorbing",
        job("streams", "succeeded"),
        *also_logged("task.failed", "succeeded", "failed"),
    ),
    corrupt(
        "formal job requeued after its end",
        "final-absorbing",
        job("formal", "Completed"),
        *also_logged("job_requeued", "Completed", "Queued"),
    ),
    corrupt(
        "two final events",
        "final-once",
        job("streams", "succeeded"),
        *also_logged("task.succeeded", "running", "succeeded"),
    ),
    corrupt(
        "end not logged",
        "final-once",
        DONE,
        "DELETE FROM detent_event_list WHERE job_id = :job AND seq = 3",
        row("version = 2"),
    ),
    corrupt(
        "waits without an event",
        "waiting-unlogged",
        job("formal", "Running"),
        row("status = 'Waiting', phase = 'blocked', worker = NULL, lease_until = NULL, wait_name = 'x'"),
    ),
    corrupt(
        "runs without a claim",
        "running-unlogged",
        job("formal", "Queued", "execution_no = 0"),
        row(
            "status = 'Running', phase = 'leased', token = 't', worker = 'w', lease_until = due_at, ready = 0,"
            "execution_no = 1, started_at = updated_at"
        ),
    ),
    corrupt(
        "waiting job reclaimed",
        "blocked-taken",
        WAITING,
        *also_logged("job_requeued", "Waiting", "Queued"),
        row("status = 'Queued', phase = 'claimable', due_at = updated_at, wait_name = NULL"),
    ),
    corrupt(
        "held job is claimed",
        "blocked-taken",
        job("streams", "waiting_approval"),
        *also_logged("task.claimed", "waiting_approval", "running", execution_no="1"),
        row(
            "status = 'running', phase = 'leased', token = 't', worker = 'w', lease_until = updated_at + 9,"
            "execution_no = 1, started_at = updated_at"
        ),
    ),
    corrupt(
        "waiting row set to claimable",
        "blocked-taken",
        WAITING,
        row("status = 'Queued', phase = 'claimable', due_at = updated_at, wait_name = NULL"),
    ),
    corrupt(
        "stays in a status with a follow-up",
        "follow-at-once",
        DEAD_LETTERED,
        "DELETE FROM detent_event_list WHERE job_id = :job AND target = 'failed'",
        row("status = 'dlq_recorded', phase = 'blocked', finished_at = NULL, version = version - 1"),
    ),
    corrupt(
        "failed an hour after it was recorded",
        "follow-at-once",
        DEAD_LETTERED,
        event("at = at + 3600000000"),
        row("updated_at = updated_at + 3600000000, finished_at = finished_at + 3600000000"),
    ),
    corrupt("data cut off", "data-unreadable", RETRYING, event("data = substr(data, 1, 20)")),
    corrupt("data is a list", "data-unreadable", RETRYING, event("data = '[1]'")),
)

ROWS = (
    corrupt(
        "status set by SQL",
        "status-differs",
        job("standard", "queued", "execution_no = 0"),
        row("status = 'retrying', next_retry_at = due_at"),
    ),
    corrupt("status of another contract", "status-differs", job("men", "ready"), row("status = 'queued'")),
    corrupt("phase set by SQL", "phase-differs", RUNNING, row("phase = 'claimable', due_at = updated_at")),
    corrupt("execution counted twice", "executions-differ", DONE, row("execution_no = 2")),
    corrupt("failure forgotten", "failures-differ", RETRYING, row("failures = 0, retries = 0")),
    corrupt(
        "charge rewritten",
        "failures-differ",
        job("standard", "interrupted"),
        event("data = json_set(data, '$.charged', json('false'))"),
    ),
    corrupt("retry not counted", "retries-differ", RETRYING, row("retries = 0")),
    corrupt(
        "formal expiry counted as a retry",
        "retries-differ",
        "SELECT min(job_id) FROM detent_event_list WHERE event = 'job_requeued' AND data LIKE '%lease_expired%'",
        row("retries = 1"),
    ),
    corrupt("interruption forgotten", "interruptions-differ", job("p3c", "interrupted"), row("interruptions = 0")),
    corrupt(
        "reopening keeps the old count",
        "failures-differ",
        job("formal", "Queued", "execution_no = 4"),
        row("failures = 4, retries = 3"),
    ),
    corrupt("event of another execution", "event-counters", DONE, event("execution_no = 7")),
    corrupt("event with another retry count", "event-counters", DONE, event("retries = 1")),
    corrupt("tried too often", "budget-exceeded", job("standard", "retrying"), row("max_retries = 0")),
    corrupt(
        "lost too often", "budget-exceeded", job("standard", "interrupted", "failures = 2"), row("max_retries = 0")
    ),
    corrupt("gate-b2 with other retries", "budget-exceeded", job("gate-b2", "queued"), row("max_retries = 5")),
    corrupt("clock ran backwards", "time-backwards", DONE, event("at = at - 60000000", "2")),
    corrupt("an event an hour late", "time-backwards", RETRIED, event("at = at + 3600000000", "3")),
    corrupt("an event an hour early", "time-backwards", RETRIED, event("at = at - 3600000000", "4")),
    corrupt("creation moved", "created-differs", DONE, row("created_at = created_at - 1")),
    corrupt("update not stamped", "updated-differs", DONE, row("updated_at = created_at")),
    corrupt("start moved", "started-differs", DONE, row("started_at = created_at")),
    corrupt("succeeded after its timeout", "success-late", DONE, row("timeout_ms = 500")),
    corrupt("end moved", "finished-differs", DONE, row("finished_at = finished_at + 1")),
    corrupt("finished without a time", "finished-differs", DONE, row("finished_at = NULL")),
    corrupt("leased without a token", "lease-missing", RUNNING, row("token = NULL")),
    corrupt("leased without a lease", "lease-missing", RUNNING, row("lease_until = NULL")),
    corrupt("leased without a worker", "lease-missing", RUNNING, row("worker = NULL")),
    corrupt("lease ends before it began", "lease-missing", RUNNING, row("lease_until = 1")),
    corrupt("worker left on a finished job", "lease-left", DONE, row("worker = 'w9'")),
    corrupt("lease left on a retry", "lease-left", RETRYING, row("lease_until = updated_at")),
    corrupt("worker left behind", "lease-left", RETRYING, row("worker = 'w9'")),
    corrupt("lease left behind", "lease-left", DONE, row("lease_until = updated_at")),
    corrupt(
        "token before any claim",
        "token-unearned",
        job("standard", "queued", "execution_no = 0"),
        row("token = 'stolen'"),
    ),
    corrupt("token wiped", "token-unearned", DONE, row("token = NULL")),
    corrupt("never due", "due-missing", job("gate-b2", "queued"), row("due_at = NULL")),
    corrupt("a finished job marked ready", "due-missing", DONE, row("ready = 1")),
    corrupt("a blocked job marked ready", "due-missing", WAITING, row("ready = 1")),
    corrupt("a running job marked ready", "due-missing", RUNNING, row("ready = 1")),
    corrupt(
        "retry moved",
        "due-differs",
        job("formal", "Queued", "retries = 1 AND execution_no = 1"),
        row("due_at = due_at + 5"),
    ),
    corrupt(
        "timeout of a wait moved",
        "due-differs",
        job("standard", "parked", "due_at IS NOT NULL"),
        row("due_at = due_at + 5"),
    ),
    corrupt("next_retry_at lost", "retry-at-differs", job("p3c", "retry_scheduled"), row("next_retry_at = NULL")),
    corrupt(
        "next_retry_at outside its status", "retry-at-differs", job("p3c", "interrupted"), row("next_retry_at = due_at")
    ),
    corrupt(
        "next_retry_at is not the due time",
        "retry-at-differs",
        job("p3c", "retry_scheduled"),
        row("next_retry_at = next_retry_at + 1"),
    ),
    corrupt(
        "p3c retry time not the log's",
        "due-differs",
        job("p3c", "retry_scheduled"),
        row("next_retry_at = next_retry_at + 1, due_at = due_at + 1"),
    ),
    corrupt("waits for another name", "wait-differs", WAITING, row("wait_name = 'other'")),
    corrupt("waits after its end", "wait-differs", DONE, row("wait_name = 'answer'")),
    corrupt("waits while it is due", "wait-differs", RETRYING, row("wait_name = 'answer'")),
    corrupt("waits while it runs", "wait-differs", RUNNING, row("wait_name = 'answer'")),
)

OTHERS = (
    corrupt("key lost", "key-missing", JOB_WITH_KEY, "DELETE FROM detent_keys WHERE job_id = :job"),
    corrupt(
        "task key lost",
        "key-missing",
        "SELECT id FROM detent_job_list WHERE contract = 'men' AND task_id = 'T-1'",
        "DELETE FROM detent_keys WHERE job_id = :job AND key = 'T-1'",
    ),
    corrupt(
        "key given to another",
        "key-taken",
        JOB_WITH_KEY,
        f"UPDATE detent_keys SET job_id = ({DONE}) WHERE job_id = :job",
    ),
    corrupt(
        "two jobs with one key",
        "key-taken",
        "SELECT id FROM detent_job_list WHERE idempotency_key = 'other-p3c'",
        row("idempotency_key = 'key-p3c'"),
    ),
    corrupt("tenant moved", "key-missing", JOB_WITH_KEY, row("tenant_id = 'elsewhere'")),
    corrupt(
        "key of a job without it",
        "key-stray",
        DONE,
        owned('["standard","key","default",null]', ":job"),
    ),
    corrupt("key of a lost job", "key-without-job", None, owned('["p3c","key"]', MISSING_JOB)),
    corrupt("attempt without a number", "attempt-missing", job("p3c", "queued"), row("task_attempt = NULL")),
    corrupt("attempt number without a task", "attempt-missing", DONE, row("task_attempt = 1, task_id = 'T-9'")),
    corrupt(
        "attempt skipped",
        "attempt-gap",
        "SELECT id FROM detent_job_list WHERE task_id = 'T-1' AND task_attempt = 3",
        row("task_attempt = 4"),
    ),
    corrupt(
        "attempt numbered twice",
        "attempt-gap",
        None,
        "DROP INDEX detent_jobs_task",
        "UPDATE detent_job_list SET task_attempt = 2 WHERE task_id = 'T-1' AND task_attempt = 3",
    ),
    corrupt(
        "dead letter lost", "dead-letter-missing", DEAD_LETTERED, "DELETE FROM detent_dead_letters WHERE job_id = :job"
    ),
    corrupt("dead letter not named", "dead-letter-missing", DEAD_LETTERED, row("dlq_id = NULL")),
    corrupt("dead letter not named by its job", "dead-letter-differs", DEAD_LETTERED, row("dlq_id = NULL")),
    corrupt(
        "names another's dead letter",
        "dead-letter-missing",
        job("standard", "failed", "retries = 3"),
        row(f"dlq_id = (SELECT dlq_id FROM detent_job_list WHERE id = ({DEAD_LETTERED}))"),
    ),
    corrupt("dead letter of a succeeded job", "dead-letter-unearned", DONE, row("dlq_id = 'd1'")),
    corrupt(
        "rejected with a dead letter",
        "dead-letter-unearned",
        job("standard", "failed", "execution_no = 0"),
        f"UPDATE detent_dead_letters SET job_id = :job WHERE id = (SELECT dlq_id FROM detent_job_list WHERE id ="
        f" ({DEAD_LETTERED}))",
    ),
    corrupt(
        "dead letter of another tenant",
        "dead-letter-differs",
        DEAD_LETTERED,
        "UPDATE detent_dead_letters SET tenant_id = 'elsewhere' WHERE job_id = :job",
    ),
    corrupt(
        "dead letter with another count",
        "dead-letter-differs",
        DEAD_LETTERED,
        "UPDATE detent_dead_letters SET retries = 1 WHERE job_id = :job",
    ),
    corrupt(
        "two dead letters",
        "dead-letter-twice",
        DEAD_LETTERED,
        "CREATE TABLE copied AS SELECT * FROM detent_dead_letters",
        "DROP VIEW detent_gate_b2_dlq_items",
        "DROP TABLE detent_dead_letters",
        "ALTER TABLE copied RENAME TO detent_dead_letters",
        f"CREATE TABLE more AS SELECT * FROM detent_dead_letters WHERE id = {ITEM}",
        "UPDATE more SET id = 'copy'",
        "INSERT INTO detent_dead_letters SELECT * FROM more",
    ),
    corrupt(
        "a second dead letter, unnamed",
        "dead-letter-differs",
        DEAD_LETTERED,
        f"CREATE TABLE more AS SELECT * FROM detent_dead_letters WHERE id = {ITEM}",
        "UPDATE more SET id = 'copy', retries = 2",
        "INSERT INTO detent_dead_letters SELECT * FROM more",
    ),
    corrupt(
        "dead letter of a missing job",
        "dead-letter-orphan",
        None,
        f"UPDATE detent_dead_letters SET job_id = {MISSING_JOB} WHERE job_id = ({DEAD_LETTERED})",
    ),
    corrupt(
        "requeued as a missing job",
        "requeue-link",
        REQUEUED,
        f"UPDATE detent_dead_letters SET requeued_as = {MISSING_JOB} WHERE job_id = :job",
    ),
    corrupt(
        "requeued dead letter set to open",
        "requeue-link",
        REQUEUED,
        "UPDATE detent_dead_letters SET status = 'open' WHERE job_id = :job",
    ),
    corrupt(
        "new job without requeued_from",
        "requeue-link",
        REQUEUED,
        "UPDATE detent_job_list SET requeued_from = NULL WHERE id = (SELECT requeued_as FROM detent_dead_letters WHERE"
        " job_id = :job)",
    ),
    corrupt(
        "requeued from a dead letter of another job",
        "requeue-link",
        NEW_JOB,
        row(f"requeued_from = (SELECT dlq_id FROM detent_job_list WHERE id = ({DEAD_LETTERED}))"),
    ),
    corrupt("requeued from nothing", "requeue-link", REQUEUED_JOB, row("requeued_from = 'thin air'")),
    corrupt(
        "one person discards",
        "discard-people",
        DISCARDED,
        f"UPDATE detent_audit SET actor = 'bo' WHERE subject = {ITEM} AND act = 'dlq.discard.propose'",
    ),
    corrupt(
        "discard never confirmed",
        "discard-people",
        DISCARDED,
        f"DELETE FROM detent_audit WHERE subject = {ITEM} AND act = 'dlq.discard'",
    ),
    corrupt(
        "discarded by SQL",
        "discard-people",
        DEAD_LETTERED,
        "UPDATE detent_dead_letters SET status = 'discarded' WHERE job_id = :job",
    ),
    corrupt(
        "discard without audit", "discard-people", DISCARDED_BY_ONE, f"DELETE FROM detent_audit WHERE subject = {ITEM}"
    ),
    corrupt(
        "discard without a reason",
        "discard-reason",
        DISCARDED,
        f"UPDATE detent_audit SET reason = '  ' WHERE subject = {ITEM} AND act = 'dlq.discard'",
    ),
    corrupt(
        "proposal without a reason",
        "discard-reason",
        DISCARDED,
        f"UPDATE detent_audit SET reason = NULL WHERE subject = {ITEM} AND act = 'dlq.discard.propose'",
    ),
    corrupt("job row lost", "event-orphan", DONE, "DELETE FROM detent_job_list WHERE id = :job"),
    corrupt(
        "last job row lost",
        "event-orphan",
        "SELECT max(id) FROM detent_job_list",
        "DELETE FROM detent_job_list WHERE id = :job",
    ),
    corrupt("note of a missing job", "note-orphan", None, f"UPDATE detent_notes SET job_id = {MISSING_JOB}"),
    corrupt("step of a missing job", "step-orphan", None, f"UPDATE detent_steps SET job_id = {MISSING_JOB} || job_id"),
    corrupt(
        "step from the future",
        "step-unearned",
        JOB_WITH_STEPS,
        "UPDATE detent_steps SET execution_no = 9 WHERE job_id = :job",
    ),
    corrupt("step before the first run", "step-unearned", JOB_WITH_STEPS, "UPDATE detent_steps SET execution_no = 0"),
    corrupt(
        "step without a result",
        "step-empty",
        JOB_WITH_STEPS,
        "UPDATE detent_steps SET result = NULL WHERE job_id = :job",
    ),
    corrupt(
        "outbox item of a missing job",
        "parcel-orphan",
        None,
        f"UPDATE detent_outbox SET job_id = {MISSING_JOB} || job_id",
    ),
    corrupt(
        "takeover without the old consumer",
        "takeover-unnamed",
        "SELECT job_id FROM detent_event_list WHERE event = 'task.reclaimed' ORDER BY job_id LIMIT 1",
        "UPDATE detent_event_list SET data = replace(data, 'old_consumer', 'other') WHERE job_id = :job",
    ),
    corrupt(
        "signal of a missing job", "signal-orphan", None, f"UPDATE detent_signals SET job_id = {MISSING_JOB} || job_id"
    ),
    corrupt(
        "waits although it was signalled",
        "signal-missed",
        WAITING,
        "INSERT INTO detent_signals (job_id, name, data, at) SELECT id, wait_name, 'null', 1 FROM detent_job_list"
        " WHERE id = :job",
    ),
    corrupt(
        "note from the future",
        "note-adrift",
        "SELECT min(job_id) FROM detent_notes",
        "UPDATE detent_notes SET seq = 99 WHERE job_id = :job",
    ),
    corrupt(
        "cancelled job reopened",
        "final-reopened",
        job("formal", "Failed", "execution_no = 1"),
        *also_logged("job_requeued", "Failed", "Queued"),
        row("status = 'Queued', phase = 'claimable', due_at = updated_at, finished_at = NULL, failures = 0"),
    ),
    corrupt(
        "other edges declared",
        "contract-changed",
        None,
        "UPDATE detent_contracts SET definition = replace(definition, 'job.released', 'job.gone') WHERE name ="
        " 'standard'",
    ),
)

CORRUPTIONS = LOGS + ROWS + OTHERS + FIRES + CHILDREN_AND_APPROVALS
