"""The style guide as a test: the rules over src/detent, then each rule on planted snippets, to fail."""

import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import tidy
from tidy import Finding, Source

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "detent"
CODE = {".py", ".sql", ".js", ".lua"}
PHASES = {"claimable", "leased", "blocked", "final"}
NOT_OURS = {
    ".git",
    ".venv",
    "__pycache__",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".hypothesis",
    "dist",
}

# (path below src/detent, call) -> reason. For threads that must wait or look at a clock of their own.
CLOCK_ALLOWED: dict[tuple[str, str], str] = {}

# (path below src/detent, word) -> reason. For a word that is a status elsewhere and is not one here.
STATUS_ALLOWED: dict[tuple[str, str], str] = {
    ("transports/redis_streams/upkeep.py", "pending"): "a column of XINFO",
    ("core/alerts.py", "pending"): "the state of an alert, not of a job",
}


def test_imports_run_downwards() -> None:
    rooms = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    report(finding for source in modules() for finding in tidy.check_layers(source, rooms))


def test_files_are_short() -> None:
    report(finding for source in package(CODE) for finding in tidy.check_file_size(source))


def test_functions_are_short() -> None:
    report(finding for source in modules() for finding in tidy.check_function_size(source))


def test_clock_and_randomness_stay_behind_their_ports() -> None:
    report((finding for source in modules() for finding in tidy.check_repeatable(source)), CLOCK_ALLOWED)


def test_statuses_are_spelled_in_the_contracts_only() -> None:
    from detent.core.contract.builtin import CONTRACTS

    statuses = {status for contract in CONTRACTS.values() for status in contract.statuses} - PHASES
    assert len(CONTRACTS) >= 6 and {"queued", "retrying"} <= statuses
    sources = package({".py", ".sql"})
    report((finding for source in sources for finding in tidy.check_statuses(source, statuses)), STATUS_ALLOWED)


def test_nothing_is_left_unfinished() -> None:
    report(finding for source in package() for finding in tidy.check_finished(source))


def test_no_file_names_a_path_of_this_machine() -> None:
    found = [str(finding) for source in project() for finding in tidy.check_machine_paths(source)]
    assert not found, "\n".join(found)


def test_every_module_says_what_it_owns() -> None:
    report(finding for source in modules() for finding in tidy.check_docstring(source))


def report(findings: Iterable[Finding], allowed: dict[tuple[str, str], str] | None = None) -> None:
    left = tidy.without_allowed(findings, allowed or {})
    if left:
        pytest.fail("\n".join(["paths below src/detent:", *left]), pytrace=False)


def modules() -> list[Source]:
    return package({".py"})


def package(suffixes: set[str] | None = None) -> list[Source]:
    found = [path for path in sorted(PACKAGE.rglob("*")) if suffixes is None or path.suffix in suffixes]
    sources = list(texts(found, PACKAGE))
    assert sources, "the rule would pass over nothing"
    return sources


def project() -> list[Source]:
    """What git tracks or would add; without git, whatever lies here."""
    if shutil.which("git") and (ROOT / ".git").exists():
        listing = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "-co", "--exclude-standard"]
        names = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True, text=True).stdout
        found = [ROOT / name for name in names.split("\0") if name]
    else:
        found = [path for path in ROOT.rglob("*") if not NOT_OURS & set(path.relative_to(ROOT).parts)]
    sources = list(texts(found, ROOT))
    assert {"pyproject.toml", "tests/test_tidy.py"} <= {source.path for source in sources}
    return sources


def texts(paths: list[Path], base: Path) -> Iterator[Source]:
    for path in paths:
        if path.is_file() and "__pycache__" not in path.parts and b"\0" not in (data := path.read_bytes()):
            yield Source(path.relative_to(base).as_posix(), data.decode(errors="replace"))


ROOMS = {
    "core",
    "ports",
    "engine",
    "worker",
    "stores",
    "transports",
    "web",
    "cli",
    "proof",
    "contrib",
    "clock",
}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("core/job.py", "from detent.ports import Store"),
        ("core/job.py", "from ..ports import Store"),
        ("core/job.py", "from .. import engine"),
        ("core/contracts/men.py", "from ...engine import Engine"),
        ("core/job.py", "import detent"),
        ("core/job.py", "def f():\n    import asyncio"),
        ("core/job.py", "from os import path"),
        ("core/job.py", "from uuid import uuid4"),
        ("core/job.py", "import sqlite3, apsw"),
        ("ports.py", "from .engine import Engine"),
        ("ports.py", "from . import clock"),
        ("stores/sqlite/store.py", "from detent.engine import Engine"),
        ("stores/sqlite/store.py", "from ...transports import redis_streams"),
        ("stores/sqlite/store.py", "from detent import engine"),
        ("transports/redis_streams.py", "from detent.stores import sqlite"),
        ("engine.py", "from .stores.sqlite import SqliteStore"),
        ("engine.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .web import api"),
        ("engine.py", "from importlib import import_module\nimport_module('detent.stores.sqlite')"),
        ("engine.py", "from detent import Detent"),
        ("worker.py", "import detent.cli.main as m"),
        ("newroom.py", "from .proof import verify"),
        ("__init__.py", "from .web.api import create"),
        ("proof/verify.py", "from detent.web import api"),
        ("testing/django.py", "from ..cli import main"),
        ("web/api.py", "from ..cli import main"),
    ],
)
def test_layers_refuse(path: str, text: str) -> None:
    assert list(tidy.check_layers(Source(path, text), ROOMS))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            "core/decide.py",
            "from .contract import Move\nfrom detent.core import errors\nimport json, datetime",
        ),
        ("core/contracts/men.py", "from ..contract import Contract\nfrom . import p3c"),
        ("ports.py", "import asyncio\nfrom .core.job import Job"),
        ("engine.py", "from . import ports, clock\nfrom .core import decide\nfrom .worker import Worker"),
        ("stores/sqlite/store.py", "import apsw\nfrom .queries import Q\nfrom ...ports import Store"),
        ("app.py", "from .stores.sqlite import SqliteStore"),
        ("__init__.py", "from .app import Detent\nfrom .context import Context"),
        (
            "proof/simulate.py",
            "from detent.stores import sqlite\nfrom ..worker import Worker\nfrom detent import Detent",
        ),
        ("web/api.py", "from ..proof import verify\nfrom detent.contrib import prometheus"),
        ("cli/__init__.py", "def up():\n    from ..web import api\n    import detentish.cli"),
    ],
)
def test_layers_allow(path: str, text: str) -> None:
    assert not list(tidy.check_layers(Source(path, text), ROOMS))


def test_layers_name_file_and_line() -> None:
    source = Source("core/job.py", '"""Doc."""\n\nimport time\n')
    assert [str(finding) for finding in tidy.check_layers(source, ROOMS)] == [
        "core/job.py:3: core must stay pure and may not import time"
    ]


def test_file_size() -> None:
    assert not list(tidy.check_file_size(Source("a.sql", "x\n" * tidy.MAX_FILE_LINES)))
    assert list(tidy.check_file_size(Source("a.sql", "x\n" * (tidy.MAX_FILE_LINES + 1))))


@pytest.mark.parametrize("head", ["def f():\n", "async def f():\n", "class A:\n  def f(self):\n"])
def test_function_size(head: str) -> None:
    body = "    pass\n"
    assert not list(tidy.check_function_size(Source("a.py", head + body * (tidy.MAX_FUNCTION_LINES - 1))))
    assert list(tidy.check_function_size(Source("a.py", head + body * tidy.MAX_FUNCTION_LINES)))


@pytest.mark.parametrize(
    "text",
    [
        "import time\ntime.time()",
        "import time as t\nt.monotonic_ns()",
        "import time\ntime.sleep(1)",
        "from time import perf_counter as tick\ntick()",
        "from datetime import UTC, datetime\ndatetime.now(UTC)",
        "import datetime as dt\ndt.datetime.utcnow()",
        "from datetime import date\ndate.today()",
        "import random\nrandom.random()",
        "from random import Random\nRandom(1)",
        "import uuid\nuuid.uuid4().hex",
        "from uuid import uuid4\nfield(default_factory=uuid4)",
        "import secrets\nsecrets.token_hex()",
        "import os\nos.urandom(8)",
        "import time\ndef wait(now=time.monotonic): ...",
    ],
)
def test_clock_and_randomness_refuse(text: str) -> None:
    assert [finding.line for finding in tidy.check_repeatable(Source("engine.py", text))] == [2]
    assert not list(tidy.check_repeatable(Source("clock.py", text)))
    assert list(tidy.check_repeatable(Source("stores/clock.py", text))), "only the port's own file is exempt"


@pytest.mark.parametrize(
    "text",
    [
        "def f(clock): return clock.time() + clock.now()",
        "import random\ndef f(source: random.Random) -> float: return source.random()",
        "import uuid\nuuid.UUID('0' * 32)",
        "from datetime import datetime\ndatetime.fromisoformat('2026-01-01T00:00:00Z')",
        "import asyncio\nasyncio.sleep(0)",
    ],
)
def test_clock_and_randomness_allow(text: str) -> None:
    assert not list(tidy.check_repeatable(Source("engine.py", text)))


STATUSES = {"queued", "failed", "Running"}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("engine.py", "x = 1\nif job.status == 'queued': ..."),
        ("cli/jobs.py", "x = 1\nout = {'failed': 3}"),
        ("proof/verify.py", "match s:\n    case 'Running': ..."),
        ("stores/q.py", "x = 1\nq = \"SELECT 1 WHERE status = 'queued'\""),
        ("stores/q.py", "q = f'''SELECT {n}\nWHERE status <> 'failed' '''"),
        ("core/decide.py", "def f():\n    return 'failed'"),
        ("stores/sqlite/claim.sql", "-- it's a claim\nSELECT 1 FROM jobs WHERE status IN ('x', 'queued')"),
    ],
)
def test_statuses_refuse(path: str, text: str) -> None:
    assert [finding.line for finding in tidy.check_statuses(Source(path, text), STATUSES)] == [2]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("core/contracts/men.py", "S = 'queued'"),
        ("engine.py", '"""queued"""\ndef f():\n    "failed"\nX = 1\n"""An \'queued\' of X."""'),
        ("engine.py", "phase = 'claimable'; say = 'the job failed'; failed = queued = 1; other = 'running'"),
        (
            "stores/claim.sql",
            "-- 'queued' -> 'failed'\n/* 'queued' */ SELECT 'queued jobs', queued, :failed FROM t",
        ),
    ],
)
def test_statuses_allow(path: str, text: str) -> None:
    assert not list(tidy.check_statuses(Source(path, text), STATUSES))


@pytest.mark.parametrize("word", ["TO" + "DO", "FIX" + "ME", "X" * 3, "NotImplemented" + "Error"])
def test_unfinished(word: str) -> None:
    assert [f.line for f in tidy.check_finished(Source("a.sql", f"x\n-- {word}: later"))] == [2]
    assert not list(tidy.check_finished(Source("a.py", f"{word}S = NotImplemented")))


@pytest.mark.parametrize("place", ["work", "root"])
def test_machine_paths(place: str) -> None:
    path = f"/{place}/main"
    for text in (path, f"cd {path}", f'open("{path}")', f"file://{path}"):
        assert [f.line for f in tidy.check_machine_paths(Source("Makefile", f"x\n{text}"))] == [2], text
    for text in (f"https://example.org{path}", f"net{path}", f"./docs{path}", f"/{place}ers/x", f"~{path}"):
        assert not list(tidy.check_machine_paths(Source("README.md", text))), text


@pytest.mark.parametrize("text", ["", "x = 1", "# only a comment", '""" """', 'x = 1\n"""too late"""'])
def test_docstring(text: str) -> None:
    assert list(tidy.check_docstring(Source("a.py", text)))
    assert not list(tidy.check_docstring(Source("a.py", f'"""Owns a."""\n{text}')))


def test_allow_list_needs_a_reason_and_a_use() -> None:
    finding = Finding("worker.py", 7, "time.sleep", "time.sleep belongs elsewhere")
    key = ("worker.py", "time.sleep")
    assert tidy.without_allowed([finding], {key: "a thread's own pause"}) == []
    assert tidy.without_allowed([finding], {key: " "})[0] == "worker.py:7: time.sleep belongs elsewhere"
    assert "not needed" in tidy.without_allowed([], {key: "a thread's own pause"})[0]
    assert tidy.without_allowed([finding], {("worker.py", "time.time"): "another call"})[0].startswith("worker.py:7")
