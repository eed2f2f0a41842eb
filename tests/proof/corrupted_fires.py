"""Planted corruptions of schedules and their fires."""

from .planting import broken, row

FIRED = "SELECT job_id FROM fires ORDER BY fire_at LIMIT 1"
TICK = "UPDATE schedules SET {} WHERE name = 'tick'"
GHOST = "01900000-0000-7000-8000-000000000000"

FIRES = (
    broken("fire not recorded", "fire-missing", FIRED, "DELETE FROM fires WHERE job_id = :job"),
    broken(
        "one fire, two jobs",
        "fire-missing",
        "SELECT max(job_id) FROM fires",
        row(f"idempotency_key = (SELECT idempotency_key FROM jobs WHERE id = ({FIRED}))"),
    ),
    broken(
        "job of a fire lost",
        "fire-without-job",
        FIRED,
        "DELETE FROM events WHERE job_id = :job",
        "DELETE FROM keys WHERE job_id = :job",
        "DELETE FROM jobs WHERE id = :job",
    ),
    broken("fire of another moment", "fire-differs", FIRED, row("scheduled_at = scheduled_at + 1")),
    broken("fire under another key", "fire-differs", FIRED, row("idempotency_key = 'mine'")),
    broken("schedule between its fires", "schedule-astray", None, TICK.format("next_fire_at = next_fire_at + 1")),
    broken("schedule set back", "schedule-set-back", None, TICK.format("next_fire_at = last_fire_at")),
    broken("schedule nobody can read", "schedule-astray", None, TICK.format("expression = 'nonsense'")),
    broken("last fire made up", "schedule-unfired", None, TICK.format("last_fire_at = last_fire_at - 1")),
    broken("last job made up", "schedule-unfired", None, TICK.format(f"last_job_id = '{GHOST}'")),
)
