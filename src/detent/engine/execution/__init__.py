"""Running jobs: settling, steps, sweeping, children, approvals."""
