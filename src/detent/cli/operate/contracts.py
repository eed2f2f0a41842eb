"""`detent contract`: the lifecycles. list, show, check, draw."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from detent.cli.connection import open_engine
from detent.cli.diagnose.database import describe
from detent.cli.options import AsJson, Url
from detent.cli.output import NO, complain, console, counted, say, say_json, show_table, table, tell
from detent.client.connect import default_url
from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.io import contract_from_toml
from detent.core.contract.model import Contract, Phase
from detent.core.errors import ContractError, UnknownContract
from detent.engine.reads.views import contract_view, contracts_view

from .diagram import draw as drawn

group = typer.Typer(help="Look at contracts, check your own, draw them.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A contract's name, or a FILE.toml.", show_default=False)]
File = Annotated[Path, typer.Argument(metavar="FILE.toml", help="A declared contract.", show_default=False)]


@group.command("list")
def list_contracts(url: Url = None, as_json: AsJson = False) -> None:
    """List the contracts Detent carries and those this database has met."""
    known = _known(url)
    rows = contracts_view(known)
    if as_json:
        say_json({"contracts": rows})
        return
    columns = ("name", ">statuses", ">edges", ">retries", "dead letters", "")
    marks = {True: "yes", False: "no"}
    show_table(
        columns,
        [
            [
                row["name"],
                row["statuses"],
                row["edges"],
                row["max_retries"],
                marks[row["dead_letters"]],
                "default" if row["default"] else "" if row["carried"] else "your own",
            ]
            for row in rows
        ],
    )


@group.command("show")
def show(name: Name, url: Url = None, as_json: AsJson = False) -> None:
    """Show a contract's table: statuses with phases, edges with moves, codes and retries."""
    declared = contract_view(find_contract(name, url))
    if as_json:
        say_json(declared)
        return
    say(f"contract {declared['name']}")
    phases = {
        phase: ", ".join(status for status, its in declared["statuses"].items() if its == phase) for phase in Phase
    }
    show_table(("phase", "statuses"), [[str(phase), statuses or "-"] for phase, statuses in phases.items()])
    say()
    rows = [[edge["move"] or "-", edge["source"] or "·", edge["event"], edge["target"]] for edge in declared["edges"]]
    console().print(table(("move", "source", "event", "target"), rows))
    say()
    show_table(("refusal", "code"), [[key, code or "the cause's own"] for key, code in declared["codes"].items()])
    say()
    show_table(("retry", ""), [[key, _plain(value)] for key, value in declared["retry"].items() if value is not None])


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


@group.command("check")
def check(file: File, as_json: AsJson = False) -> int:
    """Check a declared contract: is it a machine, does every edge refine the phases?"""
    try:
        contract = contract_from_toml(_text(file))
    except ContractError as error:
        if not as_json:
            return complain(error, as_json=False)
        say_json({"ok": False, **error.as_dict()})
        return NO
    facts = {"ok": True, "name": contract.name, "statuses": len(contract.statuses), "edges": len(contract.edges)}
    size = f"{counted(len(contract.statuses), 'status', 'statuses')}, {counted(len(contract.edges), 'edge')}"
    tell(as_json, facts, f"{contract.name} is a contract: {size}")
    return 0


@group.command("draw")
def draw(name: Name, url: Url = None, as_json: AsJson = False) -> None:
    """Draw a contract as a mermaid state diagram."""
    contract = find_contract(name, url)
    picture = drawn(contract)
    tell(as_json, {"name": contract.name, "mermaid": picture}, picture)


def find_contract(name: str, url: str | None) -> Contract:
    """A file, a carried contract, or one the database has met; the first two need no database."""
    if name.endswith(".toml"):
        return contract_from_toml(_text(Path(name)))
    if name in CONTRACTS:
        return CONTRACTS[name]
    known = _known(url)
    if name not in known:
        listed = ", ".join(sorted(known))
        raise UnknownContract(f"contract {name!r} is not known; known are {listed}", contract=name)
    return known[name]


def _known(url: str | None) -> dict[str, Contract]:
    """What Detent carries, and what the database has met if there is one; none is made for the question."""
    target = url or default_url()
    if describe(target).schema is None:
        return dict(CONTRACTS)

    async def look() -> dict[str, Contract]:
        engine = await open_engine(target)
        await engine.close()
        return engine.contracts

    return asyncio.run(look())


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{file} cannot be read: {error}") from None
