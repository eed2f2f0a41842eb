"""What every test of the project may ask for."""

import signal

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background: processes of ours would inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Coroutine tests (marked anyio) share one asyncio loop."""
    return "asyncio"
