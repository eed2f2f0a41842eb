"""What only Postgres can get wrong; the suite it shares with SQLite is in tests/engine."""
