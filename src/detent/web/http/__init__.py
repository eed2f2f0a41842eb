"""What every HTTP request passes through: authentication, limits, idempotency keys, error responses, headers."""
