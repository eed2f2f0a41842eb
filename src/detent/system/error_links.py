"""The address of an error code in the documentation of this version."""

import os

from detent.version import __version__

DOCS_URL = "https://detent.example/docs"


def error_link(code: str) -> str:
    """Where the code is explained: below $DETENT_DOCS_URL, else below the address of the project's documentation.

    error_link("JOB_NOT_FOUND")  # https://detent.example/docs/0.1/reference/errors/#job_not_found
    """
    base = os.environ.get("DETENT_DOCS_URL", "").rstrip("/") or DOCS_URL
    release = ".".join(__version__.split(".")[:2])
    return f"{base}/{release}/reference/errors/#{code.lower()}"
