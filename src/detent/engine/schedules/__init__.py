"""Schedules: definitions, due fires, backfill."""
