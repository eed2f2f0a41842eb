"""A healthy database and the corruptions that `verify` must report."""
