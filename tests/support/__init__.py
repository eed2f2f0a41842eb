"""Helpers of the tests: clocks, stores, servers, processes, and what several test files share."""

from pathlib import Path

SUPPORT = Path(__file__).parent
