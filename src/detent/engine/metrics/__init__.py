"""Event counts, time series and alerts, computed from the log."""
