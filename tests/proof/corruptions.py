"""Planted corruptions: what a bug, a bad disk or a hand in the database could do, and the rule that must name it."""

from .corrupted_fires import FIRES
from .corrupted_relations import RELATIONS
from .planting import also_logged, broken, event, job, owned, row

GHOST = "'01900000-0000-7000-8000-000000000000'"
DONE = job("standard", "succeeded", "execution_no = 1")
AGAIN_DONE = job("standard", "succeeded", "execution_no = 2 AND retries = 1")
RUNNING = job("standard", "running")
RETRYING = job("standard", "retrying")
BURIED = job("gate-b2", "failed", "retries = 3")
WAITING = job("formal", "Waiting", "wait_parked = 0")
KEYED = "SELECT id FROM jobs WHERE idempotency_key = 'key-standard'"
REQUEUED = (
    "SELECT j.id FROM jobs j JOIN dead_letters d ON d.job_id = j.id AND d.status = 'requeued' ORDER BY j.id LIMIT 1"
)
MADE = "SELECT id FROM jobs WHERE requeued_from IN (SELECT id FROM dead_letters) ORDER BY id LIMIT 1"
AGAIN = "SELECT id FROM jobs WHERE requeued_from IN (SELECT id FROM jobs) ORDER BY id LIMIT 1"
STEPPED = "SELECT min(job_id) FROM steps WHERE job_id IN (SELECT id FROM jobs WHERE requeued_from IS NULL)"
DISCARDED = (
    "SELECT job_id FROM dead_letters WHERE contract = 'standard' AND status = 'discarded' ORDER BY job_id LIMIT 1"
)
ALONE = "SELECT job_id FROM dead_letters WHERE contract = 'streams' AND status = 'discarded' ORDER BY job_id LIMIT 1"
ITEM = "(SELECT id FROM dead_letters WHERE job_id = :job)"

LOGS = (
    broken("contract renamed", "contract-unknown", DONE, row("contract = 'nowhere'")),
    broken("log gone", "creation-first", DONE, "DELETE FROM events WHERE job_id = :job"),
    broken("creation lost", "creation-first", DONE, "DELETE FROM events WHERE job_id = :job AND seq = 1"),
    broken("creation with a source", "creation-first", DONE, event("source = 'queued'", "1")),
    broken("event lost", "seq-gap", DONE, "DELETE FROM events WHERE job_id = :job AND seq = 2"),
    broken("events renumbered", "seq-gap", DONE, "UPDATE events SET seq = seq + 10 WHERE job_id = :job"),
    broken("last event lost", "version-differs", RETRYING, "DELETE FROM events WHERE job_id = :job AND seq = 3"),
    broken("version not raised", "version-differs", RUNNING, row("version = version - 1")),
    broken("version run ahead", "version-differs", RUNNING, row("version = version + 1")),
    broken("source rewritten", "source-differs", DONE, event("source = 'retrying'", "2")),
    broken("event renamed", "step-illegal", DONE, event("event = 'job.parked'", "2")),
    broken("target rewritten", "step-illegal", DONE, event("target = 'parked'", "2")),
    broken("event nobody knows", "step-illegal", DONE, event("event = 'job.teleported'", "3")),
    broken(
        "gate-b2 skips the dead letters",
        "step-illegal",
        job("gate-b2", "running"),
        *also_logged("job.failed", "running", "failed"),
        row("status = 'failed', phase = 'final', worker = NULL, lease_until = NULL, finished_at = updated_at"),
    ),
    broken(
        "settled twice",
        "final-absorbing",
        job("streams", "succeeded"),
        *also_logged("task.failed", "succeeded", "failed"),
    ),
    broken(
        "formal runs after its end",
        "final-absorbing",
        job("formal", "Completed"),
        *also_logged("job_requeued", "Completed", "Queued"),
    ),
    broken(
        "two final events",
        "final-once",
        job("streams", "succeeded"),
        *also_logged("task.succeeded", "running", "succeeded"),
    ),
    broken(
        "end not logged", "final-once", DONE, "DELETE FROM events WHERE job_id = :job AND seq = 3", row("version = 2")
    ),
    broken(
        "waits without word",
        "waiting-unlogged",
        job("formal", "Running"),
        row("status = 'Waiting', phase = 'blocked', worker = NULL, lease_until = NULL, wait_name = 'x'"),
    ),
    broken(
        "runs without a claim",
        "running-unlogged",
        job("formal", "Queued", "execution_no = 0"),
        row(
            "status = 'Running', phase = 'leased', token = 't', worker = 'w', lease_until = due_at, ready = 0,"
            "execution_no = 1, started_at = updated_at"
        ),
    ),
    broken(
        "waiting job reclaimed",
        "blocked-taken",
        WAITING,
        *also_logged("job_requeued", "Waiting", "Queued"),
        row("status = 'Queued', phase = 'claimable', due_at = updated_at, wait_name = NULL"),
    ),
    broken(
        "held job claimed",
        "blocked-taken",
        job("streams", "waiting_approval"),
        *also_logged("task.claimed", "waiting_approval", "running", execution_no="1"),
        row(
            "status = 'running', phase = 'leased', token = 't', worker = 'w', lease_until = updated_at + 9,"
            "execution_no = 1, started_at = updated_at"
        ),
    ),
    broken(
        "waiting row made claimable",
        "blocked-taken",
        WAITING,
        row("status = 'Queued', phase = 'claimable', due_at = updated_at, wait_name = NULL"),
    ),
    broken(
        "rests among the dead letters",
        "follow-at-once",
        BURIED,
        "DELETE FROM events WHERE job_id = :job AND target = 'failed'",
        row("status = 'dlq_recorded', phase = 'blocked', finished_at = NULL, version = version - 1"),
    ),
    broken(
        "failed an hour after it was recorded",
        "follow-at-once",
        BURIED,
        event("at = at + 3600000000"),
        row("updated_at = updated_at + 3600000000, finished_at = finished_at + 3600000000"),
    ),
    broken("data cut off", "data-unreadable", RETRYING, event("data = substr(data, 1, 20)")),
    broken("data a list", "data-unreadable", RETRYING, event("data = '[1]'")),
)

ROWS = (
    broken(
        "status set by hand",
        "status-differs",
        job("standard", "queued", "execution_no = 0"),
        row("status = 'retrying', next_retry_at = due_at"),
    ),
    broken("status of another contract", "status-differs", job("men", "ready"), row("status = 'queued'")),
    broken("phase set by hand", "phase-differs", RUNNING, row("phase = 'claimable', due_at = updated_at")),
    broken("execution counted twice", "executions-differ", DONE, row("execution_no = 2")),
    broken("failure forgotten", "failures-differ", RETRYING, row("failures = 0, retries = 0")),
    broken(
        "charge rewritten",
        "failures-differ",
        job("standard", "interrupted"),
        event("data = json_set(data, '$.charged', json('false'))"),
    ),
    broken("retry not counted", "retries-differ", RETRYING, row("retries = 0")),
    broken(
        "formal expiry counted as a retry",
        "retries-differ",
        "SELECT min(job_id) FROM events WHERE event = 'job_requeued' AND data LIKE '%lease_expired%'",
        row("retries = 1"),
    ),
    broken("interruption forgotten", "interruptions-differ", job("p3c", "interrupted"), row("interruptions = 0")),
    broken(
        "reopening keeps the old count",
        "failures-differ",
        job("formal", "Queued", "execution_no = 4"),
        row("failures = 4, retries = 3"),
    ),
    broken("event of another execution", "event-counters", DONE, event("execution_no = 7")),
    broken("event with another retry count", "event-counters", DONE, event("retries = 1")),
    broken("tried too often", "budget-exceeded", job("standard", "retrying"), row("max_retries = 0")),
    broken("lost too often", "budget-exceeded", job("standard", "interrupted", "failures = 2"), row("max_retries = 0")),
    broken("gate-b2 with other retries", "budget-exceeded", job("gate-b2", "queued"), row("max_retries = 5")),
    broken("clock ran backwards", "time-backwards", DONE, event("at = at - 60000000", "2")),
    broken("an event out of time", "time-backwards", AGAIN_DONE, event("at = at + 3600000000", "3")),
    broken("an event before its time", "time-backwards", AGAIN_DONE, event("at = at - 3600000000", "4")),
    broken("creation moved", "created-differs", DONE, row("created_at = created_at - 1")),
    broken("update not stamped", "updated-differs", DONE, row("updated_at = created_at")),
    broken("start moved", "started-differs", DONE, row("started_at = created_at")),
    broken("end moved", "finished-differs", DONE, row("finished_at = finished_at + 1")),
    broken("ended without a time", "finished-differs", DONE, row("finished_at = NULL")),
    broken("held without a token", "lease-missing", RUNNING, row("token = NULL")),
    broken("held without a lease", "lease-missing", RUNNING, row("lease_until = NULL")),
    broken("held by nobody", "lease-missing", RUNNING, row("worker = NULL")),
    broken("lease over before it began", "lease-missing", RUNNING, row("lease_until = 1")),
    broken("worker left on an ended job", "lease-left", DONE, row("worker = 'w9'")),
    broken("lease left on a retry", "lease-left", RETRYING, row("lease_until = updated_at")),
    broken("worker left behind", "lease-left", RETRYING, row("worker = 'w9'")),
    broken("lease left behind", "lease-left", DONE, row("lease_until = updated_at")),
    broken(
        "token before any claim",
        "token-unearned",
        job("standard", "queued", "execution_no = 0"),
        row("token = 'stolen'"),
    ),
    broken("token wiped", "token-unearned", DONE, row("token = NULL")),
    broken("never due", "due-missing", job("gate-b2", "queued"), row("due_at = NULL")),
    broken("an ended job marked ready", "due-missing", DONE, row("ready = 1")),
    broken("a blocked job marked ready", "due-missing", WAITING, row("ready = 1")),
    broken("a running job marked ready", "due-missing", RUNNING, row("ready = 1")),
    broken(
        "retry moved",
        "due-differs",
        job("formal", "Queued", "retries = 1 AND execution_no = 1"),
        row("due_at = due_at + 5"),
    ),
    broken(
        "timeout of a wait moved",
        "due-differs",
        job("standard", "parked", "due_at IS NOT NULL"),
        row("due_at = due_at + 5"),
    ),
    broken("next_retry_at lost", "retry-at-differs", job("p3c", "retry_scheduled"), row("next_retry_at = NULL")),
    broken(
        "next_retry_at outside its status", "retry-at-differs", job("p3c", "interrupted"), row("next_retry_at = due_at")
    ),
    broken(
        "next_retry_at is not the due time",
        "retry-at-differs",
        job("p3c", "retry_scheduled"),
        row("next_retry_at = next_retry_at + 1"),
    ),
    broken(
        "p3c retry time not the log's",
        "due-differs",
        job("p3c", "retry_scheduled"),
        row("next_retry_at = next_retry_at + 1, due_at = due_at + 1"),
    ),
    broken("waits for another name", "wait-differs", WAITING, row("wait_name = 'other'")),
    broken("waits after its end", "wait-differs", DONE, row("wait_name = 'answer'")),
    broken("waits while it is due", "wait-differs", RETRYING, row("wait_name = 'answer'")),
    broken("waits while it runs", "wait-differs", RUNNING, row("wait_name = 'answer'")),
)

OTHERS = (
    broken("key lost", "key-missing", KEYED, "DELETE FROM keys WHERE job_id = :job"),
    broken(
        "task key lost",
        "key-missing",
        "SELECT id FROM jobs WHERE contract = 'men' AND task_id = 'T-1'",
        "DELETE FROM keys WHERE job_id = :job AND key = 'T-1'",
    ),
    broken("key given to another", "key-taken", KEYED, f"UPDATE keys SET job_id = ({DONE}) WHERE job_id = :job"),
    broken(
        "two jobs bear one key",
        "key-taken",
        "SELECT id FROM jobs WHERE idempotency_key = 'other-p3c'",
        row("idempotency_key = 'key-p3c'"),
    ),
    broken("tenant moved", "key-missing", KEYED, row("tenant_id = 'elsewhere'")),
    broken(
        "key without a bearer",
        "key-stray",
        DONE,
        owned('["standard","key","default",null]', ":job"),
    ),
    broken("key of a lost job", "key-without-job", None, owned('["p3c","key"]', GHOST)),
    broken("run without a number", "attempt-missing", job("p3c", "queued"), row("task_attempt = NULL")),
    broken("number without runs", "attempt-missing", DONE, row("task_attempt = 1, task_id = 'T-9'")),
    broken(
        "run skipped",
        "attempt-gap",
        "SELECT id FROM jobs WHERE task_id = 'T-1' AND task_attempt = 3",
        row("task_attempt = 4"),
    ),
    broken(
        "run numbered twice",
        "attempt-gap",
        None,
        "DROP INDEX jobs_task",
        "UPDATE jobs SET task_attempt = 2 WHERE task_id = 'T-1' AND task_attempt = 3",
    ),
    broken("dead letter lost", "dead-letter-missing", BURIED, "DELETE FROM dead_letters WHERE job_id = :job"),
    broken("dead letter not named", "dead-letter-missing", BURIED, row("dlq_id = NULL")),
    broken("dead letter its job does not know", "dead-letter-differs", BURIED, row("dlq_id = NULL")),
    broken(
        "names another's dead letter",
        "dead-letter-missing",
        job("standard", "failed", "retries = 3"),
        row(f"dlq_id = (SELECT dlq_id FROM jobs WHERE id = ({BURIED}))"),
    ),
    broken("dead letter of a sound job", "dead-letter-unearned", DONE, row("dlq_id = 'd1'")),
    broken(
        "rejected with a dead letter",
        "dead-letter-unearned",
        job("standard", "failed", "execution_no = 0"),
        f"UPDATE dead_letters SET job_id = :job WHERE id = (SELECT dlq_id FROM jobs WHERE id = ({BURIED}))",
    ),
    broken(
        "dead letter of another tenant",
        "dead-letter-differs",
        BURIED,
        "UPDATE dead_letters SET tenant_id = 'elsewhere' WHERE job_id = :job",
    ),
    broken(
        "dead letter with another count",
        "dead-letter-differs",
        BURIED,
        "UPDATE dead_letters SET retries = 1 WHERE job_id = :job",
    ),
    broken(
        "two dead letters",
        "dead-letter-twice",
        BURIED,
        "CREATE TABLE copied AS SELECT * FROM dead_letters",
        "DROP TABLE dead_letters",
        "ALTER TABLE copied RENAME TO dead_letters",
        f"CREATE TABLE more AS SELECT * FROM dead_letters WHERE id = {ITEM}",
        "UPDATE more SET id = 'copy'",
        "INSERT INTO dead_letters SELECT * FROM more",
    ),
    broken(
        "a second dead letter, unnamed",
        "dead-letter-differs",
        BURIED,
        f"CREATE TABLE more AS SELECT * FROM dead_letters WHERE id = {ITEM}",
        "UPDATE more SET id = 'copy', retries = 2",
        "INSERT INTO dead_letters SELECT * FROM more",
    ),
    broken(
        "dead letter of nobody",
        "dead-letter-orphan",
        None,
        f"UPDATE dead_letters SET job_id = {GHOST} WHERE job_id = ({BURIED})",
    ),
    broken(
        "requeued item names nobody",
        "requeue-link",
        REQUEUED,
        f"UPDATE dead_letters SET requeued_as = {GHOST} WHERE job_id = :job",
    ),
    broken(
        "requeued item is open again",
        "requeue-link",
        REQUEUED,
        "UPDATE dead_letters SET status = 'open' WHERE job_id = :job",
    ),
    broken(
        "new job forgets its origin",
        "requeue-link",
        REQUEUED,
        "UPDATE jobs SET requeued_from = NULL WHERE id = (SELECT requeued_as FROM dead_letters WHERE job_id = :job)",
    ),
    broken(
        "made from a dead letter of another",
        "requeue-link",
        MADE,
        row(f"requeued_from = (SELECT dlq_id FROM jobs WHERE id = ({BURIED}))"),
    ),
    broken("made from nothing", "requeue-link", AGAIN, row("requeued_from = 'thin air'")),
    broken(
        "one person discards",
        "discard-people",
        DISCARDED,
        f"UPDATE audit SET actor = 'bo' WHERE subject = {ITEM} AND act = 'dlq.discard.propose'",
    ),
    broken(
        "discard never confirmed",
        "discard-people",
        DISCARDED,
        f"DELETE FROM audit WHERE subject = {ITEM} AND act = 'dlq.discard'",
    ),
    broken(
        "discarded by hand",
        "discard-people",
        BURIED,
        "UPDATE dead_letters SET status = 'discarded' WHERE job_id = :job",
    ),
    broken("discard off the record", "discard-people", ALONE, f"DELETE FROM audit WHERE subject = {ITEM}"),
    broken(
        "discard without a reason",
        "discard-reason",
        DISCARDED,
        f"UPDATE audit SET reason = '  ' WHERE subject = {ITEM} AND act = 'dlq.discard'",
    ),
    broken(
        "proposal without a reason",
        "discard-reason",
        DISCARDED,
        f"UPDATE audit SET reason = NULL WHERE subject = {ITEM} AND act = 'dlq.discard.propose'",
    ),
    broken("job row lost", "event-orphan", DONE, "DELETE FROM jobs WHERE id = :job"),
    broken("last job row lost", "event-orphan", "SELECT max(id) FROM jobs", "DELETE FROM jobs WHERE id = :job"),
    broken("note of nobody", "note-orphan", None, f"UPDATE notes SET job_id = {GHOST}"),
    broken("step of nobody", "step-orphan", None, f"UPDATE steps SET job_id = {GHOST} || job_id"),
    broken("step from the future", "step-unearned", STEPPED, "UPDATE steps SET execution_no = 9 WHERE job_id = :job"),
    broken("step before the first run", "step-unearned", STEPPED, "UPDATE steps SET execution_no = 0"),
    broken("step without a result", "step-empty", STEPPED, "UPDATE steps SET result = NULL WHERE job_id = :job"),
    broken("parcel of nobody", "parcel-orphan", None, f"UPDATE outbox SET job_id = {GHOST} || job_id"),
    broken(
        "takeover from nobody",
        "takeover-unnamed",
        "SELECT job_id FROM events WHERE event = 'task.reclaimed' ORDER BY job_id LIMIT 1",
        "UPDATE events SET data = replace(data, 'old_consumer', 'somebody') WHERE job_id = :job",
    ),
    broken("signal of nobody", "signal-orphan", None, f"UPDATE signals SET job_id = {GHOST} || job_id"),
    broken(
        "note from the future",
        "note-adrift",
        "SELECT min(job_id) FROM notes",
        "UPDATE notes SET seq = 99 WHERE job_id = :job",
    ),
    broken(
        "cancelled job reopened",
        "final-reopened",
        job("formal", "Failed", "execution_no = 1"),
        *also_logged("job_requeued", "Failed", "Queued"),
        row("status = 'Queued', phase = 'claimable', due_at = updated_at, finished_at = NULL, failures = 0"),
    ),
    broken(
        "another table declared",
        "contract-changed",
        None,
        "UPDATE contracts SET definition = replace(definition, 'job.released', 'job.gone') WHERE name = 'standard'",
    ),
)

CORRUPTIONS = LOGS + ROWS + OTHERS + FIRES + RELATIONS
