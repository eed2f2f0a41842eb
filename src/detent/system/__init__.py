"""The system clock and the sources of ids."""
