"""Exports the alert rules as a Prometheus rules file, from the same table that Detent evaluates."""

import json
from collections.abc import Mapping, Sequence

from detent.core.alerts import Rule
from detent.core.contract.model import Contract

from .alert_kinds import KINDS


def prometheus_rules(rules: Sequence[Rule], contracts: Mapping[str, Contract]) -> str:
    """The rules as YAML; texts are quoted as JSON strings, which are valid YAML."""
    lines = ["groups:", "- name: detent", "  rules:"]
    for rule in rules:
        if not rule.enabled:
            continue
        kind = KINDS[rule.kind]
        lines += [
            f"  - alert: {json.dumps('Detent' + rule.name.title().replace('_', ''))}",
            f"    expr: {json.dumps(kind.promql(rule, contracts))}",
            f"    for: {int(rule.for_seconds)}s",
            f"    keep_firing_for: {int(rule.resolve_after_seconds)}s",
            "    labels:",
            f"      severity: {json.dumps(rule.severity)}",
            "    annotations:",
            f"      summary: {json.dumps(f'{kind.summary} ({rule.name}, threshold {rule.threshold:g} {kind.unit})')}",
        ]
    return "\n".join(lines) + "\n"
