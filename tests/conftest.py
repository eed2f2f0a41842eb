"""What every test of the project may ask for."""

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Coroutine tests (marked anyio) share one asyncio loop."""
    return "asyncio"
