"""Commands about queues, limits, workers, tokens, alerts, contracts."""
