"""`pip install detent` is enough for a client and a worker on SQLite; what needs more names the extra to install."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from detent.system.extras import EXTRAS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
SCRIPT = ROOT / "tests" / "support" / "core_only.py"
QUICKSTART = str(ROOT / "examples" / "quickstart.py")


def installed_with(requirements: Iterable[str]) -> set[str]:
    """The distributions that pip installs for these requirements."""
    names: set[str] = set()
    todo = [Requirement(text) for text in requirements]
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        if name not in names and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            names.add(name)
            todo += [Requirement(text) for text in metadata.requires(requirement.name) or ()]
    return names


def outside_the_core() -> list[str]:
    """Modules of this environment that `pip install detent` does not install."""
    core = installed_with(PROJECT["dependencies"]) | {"detent"}
    return sorted(
        module
        for module, names in metadata.packages_distributions().items()
        if not core & {canonicalize_name(name) for name in names} and module.isidentifier()
    )


def run_on_the_core(folder: Path, *commands: list[str]) -> list[tuple[int, str, str]]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "DETENT_URL": "sqlite:///jobs.db"}
    blocked = outside_the_core()
    assert {"fastapi", "asyncpg", "redis", "prometheus_client", "anyio"} <= set(blocked)
    done = subprocess.run(
        [sys.executable, str(SCRIPT), json.dumps(blocked), json.dumps(commands)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    answers: list[tuple[int, str, str]] = json.loads(done.stdout)
    return answers


def test_a_missing_extra_is_named(tmp_path: Path) -> None:
    commands = {
        ("serve", "--port", "0", "--json"): "server",
        ("up", QUICKSTART, "--port", "0", "--json"): "server",
        ("worker", QUICKSTART, "--metrics-port", "0", "--json"): "server",
        ("jobs", "list", "--url", "postgresql://me@127.0.0.1:1/jobs", "--json"): "postgres",
        ("worker", QUICKSTART, "--url", "postgresql://me@127.0.0.1:1/jobs", "--json"): "postgres",
        ("doctor", "--url", "postgresql://me@127.0.0.1:1/jobs", "--json"): "postgres",
        ("orchestrate", "--redis-url", "redis://127.0.0.1:1/0", "--json"): "redis",
        ("worker", QUICKSTART, "--transport", "redis", "--redis-url", "redis://127.0.0.1:1/0", "--json"): "redis",
    }
    for (command, extra), (code, _, errors) in zip(
        commands.items(), run_on_the_core(tmp_path, *map(list, commands)), strict=True
    ):
        refusal = json.loads(errors.splitlines()[-1])
        assert (code, refusal["code"], refusal["extra"]) == (2, "EXTRA_MISSING", extra), command
        assert refusal["message"].endswith(f'run: pip install "detent[{extra}]"'), command


def test_an_import_names_the_extra(tmp_path: Path) -> None:
    modules = {"detent.integrations.otel": "otel", "detent.web": "server", "detent.stores.postgres.store": "postgres"}
    answers = run_on_the_core(tmp_path, *(["import", module] for module in modules), ["import", "absent_module"])
    for extra, (code, _, errors) in zip(modules.values(), answers, strict=False):
        assert code == 1 and f'pip install "detent[{extra}]"' in errors, "an ImportError that names the extra"
    assert answers[-1][2] == "No module named 'absent_module'\n", "no extra brings it"


def test_the_page_about_installing(tmp_path: Path) -> None:
    """The table of extras, the error of a missing one, and the first job, which runs."""
    page = (ROOT / "docs" / "start" / "install.md").read_text("utf-8")
    optional = {name: texts for name, texts in PROJECT["optional-dependencies"].items() if name not in ("all", "dev")}
    rows = re.findall(r"^\| (`[a-z`, ]+) \| .+ \| (.*) \|$", page, re.MULTILINE)
    documented = {", ".join(re.findall("[a-z]+", names)): set(packages.split(", ")) for names, packages in rows}
    assert {name for names in documented for name in names.split(", ")} == set(optional)
    for names, packages in documented.items():
        required = [Requirement(text).name for name in names.split(", ") for text in optional[name]]
        assert packages == set(required)

    (tmp_path / "app.py").write_text(re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[0])
    command, error = re.findall(r"^\$ detent (.+)\n(.+)$", page, re.MULTILINE)[0]
    refused, enqueued, worked, exported = run_on_the_core(
        tmp_path,
        command.split(),
        ["enqueue", "greet", "--payload", '{"name": "you"}'],
        ["worker", "app.py", "--until-idle"],
        ["jobs", "export"],
    )
    assert refused[2] == error + "\n"
    assert (enqueued[0], worked[0]) == (0, 0), worked
    assert json.loads(exported[1])["job"]["result"] == "hello you"


def test_the_table_of_extras_agrees_with_the_project() -> None:
    optional = PROJECT["optional-dependencies"]
    distributions = metadata.packages_distributions()
    everything = Requirement(optional["all"][0]).extras
    for extra, modules in EXTRAS.items():
        assert extra in everything
        for module in modules:
            names = {canonicalize_name(name) for name in distributions[module]}
            assert names & installed_with(optional[extra]), f"detent[{extra}] does not install {module}"
