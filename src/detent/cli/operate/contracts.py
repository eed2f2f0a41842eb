"""`detent contract`: lists, shows, checks and draws contracts."""

import re
from pathlib import Path
from typing import Annotated

import typer

from detent.cli.diagnose.database import describe
from detent.cli.option_groups import CommandGroup, ConnectionOptions
from detent.cli.options import AsJson
from detent.cli.output import (
    EXIT_NO,
    list_view,
    pluralize,
    print_error,
    print_json,
    print_line,
    print_result,
    print_table,
)
from detent.client.connect import default_url
from detent.core.contract import builtin
from detent.core.contract.io import contract_from_toml
from detent.core.contract.model import Contract, Phase
from detent.core.errors import ContractError
from detent.engine import Engine
from detent.engine.reads.operations import ContractSummary
from detent.engine.reads.views import contract_view, contracts_view

group = CommandGroup(help="List, show, check and draw contracts.", no_args_is_help=True)

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The name of a contract, or a FILE.toml.", show_default=False)
]
File = Annotated[Path, typer.Argument(metavar="FILE.toml", help="A contract declared in TOML.", show_default=False)]
COLOURS = {
    Phase.CLAIMABLE: "fill:#fff4cc,color:#000",
    Phase.LEASED: "fill:#cce9ff,color:#000",
    Phase.BLOCKED: "fill:#ecd9ff,color:#000",
    Phase.FINAL: "fill:#e4e4e4,color:#000",
}
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = frozenset({"class", "classdef", "direction", "end", "note", "state", "style"})
"""Keywords of mermaid; a status with such a name gets an alias."""


@group.command("list")
def list_contracts(connection: ConnectionOptions) -> None:
    """List the built-in contracts and those stored in this database."""
    contracts = contracts_view(_available_contracts(connection.url))
    columns = ("name", ">statuses", ">edges", ">retries", "dead letters", "", "description")
    connection.print_list(list_view(contracts), columns, map(_row, contracts))


def _row(contract: ContractSummary) -> list[str | int]:
    counts = [contract["statuses"], contract["edges"], contract["max_retries"]]
    origin = "default" if contract["default"] else "" if contract["carried"] else "custom"
    return [contract["name"], *counts, "yes" if contract["dead_letters"] else "no", origin, contract["description"]]


@group.command("show")
def show(name: Name, connection: ConnectionOptions) -> None:
    """Show a contract: statuses with phases, edges with moves, error codes and the retry rule."""
    view = contract_view(find_contract(name, connection.url))
    if connection.as_json:
        print_json(view)
        return
    print_line(f"contract {view['name']}")
    if view["description"]:
        print_line(view["description"])
    phases = {phase: ", ".join(status for status, p in view["statuses"].items() if p == phase) for phase in Phase}
    print_table(("phase", "statuses"), [[str(phase), statuses or "-"] for phase, statuses in phases.items()])
    print_line()
    rows = [[edge["move"] or "-", edge["source"] or "·", edge["event"], edge["target"]] for edge in view["edges"]]
    print_table(("move", "source", "event", "target"), rows)
    print_line()
    print_table(("error", "code"), [[key, code or "code of the last failure"] for key, code in view["codes"].items()])
    print_line()
    rules = {key: ", ".join(map(str, v)) if isinstance(v, list) else v for key, v in view["retry"].items()}
    print_table(("retry", ""), [[key, rule] for key, rule in rules.items() if rule is not None])


@group.command("check")
def check(file: File, as_json: AsJson = False) -> int:
    """Check a contract declared in TOML: unique transitions, reachable statuses, edges that match the phases."""
    try:
        contract = contract_from_toml(read_text(file))
    except ContractError as error:
        if not as_json:
            return print_error(error, as_json=False)
        print_json({"ok": False, **error.as_dict()})
        return EXIT_NO
    view = {"ok": True, "name": contract.name, "statuses": len(contract.statuses), "edges": len(contract.edges)}
    size = f"{pluralize(len(contract.statuses), 'status', 'statuses')}, {pluralize(len(contract.edges), 'edge')}"
    print_result(as_json, view, f"{contract.name} is valid: {size}")
    return 0


@group.command("draw")
def draw(name: Name, connection: ConnectionOptions) -> None:
    """Draw a contract as a mermaid state diagram."""
    contract = find_contract(name, connection.url)
    diagram = contract_diagram(contract)
    connection.print_result({"name": contract.name, "mermaid": diagram}, diagram)


def contract_diagram(contract: Contract) -> str:
    """A mermaid state diagram: one arrow per edge, labelled with move and event; one colour per phase."""
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


def _name(status: str, number: int) -> str:
    return status if _PLAIN.fullmatch(status) and status.lower() not in _RESERVED else f"status_{number}"


def _quoted(status: str) -> str:
    return status.replace('"', "'").replace("\n", " ")


def _label(text: str) -> str:
    return text.replace(":", "#58;").replace(";", "#59;").replace("#58#59;", "#58;").replace("\n", " ")


def find_contract(name: str, url: str | None) -> Contract:
    """A contract from a TOML file or from the database, with its options; without a database a built-in one."""
    if name.endswith(".toml"):
        return contract_from_toml(read_text(Path(name)))
    return builtin.find_contract(_available_contracts(url), name)


def _available_contracts(url: str | None) -> dict[str, Contract]:
    """The built-in contracts and those stored in the database, which is not created if it does not exist."""
    target = url or default_url()
    database = describe(target)
    if database.schema != database.newest:
        return dict(builtin.CONTRACTS)
    return ConnectionOptions(target).run(read_contracts)


async def read_contracts(engine: Engine) -> dict[str, Contract]:
    return engine.contracts


def read_text(file: Path, encoding: str = "utf-8") -> str:
    try:
        return file.read_text(encoding)
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{file} cannot be read: {error}") from None
