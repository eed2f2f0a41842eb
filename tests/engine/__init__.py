"""The conformance suite of engine and stores: one body, run over every store."""
