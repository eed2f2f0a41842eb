"""Routes for operators: queues, limits, schedules, workers, alerts, tokens, audit log, health."""
