"""Real servers and proxies, started by the tests that need them."""
