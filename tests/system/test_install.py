"""The wheel in an empty environment: what it brings, how large that is, and that the quickstart runs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHONS = [name for name in ("python3.11", "python3.12", "python3.13", "python3.14") if shutil.which(name)]
MAX_MEGABYTES = 45
MAX_IMPORT_SECONDS = 0.2
SERVER = ("fastapi", "starlette", "uvicorn", "jinja2", "prometheus_client", "asyncpg", "redis")
IMPORT = """import time
begin = time.process_time()
import detent
print(time.process_time() - begin)"""


def run(*command: str | Path, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DETENT"))}
    done = subprocess.run(command, env=clean | environment, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, f"{command}: {done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    return next(folder.glob("*.whl"))


def works(python: str) -> bool:
    """A shim of pyenv exists for versions that are not selected."""
    return subprocess.run([python, "-c", "import venv, ensurepip"], capture_output=True, check=False).returncode == 0


@pytest.mark.drill
@pytest.mark.parametrize("python", [python for python in PYTHONS if works(python)])
def test_the_core_is_light_and_runs_the_quickstart(python: str, wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "venv"
    run(python, "-m", "venv", home)
    run(home / "bin" / "python", "-m", "pip", "install", "--quiet", wheel)
    packages = next(home.glob("lib/python*/site-packages"))
    for name in ("pip", "setuptools", "pkg_resources", "_distutils_hack"):
        for folder in packages.glob(f"{name}*"):
            shutil.rmtree(folder) if folder.is_dir() else folder.unlink()
    assert not [name for name in SERVER if (packages / name).exists()]
    sizes = [int(run("du", "-s", "-k", *option, packages).split()[0]) / 1_024 for option in ([], ["--apparent-size"])]
    print(f"{python}: {sizes[0]:.1f} MB on disk, {sizes[1]:.1f} MB of files")
    assert max(sizes) <= MAX_MEGABYTES

    detent, url = home / "bin" / "detent", f"sqlite:///{tmp_path / 'jobs.db'}"
    run(detent, "enqueue", "greet", "--payload", '{"name": "you"}', DETENT_URL=url)
    run(detent, "worker", ROOT / "examples" / "quickstart.py", "--until-idle", DETENT_URL=url)
    assert '"result":"hello you"' in run(detent, "jobs", "export", "--json", DETENT_URL=url)

    seconds = min(float(run(home / "bin" / "python", "-c", IMPORT)) for _ in range(10))
    print(f"{python}: import detent takes {seconds:.3f} s of CPU")
    assert seconds <= MAX_IMPORT_SECONDS
