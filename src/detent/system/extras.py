"""The extras of the package: what only `pip install "detent[EXTRA]"` installs."""

from collections.abc import Iterator
from contextlib import contextmanager

from detent.core.errors import ExtraMissing

EXTRAS = {
    "otel": ("opentelemetry",),
    "postgres": ("asyncpg",),
    "redis": ("redis", "hiredis"),
    "server": ("fastapi", "jinja2", "prometheus_client", "starlette", "uvicorn"),
}
"""Extra -> the modules it installs."""


@contextmanager
def extra_imports() -> Iterator[None]:
    """For a block of imports that need an extra. Raises ExtraMissing (EXTRA_MISSING) if it is not installed.

    with extra_imports():
        import asyncpg
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        for extra in (extra for extra, modules in EXTRAS.items() if module in modules):
            command = f'pip install "detent[{extra}]"'
            raise ExtraMissing(f"{module} is not installed; run: {command}", extra=extra) from None
        raise
