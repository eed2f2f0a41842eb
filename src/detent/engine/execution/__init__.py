"""Executing jobs: settling, steps, sweeps, children, approvals."""
