"""What operators and other callers do to jobs, dead letters, limits, tokens."""
