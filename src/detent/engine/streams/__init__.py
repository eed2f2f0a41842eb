"""Stream messages and results applied to jobs in the database."""
