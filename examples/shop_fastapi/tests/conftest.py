"""Orders in SQLite in memory, jobs in memory: the tests need no server."""

import os
import warnings
from collections.abc import Iterator

os.environ["DATABASE_URL"] = "sqlite://"
os.environ["SHOP_STAFF"] = "ann:secret:operator,lea:secret:reviewer"

import pytest
from shop import jobs, models
from sqlalchemy import create_engine
from sqlalchemy.pool import StaticPool

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Starlette prefers another version of httpx
    from fastapi.testclient import TestClient

from detent.testing.memory import TestWorker


@pytest.fixture
def client(detent_worker: TestWorker, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    from shop import api

    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    for module in (models, jobs, api):
        monkeypatch.setattr(module, "engine", engine)
    with TestClient(api.api, follow_redirects=False) as client:
        yield client
    engine.dispose()
