"""Orders, their payment and approval, and the nightly report."""
