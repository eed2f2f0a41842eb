"""Real servers for the tests: from an address, from the PATH, or from the wheels that carry them."""
