"""The six built-in contracts. Status names appear in their files and nowhere else."""

from collections.abc import Mapping
from types import MappingProxyType

from detent.core.errors import UnknownContract

from .formal import FORMAL
from .gate_b2 import GATE_B2
from .men import MEN
from .model import Contract
from .p3c import P3C
from .standard import STANDARD
from .streams import STREAMS

CONTRACTS: Mapping[str, Contract] = MappingProxyType(
    {contract.name: contract for contract in (GATE_B2, MEN, P3C, STREAMS, FORMAL, STANDARD)}
)
DEFAULT = STANDARD.name


def stream_contract_names(contracts: Mapping[str, Contract]) -> frozenset[str]:
    """The names of those contracts whose jobs are carried by the stream."""
    return frozenset(name for name, contract in contracts.items() if contract.uses_stream)


def find_contract(contracts: Mapping[str, Contract], name: str | None) -> Contract:
    """The contract of this name; None: the default one. Raises UnknownContract."""
    try:
        return contracts[DEFAULT if name is None else name]
    except (KeyError, TypeError):
        names = ", ".join(sorted(contracts))
        raise UnknownContract(f"unknown contract {name!r}; use one of {names}", contract=name) from None
