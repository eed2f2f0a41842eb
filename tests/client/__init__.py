"""The Python API: declaring and enqueueing jobs, waiting for results, with and without an event loop."""
