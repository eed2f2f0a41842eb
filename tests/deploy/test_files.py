"""The deployment files are valid for the tools that read them, and name only what Detent has."""

import json
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from detent import Detent
from detent.core.contract.builtin import CONTRACTS
from detent.engine.metrics.alert_kinds import prometheus_rules
from detent.observability.histograms import ExecutionHistograms
from detent.observability.metrics import exposition
from detent.observability.settings import Settings
from detent.version import __version__
from support.servers.programs import program

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SCRIPTS = Path(sys.executable).parent
PROMTOOL = "it is part of Debian's package prometheus"
METRIC = re.compile(r"\bdetent_[a-z_]+")


def check(*command: str | Path, folder: Path = ROOT) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text("utf-8")))


def manifests() -> list[Path]:
    return sorted((DEPLOY / "kubernetes").rglob("*.yaml"))


def test_hadolint_accepts_the_dockerfile() -> None:
    check(SCRIPTS / "hadolint", "deploy/Dockerfile")


def test_the_dockerfile_copies_only_what_the_build_context_has() -> None:
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    copied = [name for line in re.findall(r"^COPY (?!--)(.+)$", text, re.MULTILINE) for name in line.split()[:-1]]
    assert copied and all((ROOT / name).exists() and f"!{name}" in ignored for name in copied)
    assert re.search(r"^USER 10001", text, re.MULTILINE) and "HEALTHCHECK" in text


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("vendor.compose-spec", "deploy/compose.yaml"),
        ("vendor.github-workflows", ".github/workflows/*.yaml"),
        ("vendor.github-issue-forms", ".github/ISSUE_TEMPLATE/[a-b]*.yaml"),
        ("vendor.github-issue-config", ".github/ISSUE_TEMPLATE/config.yml"),
    ],
)
def test_the_files_follow_the_published_schemas(schema: str, files: str) -> None:
    paths = [str(path) for path in ROOT.glob(files)]
    assert paths
    check(SCRIPTS / "check-jsonschema", "--builtin-schema", schema, *paths)


def test_the_kubernetes_manifests_are_valid() -> None:
    """KEDA's resources have no schema here; test_processes.py runs their query."""
    files = [path for path in manifests() if path.name != "kustomization.yaml" and "keda" not in path.parts]
    output = check(SCRIPTS / "kubernetes-validate", "--strict", *files)
    assert output.count("passed for resource") >= 9


def test_every_kustomization_names_files_that_exist() -> None:
    for path in manifests():
        if path.name == "kustomization.yaml":
            content = documents(path)[0]
            names = content.get("resources", []) + content.get("components", [])
            assert names and all((path.parent / name).exists() for name in names)


def test_kustomize_builds_the_example() -> None:
    kubectl = program("kubectl", "the kustomization is built with `kubectl kustomize`")
    built = list(yaml.safe_load_all(check(kubectl, "kustomize", "deploy/kubernetes/example")))
    kinds = {(item["kind"], item["metadata"]["name"]) for item in built}
    for name in ("detent-api", "detent-worker", "detent-orchestrator"):
        assert {("Deployment", name), ("PodDisruptionBudget", name)} <= kinds
    assert {("ScaledObject", "detent-worker"), ("Service", "detent-api")} <= kinds
    pods = [item["spec"]["template"]["spec"] for item in built if item["kind"] == "Deployment"]
    images = {container["image"] for pod in pods for container in pod["containers"] + pod.get("initContainers", [])}
    assert images == {"registry.example/shop:1.2.3"}


def test_a_pod_lives_longer_than_the_grace_of_its_worker() -> None:
    for path, grace_of in ((DEPLOY / "kubernetes/base/worker.yaml", "terminationGracePeriodSeconds"),):
        pod = documents(path)[0]["spec"]["template"]["spec"]
        args = pod["containers"][0]["args"]
        assert pod[grace_of] > float(args[args.index("--grace-seconds") + 1])
    unit = (DEPLOY / "systemd/detent-worker@.service").read_text("utf-8")
    stop, grace = re.search(r"TimeoutStopSec=(\d+)", unit), re.search(r"--grace-seconds (\d+)", unit)
    assert stop and grace and int(stop[1]) > int(grace[1])


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    analyze = program("systemd-analyze", "the units are checked with `systemd-analyze verify`")
    (tmp_path / "detent").write_text("#!/bin/sh\n")
    (tmp_path / "detent").chmod(0o755)
    for unit in sorted((DEPLOY / "systemd").glob("*.service")):
        copy = tmp_path / unit.name
        copy.write_text(unit.read_text("utf-8").replace("/opt/detent/bin/detent", str(tmp_path / "detent")))
        output = check(analyze, "verify", "--man=no", copy)
        assert unit.stem not in output, output


def test_the_prometheus_rules_are_those_of_the_command() -> None:
    printed = prometheus_rules(Settings().rules, CONTRACTS)
    hint = "run: detent alerts --prometheus-rules --url sqlite:///:memory: >deploy/prometheus/rules.yaml"
    assert (DEPLOY / "prometheus/rules.yaml").read_text("utf-8") == printed, hint


def test_promtool_accepts_rules_and_configuration() -> None:
    promtool = program("promtool", PROMTOOL)
    check(promtool, "check", "rules", "rules.yaml", folder=DEPLOY / "prometheus")
    check(promtool, "check", "config", "--syntax-only", "prometheus.yaml", folder=DEPLOY / "prometheus")


def dashboard_queries() -> list[str]:
    panels = json.loads((DEPLOY / "grafana/detent.json").read_text("utf-8"))["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def test_promtool_accepts_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    promtool = program("promtool", PROMTOOL)
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(dashboard_queries())]
    (tmp_path / "rules.yaml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(rules)} rules found" in check(promtool, "check", "rules", tmp_path / "rules.yaml")


@pytest.mark.anyio
async def test_dashboard_and_rules_use_metrics_that_exist() -> None:
    async with Detent("sqlite:///:memory:") as app:
        page, _ = await exposition(await app.ready(), histograms=ExecutionHistograms())
    names = {family.name for family in text_string_to_metric_families(page.decode())}
    exposed = {name + suffix for name in names for suffix in ("", "_total", "_bucket")}
    rules = documents(DEPLOY / "prometheus/rules.yaml")[0]["groups"][0]["rules"]
    used = {
        name for query in [*dashboard_queries(), *(rule["expr"] for rule in rules)] for name in METRIC.findall(query)
    }
    assert len(used) > 10 and used - exposed == set()


def test_the_version_is_written_once() -> None:
    assert 'dynamic = ["version"]' in (ROOT / "pyproject.toml").read_text("utf-8")
    assert version("detent") == __version__
