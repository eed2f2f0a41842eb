"""Event counts, alerts, metrics, workers, logs, traces, retention, doctor."""
