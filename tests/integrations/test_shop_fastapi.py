"""The tests of examples/shop_fastapi, in this process; test_examples.py runs them from the wheel."""

import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from unittest import mock

import pytest

from detent import Detent
from support.fastapi.client import TestClient  # before the example imports it, because of its warning

EXAMPLE = Path(__file__).parents[2] / "examples" / "shop_fastapi"
assert TestClient


def load(name: str) -> ModuleType:
    spec = spec_from_file_location(f"shop_fastapi_{name}", EXAMPLE / "tests" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


with mock.patch.dict(os.environ), mock.patch.object(sys, "path", [str(EXAMPLE), *sys.path]):
    client = load("conftest").client
    from shop import api, jobs  # type: ignore[import-not-found]

    globals().update({name: value for name, value in vars(load("test_shop")).items() if name.startswith("test_")})
assert api.api


@pytest.fixture
def detent_application() -> Detent:
    app: Detent = jobs.jobs
    return app


def test_all_tests_are_here() -> None:
    assert len([name for name in globals() if name.startswith("test_")]) == 6
