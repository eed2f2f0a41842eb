"""What every HTTP request passes through: authentication, limits, idempotency, problems."""
