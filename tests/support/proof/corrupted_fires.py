"""Corruptions of schedules and their runs (fires)."""

from support.proof.planting import corrupt, row

FIRED = "SELECT job_id FROM detent_fires ORDER BY fire_at LIMIT 1"
TICK = "UPDATE detent_schedules SET {} WHERE name = 'tick'"
MISSING_JOB = "01900000-0000-7000-8000-000000000000"

FIRES = (
    corrupt("fire not recorded", "fire-missing", FIRED, "DELETE FROM detent_fires WHERE job_id = :job"),
    corrupt(
        "one fire, two jobs",
        "fire-missing",
        "SELECT max(job_id) FROM detent_fires",
        row(f"idempotency_key = (SELECT idempotency_key FROM detent_job_list WHERE id = ({FIRED}))"),
    ),
    corrupt(
        "job of a fire lost",
        "fire-without-job",
        FIRED,
        "DELETE FROM detent_event_list WHERE job_id = :job",
        "DELETE FROM detent_keys WHERE job_id = :job",
        "DELETE FROM detent_job_list WHERE id = :job",
    ),
    corrupt("fire of another moment", "fire-differs", FIRED, row("scheduled_at = scheduled_at + 1")),
    corrupt("fire under another key", "fire-differs", FIRED, row("idempotency_key = 'mine'")),
    corrupt(
        "next run not given by the expression", "schedule-astray", None, TICK.format("next_fire_at = next_fire_at + 1")
    ),
    corrupt("schedule set back", "schedule-set-back", None, TICK.format("next_fire_at = last_fire_at")),
    corrupt("schedule with an invalid expression", "schedule-astray", None, TICK.format("expression = 'nonsense'")),
    corrupt("last run not recorded", "schedule-unfired", None, TICK.format("last_fire_at = last_fire_at - 1")),
    corrupt("last job not recorded", "schedule-unfired", None, TICK.format(f"last_job_id = '{MISSING_JOB}'")),
)
