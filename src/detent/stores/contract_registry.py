"""The contracts stored in a database: an application's own declarations win, Detent's built-in ones fill the rest."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from detent.core.contract.io import contract_from, contract_to
from detent.core.contract.model import Contract


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


def declaration(contract: Contract) -> str:
    return json.dumps(contract_to(contract), sort_keys=True, ensure_ascii=False)


def _with_code(text: str, code: Contract | None) -> Contract:
    """The stored contract, with view and envelope (code, not stored) of the contract of the same name, if any."""
    if code is None:
        return contract_from(json.loads(text))
    if declaration(code) == text:
        return code
    return contract_from(json.loads(text)).with_options(view=code.view, envelope=code.envelope)
