"""Commands about jobs, dead letters and schedules."""
