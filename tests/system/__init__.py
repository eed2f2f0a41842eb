"""Tests of the mechanisms that stores, engine and workers share."""
