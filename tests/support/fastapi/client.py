"""Starlette's TestClient. It warns on import that it prefers another version of httpx, which the tests do not use."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

__all__ = ["TestClient"]
