"""Limits, pauses, tenant quotas and API tokens: what operators set."""
