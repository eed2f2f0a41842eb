"""Replaying a history of events against a contract."""
