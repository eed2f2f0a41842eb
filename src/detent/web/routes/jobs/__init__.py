"""Routes about jobs, dead letters, events and workers in other languages."""
