"""Tests of the worker: machine, heart, sweeper, and real processes that are killed, frozen and asked to end."""
