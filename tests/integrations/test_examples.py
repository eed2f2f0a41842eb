"""The example projects and the fixtures: from the source, and from an environment with the installed wheel."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.web.served import SOURCES

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
TESTS = {
    "test_asyncio.py": """
import pytest


@pytest.mark.asyncio
async def test_a_job(detent_app, detent_worker):
    @detent_app.job("add")
    def add(a: int, b: int) -> int:
        return a + b

    handle = await add.enqueue(a=1, b=2)
    await detent_worker.drain()
    assert await handle.result(timeout=0) == 3
""",
    "test_anyio.py": """
import pytest


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.mark.anyio
@pytest.mark.parametrize("number", range(8))
async def test_a_job(detent_app, detent_worker, number):
    @detent_app.job("add")
    async def add(a: int) -> int:
        return a + number

    handle = await add.enqueue(a=1)
    await detent_worker.drain()
    assert await handle.result(timeout=0) == 1 + number
    assert len(detent_worker.enqueued(add)) == 1
""",
    "test_plain.py": """
def test_a_job(detent_app, detent_worker):
    @detent_app.job("add")
    def add(a: int) -> int:
        return a + 1

    with detent_worker.eager():
        assert detent_app.sync.enqueue(add, a=1).result(timeout=0) == 2
""",
}


def run(command: list[str | Path], folder: Path, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DETENT", "PYTEST"))}
    done = subprocess.run(
        command, cwd=folder, env=clean | environment, capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout + done.stderr


def test_the_shop_with_django() -> None:
    output = run([sys.executable, "manage.py", "test"], EXAMPLES / "shop_django", PYTHONPATH=SOURCES)
    assert "Ran 5 tests" in output


@pytest.mark.drill
def test_from_the_wheel(tmp_path: Path) -> None:
    """The examples and the fixtures with pytest-asyncio, anyio, plain functions, xdist and Django's TestCase."""
    run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, ROOT], tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    home = tmp_path / "venv"
    run([sys.executable, "-m", "venv", home], tmp_path)
    python = home / "bin" / "python"
    extras = f"{wheel}[server,postgres,django,sqlalchemy]"
    packages = ["psycopg[binary]", "django-tasks", "httpx", "pytest", "pytest-asyncio", "pytest-xdist", "anyio"]
    run([python, "-m", "pip", "install", "--quiet", extras, *packages], tmp_path)
    for name in ("shop_fastapi", "shop_django"):
        shutil.copytree(EXAMPLES / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    assert "5 passed" in run([python, "-m", "pytest", "-q"], tmp_path / "shop_fastapi")
    assert "Ran 5 tests" in run([python, "manage.py", "test"], tmp_path / "shop_django")
    django = ["-m", "pytest", "-q", "-p", "no:asyncio", "orders/tests.py"]
    setup = "import django; django.setup()\nfrom django.test.utils import setup_databases, setup_test_environment\n"
    (tmp_path / "shop_django" / "conftest.py").write_text(
        f"{setup}setup_test_environment(); setup_databases(0, False)\n"
    )
    assert "5 passed" in run([python, *django], tmp_path / "shop_django", DJANGO_SETTINGS_MODULE="shop.settings")
    folder = tmp_path / "fixtures"
    folder.mkdir()
    for name, text in TESTS.items():
        (folder / name).write_text(text)
    options = ["-o", "asyncio_default_fixture_loop_scope=function"]
    assert "10 passed" in run([python, "-m", "pytest", "-q", *options], folder)
    assert "10 passed" in run([python, "-m", "pytest", "-q", "-n", "2", *options], folder)
