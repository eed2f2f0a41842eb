"""Worker processes on Postgres, and many rows at once."""
