"""Routes about the installation: queues, schedules, tokens, workers, health."""
