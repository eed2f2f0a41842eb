"""The real clock and the real source of ids."""
