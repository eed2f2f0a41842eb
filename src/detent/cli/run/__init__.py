"""Commands that run until stopped, and the benchmark."""
