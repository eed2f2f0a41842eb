"""Seeing it run: tallies, alerts, metrics, workers, logs, traces, retention."""
