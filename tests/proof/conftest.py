"""Fixtures for the tests of proofs."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_log_of_simulated_failures(request: pytest.FixtureRequest) -> Iterator[None]:
    """Simulated losses are logged with tracebacks, which would take a third of the time of a simulation."""
    log = logging.getLogger("detent")
    before = log.level
    if "simulat" in request.node.name or "simulate" in request.node.path.name:
        log.setLevel(logging.CRITICAL + 1)
    yield
    log.setLevel(before)
