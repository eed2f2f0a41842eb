"""The simulator: seeded runs in virtual time with injected faults."""
