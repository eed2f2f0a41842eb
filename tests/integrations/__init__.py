"""The integrations with frameworks, against the real frameworks."""
