"""What a job handler sees: its context, steps, children, approvals, outcomes."""
