"""Commands that examine: doctor, stats, verify, replay, simulate."""
