"""The style guide as a test: the rules over the project, then each rule on planted faults that it must find."""

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import tidy
from tidy import Finding, Source

from support.postgres import claim_pages
from support.web import openapi_file

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "detent"
CODE = {".py", ".sql", ".js", ".lua"}
PYTHON_BESIDE = re.compile(r"(tests|bench|examples)/.*\.py$")
PHASES = {"claimable", "leased", "blocked", "final"}
NOT_OURS = {
    ".git",
    ".venv",
    "__pycache__",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".hypothesis",
    "build",
    "dist",
}

# (path below src/detent, call) -> reason. For threads that must wait or look at a clock of their own.
CLOCK_ALLOWED: dict[tuple[str, str], str] = {}

# (path below src/detent, word) -> reason. For a word that is a status elsewhere and is not one here.
STATUS_ALLOWED: dict[tuple[str, str], str] = {
    ("transports/redis_streams/maintenance.py", "pending"): "a column of XINFO",
    ("core/alerts.py", "pending"): "the state of an alert, not of a job",
    (
        "stores/postgres/schema_views.sql",
        "Parked",
    ): "the view of formal shows a long wait so, as its contract's view does",
    (
        "stores/sqlite/schema_views.sql",
        "Parked",
    ): "the view of formal shows a long wait so, as its contract's view does",
}


def words(text: str) -> set[str]:
    return set(text.split())


BANNED_NAMES = {"told", "said", "asked", "its", "there", "bury", "tend", "attend", "agree", "unlimit", "spelled_out"}
"""No variable, parameter, attribute or function has such a name: it does not say what it holds or does."""

OLD_CLASSES = words(
    """Alike Aside Bell Beside Borrowed Caution ColdTx Cycle Cycled Ear FamilyTx Fleet Ghost HandClock Heart Keeper
    Known Link Loan Loans Lookout Machine Order Orphans Parcel People PeopleTx Planned Pulse Recorder Rig Sleepers
    Terms Told Trial Turns Wire Wired"""
)
OLD_MODULES = words(
    """alike answers atomic beside borrowed bugs bulk bundles caution changes check checkup cold culprits deciding
    decisions declare digests fleet forgetting gate guard heart hot inserting introduction kin known known_app letters
    loan logs lookout machine many operate orphans parcel patience people plan planned playing poison pools pulse
    recorder relations results rig settled shapes stopping submitting take timings transactions trial trouble turns
    walks wire world"""
)
"""Metaphors that nobody could search for; docs/understand/glossary.md has the words we use."""


def test_imports_follow_the_layers() -> None:
    report(finding for source in modules() for finding in tidy.check_layers(source))


def test_the_package_holds_the_folders_of_the_house_only() -> None:
    report(tidy.check_root(path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"))


def test_folders_are_small() -> None:
    report(tidy.check_folder_sizes(source.path for source in package({".py", ".js"})))


def test_a_class_name_stands_for_one_class_in_a_folder() -> None:
    report(tidy.check_class_names_once(modules()))


def test_helpers_of_tests_do_not_look_like_the_product() -> None:
    folders = {path.name for path in PACKAGE.rglob("*") if path.is_dir()}
    tests = [source for source in project() if re.match(r"tests/.*\.py$", source.path)]
    assert {"engine", "postgres"} <= folders and len(tests) > 200
    findings = [str(finding) for finding in tidy.check_test_helpers(tests, folders)]
    assert not findings, "\n".join(findings)


def test_names_say_what_they_hold() -> None:
    sources = [*modules(), *(source for source in project() if PYTHON_BESIDE.match(source.path))]
    report(finding for source in sources for finding in tidy.check_names(source, BANNED_NAMES))


def test_metaphors_stay_out() -> None:
    report(finding for source in modules() for finding in tidy.check_vocabulary(source, OLD_MODULES, OLD_CLASSES))


def test_protocols_are_narrow() -> None:
    report(tidy.check_protocols(modules()))


def test_statements_are_named_in_the_stores_only() -> None:
    report(finding for source in modules() for finding in tidy.check_statements(source))


def test_files_are_short() -> None:
    report(finding for source in package(CODE) for finding in tidy.check_file_size(source))


def test_functions_are_short() -> None:
    report(finding for source in modules() for finding in tidy.check_function_size(source))


def test_clock_and_randomness_stay_in_the_system_folder() -> None:
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
    findings = [str(finding) for source in project() for finding in tidy.check_machine_paths(source)]
    assert not findings, "\n".join(findings)


def test_every_module_has_a_docstring() -> None:
    report(finding for source in modules() for finding in tidy.check_docstring(source))


def test_the_pages_of_the_claim_statements_are_up_to_date() -> None:
    written = {path.name: path.read_text("utf-8") for path in claim_pages.FOLDER.glob("*")}
    stale = sorted(name for name, _ in written.items() ^ claim_pages.pages().items())
    if stale:
        pytest.fail(f"docs/sql differs from the statements, run `make sql`: {', '.join(dict.fromkeys(stale))}", False)


def test_the_openapi_document_is_up_to_date() -> None:
    if openapi_file.PATH.read_text("utf-8") != openapi_file.text():
        pytest.fail("docs/openapi.json differs from the routes, run `make openapi`", False)


def test_the_pages_of_the_claim_statements_show_what_runs() -> None:
    from detent.stores.postgres.dialect import queries

    executed = queries(own_clock=False)
    shown = {name.removesuffix(".sql"): text for name, text in claim_pages.pages().items() if name.endswith(".sql")}
    assert len(shown) >= 7 and "settle_and_claim" in shown
    for name, text in shown.items():
        assert claim_pages.code(text) == claim_pages.code(executed[name]) + ";"


def report(findings: Iterable[Finding], allowed: dict[tuple[str, str], str] | None = None) -> None:
    left = tidy.without_allowed(findings, allowed or {})
    if left:
        pytest.fail("\n".join(["paths below src/detent:", *left]), pytrace=False)


def modules() -> list[Source]:
    return package({".py"})


def package(suffixes: set[str] | None = None) -> list[Source]:
    paths = [path for path in sorted(PACKAGE.rglob("*")) if suffixes is None or path.suffix in suffixes]
    sources = list(texts(paths, PACKAGE))
    assert sources, "the rule would pass over nothing"
    return sources


def project() -> list[Source]:
    """What git tracks or would add; without git, whatever lies here."""
    if shutil.which("git") and (ROOT / ".git").exists():
        listing = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "-co", "--exclude-standard"]
        names = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True, text=True).stdout
        paths = [ROOT / name for name in names.split("\0") if name]
    else:
        paths = [path for path in ROOT.rglob("*") if not NOT_OURS & set(path.relative_to(ROOT).parts)]
    sources = list(texts(paths, ROOT))
    assert {"pyproject.toml", "tests/test_tidy.py"} <= {source.path for source in sources}
    return sources


def texts(paths: list[Path], base: Path) -> Iterator[Source]:
    for path in paths:
        if path.is_file() and "__pycache__" not in path.parts and b"\0" not in (data := path.read_bytes()):
            yield Source(path.relative_to(base).as_posix(), data.decode(errors="replace"))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("core/job.py", "from detent.ports.store import Store"),
        ("core/job.py", "from ..ports import store"),
        ("core/job.py", "from .. import engine"),
        ("core/contract/men.py", "from ...engine import Engine"),
        ("core/job.py", "import detent"),
        ("core/job.py", "def f():\n    import asyncio"),
        ("core/job.py", "from os import path"),
        ("core/job.py", "from uuid import uuid4"),
        ("core/job.py", "import sqlite3, apsw"),
        ("ports/store.py", "from detent.engine import Engine"),
        ("ports/store.py", "from detent.system import clock"),
        ("stores/sqlite/store.py", "from detent.engine import Engine"),
        ("stores/sqlite/store.py", "from detent.transports import redis_streams"),
        ("stores/sqlite/store.py", "from detent import engine"),
        ("transports/redis_streams/transport.py", "from detent.stores import sqlite"),
        ("engine/engine.py", "from detent.stores.sqlite import SqliteStore"),
        ("engine/engine.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from detent.web import app"),
        ("engine/engine.py", "from importlib import import_module\nimport_module('detent.stores.sqlite')"),
        ("engine/engine.py", "from detent import Detent"),
        ("engine/engine.py", "from detent.handler import context"),
        ("handler/context.py", "from detent.observability import job_logs"),
        ("observability/metrics.py", "from detent.handler import context"),
        ("worker/worker.py", "from detent.client.app import Detent"),
        ("worker/worker.py", "from detent.transports import redis_streams"),
        ("streams/orchestrator.py", "from detent.client import connect"),
        ("client/app.py", "from detent.testing import clocks"),
        ("__init__.py", "from .web.app import create"),
        ("proof/verify/verify.py", "from detent.web import app"),
        ("proof/controlled_store.py", "from detent.testing import clocks"),
        ("testing/clocks.py", "from detent.proof import controlled_store"),
        ("web/app.py", "from detent.cli import main"),
        ("cli/loader.py", "from detent.integrations import otel"),
        ("contrib/django.py", "x = 1"),
        ("lookout.py", "x = 1"),
    ],
)
def test_layers_refuse(path: str, text: str) -> None:
    assert list(tidy.check_layers(Source(path, text)))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            "core/decide.py",
            "from .contract.model import Move\nfrom detent.core import errors\nimport json, datetime",
        ),
        ("core/contract/men.py", "from .model import Contract\nfrom . import p3c"),
        ("ports/store.py", "import asyncio\nfrom detent.core.job import Job"),
        (
            "engine/engine.py",
            "from detent.ports import store\nfrom detent.system import ids\nfrom .submit import quotas",
        ),
        ("stores/sqlite/store.py", "import apsw\nfrom .session import Session\nfrom detent.ports.store import Store"),
        ("worker/worker.py", "from detent.version import __version__"),
        ("client/app.py", "from detent.stores.sqlite import SqliteStore\nfrom detent.worker.worker import Worker"),
        ("__init__.py", "from .client.app import Detent\nfrom .handler.context import Context"),
        ("__main__.py", "from .cli import main"),
        (
            "proof/simulate/simulate.py",
            "from detent.stores import sqlite\nfrom detent.worker.worker import Worker\nfrom detent import Detent",
        ),
        ("web/app.py", "from detent.proof.verify import verify\nfrom detent.observability import metrics"),
        ("cli/__init__.py", "def up():\n    from detent.web import app\n    import detentish.cli"),
        ("integrations/otel.py", "from detent import Detent\nfrom detent.engine.tracing import Tracer"),
    ],
)
def test_layers_allow(path: str, text: str) -> None:
    assert not list(tidy.check_layers(Source(path, text)))


def test_layers_name_file_and_line() -> None:
    source = Source("core/job.py", '"""Doc."""\n\nimport time\n')
    assert [str(finding) for finding in tidy.check_layers(source)] == [
        "core/job.py:3: core must stay pure and may not import time"
    ]


def test_root() -> None:
    assert not list(tidy.check_root(["core", "cli", "__init__.py", "py.typed", "version.py"]))
    assert [finding.path for finding in tidy.check_root(["contrib", "core", "lookout.py"])] == ["contrib", "lookout.py"]


@pytest.mark.parametrize(
    ("path", "text", "is_right"),
    [
        ("tests/engine/test_claim.py", "from support.clock import FakeClock\nfrom .test_wake import WAIT", True),
        ("tests/engine/conftest.py", "from support.stores import Place\nfrom detent.engine import Engine", True),
        ("tests/engine/clock.py", "x = 1", False),
        ("tests/engine/deeper/clock.py", "x = 1", False),
        ("tests/dashboard/site.py", "import http.server", True),
        ("tests/dashboard/test_pages.py", "from dashboard.site import Site", True),
        ("tests/dashboard/test_pages.py", "from engine.conftest import clock", False),
        ("tests/dashboard/test_pages.py", "def f():\n    import engine.test_claim", False),
        ("tests/support/engine/clock.py", "x = 1", True),
        ("tests/tidy.py", "import http", True),
    ],
)
def test_helpers_of_tests(path: str, text: str, is_right: bool) -> None:
    sources = [Source("tests/engine/test_other.py", "x = 1"), Source(path, text)]
    assert bool(list(tidy.check_test_helpers(sources, {"engine", "http", "web"}))) is not is_right


@pytest.mark.parametrize("suffix", [".py", ".js"])
def test_folder_sizes(suffix: str) -> None:
    paths = [f"web/x/m{number}{suffix}" for number in range(tidy.MAX_MODULES)]
    assert not list(tidy.check_folder_sizes(["web/x/__init__.py", "web/y/a.py", *paths]))
    assert [finding.path for finding in tidy.check_folder_sizes([*paths, f"web/x/more{suffix}"])] == ["web/x"]


def test_class_names_once() -> None:
    first, other, below = (Source(path, "class Page: ...") for path in ("web/a.py", "web/b.py", "web/pages/c.py"))
    assert not list(tidy.check_class_names_once([first, below, Source("web/d.py", "class _Page: ...")]))
    assert [finding.path for finding in tidy.check_class_names_once([first, other])] == ["web/b.py"]


@pytest.mark.parametrize(
    "text",
    [
        "told = 1",
        "def f(asked): ...",
        "def said(): ...",
        "for its in x: ...",
        "(there, b) = x",
        "def f(*, told=None): ...",
        "def f(*said): ...",
        "with x as told: ...",
        "[x for told in y]",
        "import json as told",
        "self.told = 1",
        "class A:\n    _told: int = 0",
        "async def tend(self): ...",
        "lambda asked: 1",
        "if (said := 1): ...",
        "try: ...\nexcept E as told: ...",
    ],
)
def test_names_refuse(text: str) -> None:
    assert list(tidy.check_names(Source("a.py", text), BANNED_NAMES))


def test_names_allow() -> None:
    text = "import json\nerror_message = thing.told\ndef tell(): return 'told'\nf(said=1)"
    assert not list(tidy.check_names(Source("a.py", text), BANNED_NAMES))


@pytest.mark.parametrize(
    ("path", "text"),
    [("worker/caution.py", ""), ("worker/state.py", "class Machine: ..."), ("a.py", "class _Bell: ...")],
)
def test_vocabulary_refuses(path: str, text: str) -> None:
    assert list(tidy.check_vocabulary(Source(path, text), OLD_MODULES, OLD_CLASSES))


def test_vocabulary_allows() -> None:
    text = "class WorkerState: ...\nclass Notifier: ..."
    assert not list(tidy.check_vocabulary(Source("cli/operate/queues.py", text), OLD_MODULES, OLD_CLASSES))


def test_protocols() -> None:
    methods = "\n".join(f"    def m{number}(self): ..." for number in range(tidy.MAX_PROTOCOL_METHODS))
    narrow = Source("ports/a.py", f"class A(Protocol):\n{methods}")
    assert not list(tidy.check_protocols([narrow, Source("x.py", f"class X:\n{methods}\n    def more(self): ...")]))
    wider = Source("ports/b.py", "class B(A, Protocol):\n    def one_more(self): ...")
    assert [finding.what for finding in tidy.check_protocols([narrow, wider])] == ["B"]


@pytest.mark.parametrize("call", ['tx.query("jobs")', 'tx.queries.change(f"drop_{kind}", id=1)'])
def test_statements(call: str) -> None:
    assert list(tidy.check_statements(Source("engine/a.py", f"async def act(tx):\n    await {call}\n")))
    assert not list(tidy.check_statements(Source("stores/a.py", f"async def act(tx):\n    await {call}\n")))
    assert not list(tidy.check_statements(Source("engine/a.py", "await tx.jobs.lock(ids)\nchange(name)")))


def test_file_size() -> None:
    code, docstring = "x = 1\n" * tidy.MAX_CODE_LINES, '"""One\ntwo."""\n'
    assert not list(tidy.check_file_size(Source("a.py", f"{docstring}# why\n\n{code}")))
    assert list(tidy.check_file_size(Source("a.py", f"{docstring}{code}x = 2\n")))
    assert not list(tidy.check_file_size(Source("a.sql", "-- why\n" + "x\n" * tidy.MAX_CODE_LINES)))
    assert list(tidy.check_file_size(Source("a.sql", "x\n" * (tidy.MAX_CODE_LINES + 1))))


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
    assert [finding.line for finding in tidy.check_repeatable(Source("engine/engine.py", text))] == [2]
    assert not list(tidy.check_repeatable(Source("system/clock.py", text)))
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
        ("core/contract/men.py", "S = 'queued'"),
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


@pytest.mark.parametrize("word", ["TO" + "DO", "FIX" + "ME", "X" * 3])
def test_unfinished(word: str) -> None:
    assert [f.line for f in tidy.check_finished(Source("a.sql", f"x\n-- {word}: later"))] == [2]
    assert not list(tidy.check_finished(Source("a.py", f"{word}S = NotImplemented")))


def test_only_abstract_methods_are_not_implemented() -> None:
    body = "    def f(self): raise NotImplementedError"
    assert list(tidy.check_finished(Source("a.py", f"class A:\n{body}")))
    assert not list(tidy.check_finished(Source("a.py", f"class A:\n    @abc.abstractmethod\n{body}")))


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
