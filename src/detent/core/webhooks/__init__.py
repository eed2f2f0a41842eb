"""Webhooks: subscriptions to events of jobs, and the signature of their requests."""
