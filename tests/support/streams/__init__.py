"""Orchestrators and workers on a stream, in this process and in processes of their own."""
