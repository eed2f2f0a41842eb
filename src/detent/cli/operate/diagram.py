"""A contract as a mermaid state diagram, generated from its table."""

import re

from detent.core.contract.model import Contract, Phase

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = frozenset({"class", "classdef", "direction", "end", "note", "state", "style"})
"""Keywords of mermaid; a status with such a name gets an alias."""


def contract_diagram(contract: Contract) -> str:
    """One arrow per edge, labelled with move and event; one colour per phase."""
    names = {status: _name(status, number) for number, status in enumerate(contract.statuses)}
    lines = ["stateDiagram-v2"]
    lines += [f'    state "{_quoted(status)}" as {name}' for status, name in names.items() if name != status]
    for edge in contract.edges:
        source = names[edge.source] if edge.source else "[*]"
        label = f"{edge.move} {edge.event}" if edge.move else f"({edge.event})"
        lines.append(f"    {source} --> {names[edge.target]} : {_label(label)}")
    lines += [f"    {names[status]} --> [*]" for status in contract.in_phase(Phase.FINAL)]
    for phase, colour in COLOURS.items():
        members = [names[status] for status in contract.in_phase(phase)]
        if members:
            lines += [f"    classDef {phase}_phase {colour}", f"    class {', '.join(members)} {phase}_phase"]
    return "\n".join(lines)


COLOURS = {
    Phase.CLAIMABLE: "fill:#fff4cc,color:#000",
    Phase.LEASED: "fill:#cce9ff,color:#000",
    Phase.BLOCKED: "fill:#ecd9ff,color:#000",
    Phase.FINAL: "fill:#e4e4e4,color:#000",
}


def _name(status: str, number: int) -> str:
    return status if _PLAIN.fullmatch(status) and status.lower() not in _RESERVED else f"status_{number}"


def _quoted(status: str) -> str:
    return status.replace('"', "'").replace("\n", " ")


def _label(text: str) -> str:
    return text.replace(":", "#58;").replace(";", "#59;").replace("#58#59;", "#58;").replace("\n", " ")
