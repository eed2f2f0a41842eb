"""Stream messages compared with the database."""
