"""Proof: instruments that show that logs, rows and contracts agree. They read and report; they repair nothing."""
