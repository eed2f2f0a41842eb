"""Metrics, logs, alerts, retention and their settings."""
