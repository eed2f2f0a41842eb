"""Which contracts a database knows: an application's own word stands, what Detent carries fills the rest."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from detent.core.contract.io import contract_from, contract_to
from detent.core.contract.model import Contract


@dataclass(frozen=True, slots=True)
class KnownContracts:
    """All contracts after opening, and the declarations (name -> text, carried by Detent or not) to be written."""

    contracts: dict[str, Contract]
    to_write: dict[str, tuple[str, bool]]


def reconcile(
    stored: Mapping[str, tuple[str, bool]], own: Mapping[str, Contract], carried: Mapping[str, Contract]
) -> KnownContracts:
    """Own declarations win. A carried one is renewed by a newer Detent, but never replaces an application's own."""
    to_write: dict[str, tuple[str, bool]] = {}
    for name, contract in carried.items():
        text = declaration(contract)
        if name not in own and (name not in stored or (stored[name][1] and stored[name][0] != text)):
            to_write[name] = (text, True)
    for name, contract in own.items():
        text = declaration(contract)
        if name not in stored or stored[name] != (text, False):
            to_write[name] = (text, False)
    declared = {name: text for name, (text, _) in {**stored, **to_write}.items()}
    contracts = {name: _with_code(text, own.get(name) or carried.get(name)) for name, text in declared.items()}
    return KnownContracts(contracts, to_write)


def declaration(contract: Contract) -> str:
    return json.dumps(contract_to(contract), sort_keys=True, ensure_ascii=False)


def _with_code(text: str, code: Contract | None) -> Contract:
    """Views and envelopes are code and not in the database: they come from the contract of the same name, if any."""
    if code is None:
        return contract_from(json.loads(text))
    if declaration(code) == text:
        return code
    return contract_from(json.loads(text)).with_options(view=code.view, envelope=code.envelope)
