"""Proof: tools that check whether logs, rows and contracts agree. They read and report; they repair nothing."""
