"""Replaying events against a contract: the gate-b2 acceptance cases, and histories from files."""
