"""Stores: where jobs are kept. A store writes the changes that the core decided and makes no decisions of its own."""
