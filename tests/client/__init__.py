"""Tests of the Python API: declaring, enqueueing, waiting for results, with and without an event loop."""
