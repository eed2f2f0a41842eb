"""Contracts: tables of statuses, edges and rules that define the lifecycle of a job."""
