"""Tests of the worker: its machine, its heart, its sweeper, and real processes that are killed, stopped and asked to end."""
