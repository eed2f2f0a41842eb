"""What a job handler uses: its context with steps, waits, children and approvals, and the outcomes it can raise."""
