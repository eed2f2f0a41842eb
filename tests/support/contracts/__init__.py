"""Jobs and contracts for tests of the core."""
