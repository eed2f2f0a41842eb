"""The contracts stored in a database: an application's own declarations win, Detent's built-in ones fill the rest."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from detent.core.contract.io import contract_from, contract_to
from detent.core.contract.model import Contract, Edge, Move, Phase
from detent.core.errors import ContractChanged

PHASES = (Phase.CLAIMABLE, Phase.LEASED, Phase.BLOCKED, Phase.FINAL)
"""The phase of a state is its lowest two bits."""
HAS_RETRY_AT, REOPENS, STATE_SHIFT, CONTRACT_SHIFT = 4, 8, 4, 14
StateRow = tuple[int, str, str, str, bool, bool]
"""A row of table states: id, contract, status, phase, retry_at, reopens."""


@dataclass(frozen=True, slots=True)
class ContractRegistry:
    """All contracts of a database, and the declarations to write: name -> (JSON text, built into Detent or not)."""

    contracts: dict[str, Contract]
    to_write: dict[str, tuple[str, bool]]


def reconcile(
    stored: Mapping[str, tuple[str, bool]], own: Mapping[str, Contract], builtin: Mapping[str, Contract]
) -> ContractRegistry:
    """Merge stored, own and built-in declarations.

    Own declarations win. A newer Detent updates a stored built-in contract, but never one that an application declared.
    """
    to_write: dict[str, tuple[str, bool]] = {}
    for name, contract in builtin.items():
        text = declaration(contract)
        if name not in own and (name not in stored or (stored[name][1] and stored[name][0] != text)):
            to_write[name] = (text, True)
    for name, contract in own.items():
        text = declaration(contract)
        if name not in stored or stored[name] != (text, False):
            to_write[name] = (text, False)
    declared = {name: text for name, (text, _) in {**stored, **to_write}.items()}
    contracts = {name: _with_code(text, own.get(name) or builtin.get(name)) for name, text in declared.items()}
    return ContractRegistry(contracts, to_write)


def changed_contracts(
    stored: Mapping[str, tuple[str, bool]], own: Mapping[str, Contract]
) -> Iterator[tuple[Contract, Contract]]:
    """(stored, own) for each declaration of the application that lacks a status or an edge of the stored one."""
    for name, contract in own.items():
        text = stored[name][0] if name in stored else None
        if text is not None and text != declaration(contract):
            before = contract_from(json.loads(text))
            if _lost_statuses(before, contract) or _lost_edges(before, contract):
                yield before, contract


def check_unfinished(before: Contract, after: Contract, used: Collection[str]) -> None:
    """Raise ContractChanged if a status in `used`, those of unfinished jobs, or an edge from one of them has gone."""
    lost = [f"status {status!r}" for status in _lost_statuses(before, after) if status in used]
    lost += [
        f"edge {edge.move} {edge.source} -> {edge.target} ({edge.event})"
        for edge in _lost_edges(before, after)
        if edge.source in used
    ]
    if lost:
        raise ContractChanged(
            f"the declared contract {after.name!r} has no {lost[0]}, which unfinished jobs of this database use; "
            "declare the changed contract under a new name, or open it when these jobs have ended",
            contract=after.name,
            lost=lost,
        )


def _lost_statuses(before: Contract, after: Contract) -> list[str]:
    """Statuses that have gone or are in another phase."""
    return [status for status, phase in before.statuses.items() if after.statuses.get(status) != phase]


def _lost_edges(before: Contract, after: Contract) -> list[Edge]:
    return [edge for edge in before.edges if edge not in after.edges]


def declaration(contract: Contract) -> str:
    return json.dumps(contract_to(contract), sort_keys=True, ensure_ascii=False)


def _with_code(text: str, code: Contract | None) -> Contract:
    """The stored contract, with view and envelope (code, not stored) of the contract of the same name, if any."""
    if code is None:
        return contract_from(json.loads(text))
    if declaration(code) == text:
        return code
    return contract_from(json.loads(text)).with_options(view=code.view, envelope=code.envelope)


def state_id(number: int, contract: Contract, status: str) -> int:
    """number: the contract's number and its count of states, see table states in schema.sql."""
    flags = HAS_RETRY_AT * (status in contract.retry_at_statuses)
    flags += REOPENS * (contract.edge(status, Move.REOPEN) is not None)
    return number << STATE_SHIFT | flags | PHASES.index(contract.statuses[status])


def new_states(contracts: Iterable[Contract], known: Sequence[tuple[int, str, str]]) -> list[StateRow]:
    """The states of these contracts that the database does not have.

    known: its states, (id, contract, status) in the order of their ids. A status whose flags have changed gets a new
    state; jobs may keep the old one.
    """
    rows: list[StateRow] = []
    newest = {(contract, status): number for number, contract, status in known}
    families = {contract: number >> CONTRACT_SHIFT for number, contract, _ in known}
    ids = {number for number, _, _ in known}
    for contract in contracts:
        family = families.setdefault(contract.name, max(families.values(), default=0) + 1)
        last = max((number for number in ids if number >> CONTRACT_SHIFT == family), default=family << CONTRACT_SHIFT)
        for status, phase in contract.statuses.items():
            have = newest.get((contract.name, status))
            if have is None or have != state_id(have >> STATE_SHIFT, contract, status):
                last = state_id((last >> STATE_SHIFT) + 1, contract, status)
                rows.append((last, contract.name, status, str(phase), bool(last & HAS_RETRY_AT), bool(last & REOPENS)))
    return rows


def edge_names(contracts: Iterable[Contract]) -> list[tuple[str, str, str]]:
    """The rows of table edges: event, source or '', target."""
    return list({(edge.event, edge.source or "", edge.target): None for c in contracts for edge in c.edges})
