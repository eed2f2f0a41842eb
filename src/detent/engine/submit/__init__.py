"""Submitting jobs: checks, idempotency keys, tenant quotas."""
