"""Schedules: definitions, due runs, backfill."""
