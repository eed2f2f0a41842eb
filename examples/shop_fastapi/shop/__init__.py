"""A shop: orders, payment, approval of large orders, and a nightly report."""
