"""Wheel and sdist in an empty environment: what they bring, how large that is, and that the quickstart runs."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from detent.version import __version__
from support.servers.programs import program

ROOT = Path(__file__).parents[2]
PYTHONS = [name for name in ("python3.11", "python3.12", "python3.13", "python3.14") if shutil.which(name)]
MAX_MEGABYTES = 45
MAX_IMPORT_SECONDS = 0.2
SERVER = ("fastapi", "starlette", "uvicorn", "jinja2", "prometheus_client", "asyncpg", "redis")
_BUILD = """import os, sys
from hatchling.build import build_sdist, build_wheel
os.chdir(sys.argv[1])
build_wheel(sys.argv[2])
build_sdist(sys.argv[2])"""
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
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist, built without network from the files that git knows."""
    folder, source = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("source")
    names = run(
        program("git", "it lists the files of the source"),
        "-C",
        ROOT,
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "-z",
    ).split("\0")
    for name in filter(None, names):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, source / name)
    run(sys.executable, "-c", _BUILD, source, folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return next(built.glob("*.whl"))


def test_wheel_and_sdist_are_complete(built: Path, wheel: Path) -> None:
    """Every file of the package is in the wheel; the sdist also has what its tests need. Both have the version."""
    packaged = {path.relative_to(ROOT / "src") for path in (ROOT / "src").rglob("*") if path.is_file()}
    expected = {str(path) for path in packaged if "__pycache__" not in path.parts}
    with zipfile.ZipFile(wheel) as archive:
        assert expected - set(archive.namelist()) == set()
    assert wheel.name == f"detent-{__version__}-py3-none-any.whl"
    with tarfile.open(built / f"detent-{__version__}.tar.gz") as sdist:
        names = set(sdist.getnames())
    wanted = (
        "src/detent/py.typed",
        "tests/conftest.py",
        "docs/start/install.md",
        "deploy/Dockerfile",
        "LICENSE",
        "Makefile",
    )
    assert [name for name in wanted if f"detent-{__version__}/{name}" not in names] == []


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


@pytest.mark.drill
def test_the_sdist_installs(built: Path, tmp_path: Path) -> None:
    home = tmp_path / "venv"
    run(sys.executable, "-m", "venv", home)
    run(home / "bin" / "python", "-m", "pip", "install", "--quiet", next(built.glob("*.tar.gz")))
    assert run(home / "bin" / "detent", "--version").strip() == f"detent {__version__}"
