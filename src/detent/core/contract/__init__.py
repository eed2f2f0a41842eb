"""Contracts: the declared table of statuses, edges and rules that a job obeys."""
