"""Enqueueing in the caller's own transaction, on every driver, against a real server."""
