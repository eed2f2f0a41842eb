"""Settling and claiming on Postgres: the statements of claim_parts.sql, their parameters and their results."""
