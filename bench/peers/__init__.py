"""One script a contestant: a client that speaks JSON lines with the harness, and its worker."""
