"""Routes for jobs, dead letters, approvals, events and the worker protocol over HTTP."""
