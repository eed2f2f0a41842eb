"""Read-only views: lists, one job, why it is not running, workers, stats."""
