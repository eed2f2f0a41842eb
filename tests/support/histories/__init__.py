"""Histories of client calls, recorded from outside and checked by a model of its own."""
