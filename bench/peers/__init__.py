"""One module per contestant: a client that the harness controls with JSON lines, and a worker."""
