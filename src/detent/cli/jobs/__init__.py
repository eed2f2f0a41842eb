"""Commands about jobs, dead letters and schedules."""

from . import actions, approvals  # they add their commands to the group of `jobs`

__all__ = ["actions", "approvals"]
