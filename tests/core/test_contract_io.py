"""Contracts as TOML and plain data: round trips, and errors that only text can have."""

import json

import pytest

from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.io import contract_from, contract_from_toml, contract_to
from detent.core.contract.model import LossRule, Move
from detent.core.errors import ContractError
from detent.core.retry import Immediate, RetryRule
from support.contracts.job_history import NAMES
from support.contracts.lamp import LAMP_TOML, lamp, plain


def test_a_good_contract_in_toml_is_the_one_in_python():
    assert contract_from_toml(LAMP_TOML) == lamp()


# (line to replace, its replacement, parts of the message)
INVALID_TOML = {
    "unknown phase": ('on = "leased"', 'on = "rented"', ["statuses.on", "'rented'", "leased"]),
    "unknown move": ('move = "WAKE"', 'move = "POKE"', ["edges[7]", "lamp.warmed", "'POKE'", "WAKE"]),
    "unknown loss move": ('move = "RETRY"\n\n[stop]', 'move = "POKE"\n\n[stop]', ["loss", "'POKE'"]),
    "unknown stop move": ("[stop]", '[stop]\nmove = "POKE"', ["stop", "'POKE'"]),
    "unknown snooze move": ('name = "lamp"', 'name = "lamp"\nsnooze = "POKE"', ["snooze", "'POKE'"]),
    "edge without event": ('event = "lamp.lit"\n', "", ["edges[2]", "event"]),
    "edge without target": (
        'event = "lamp.lit"\ntarget = "on"',
        'event = "lamp.lit"',
        ["edges[2]", "target"],
    ),
    "unknown key": ('name = "lamp"', 'name = "lamp"\ncolour = "red"', ["'colour'", "statuses"]),
    "unknown key of an edge": ('target = "cold"', 'target = "cold"\nfoo = 1', ["edges[6]", "'foo'"]),
    "unknown key of retry": ("max_retries = 2", "max_retries = 2\nfoo = 1", ["retry", "'foo'"]),
    "unknown key of loss": ('"RETRY"\n\n[stop]', '"RETRY"\nfoo = 1\n\n[stop]', ["loss", "'foo'"]),
    "unknown key of stop": ("[stop]", "[stop]\nfoo = 1", ["stop", "'foo'"]),
    "unknown key of dead_letters": ("discard_people = 1", "discard = 1", ["dead_letters", "'discard'"]),
    "unknown key of keys": ('scope = ["tenant_id"]', "foo = 1", ["keys", "'foo'"]),
    "unknown key of approval_notes": (
        "[stop]",
        '[approval_notes]\nfoo = "x"\n[stop]',
        ["approval_notes", "foo"],
    ),
    "unknown retry kind": ('kind = "table"', 'kind = "dice"', ["retry.kind", "'dice'", "exponential"]),
    "fractional number": ("delays_ms = [10, 20]", "delays_ms = [10, 1.5]", ["retry.delays_ms"]),
    "no name": ('name = "lamp"', "", ["name"]),
    "not TOML": ("[statuses]", "[statuses", ["TOML"]),
}


@pytest.mark.parametrize("line, replacement, parts", INVALID_TOML.values(), ids=INVALID_TOML)
def test_invalid_toml_is_refused_with_the_faulty_key(line, replacement, parts):
    assert line in LAMP_TOML
    text = LAMP_TOML.replace(line, replacement, 1)
    with pytest.raises(ContractError) as refused:
        contract_from_toml(text)
    for part in parts:
        assert part in refused.value.message


WRONG_TYPES = {
    "retry": 3,
    "retry.max_retries": {"max_retries": "2"},
    "loss": "RETRY",
    "stop": "RETRY",
    "keys": ["tenant_id"],
    "dead_letters": True,
    "codes": ["lost"],
    "edges": ["SUBMIT"],
    "edges[2]": [{"move": "SUBMIT", "event": "lamp.made", "target": "off"}, 3],
    "cancel_requests": 3,
    "lease_seconds": "5.5",
    "utc_only": "no",
}


@pytest.mark.parametrize("key", WRONG_TYPES)
def test_a_value_of_the_wrong_type_is_refused_with_its_key(key):
    name = key.partition(".")[0].partition("[")[0]
    with pytest.raises(ContractError) as refused:
        contract_from(plain() | {name: WRONG_TYPES[key]})
    assert name in refused.value.message


@pytest.mark.parametrize("name", NAMES)
def test_a_contract_survives_the_round_trip(name):
    contract = CONTRACTS[name]
    plain = json.loads(json.dumps(contract_to(contract)))
    again = contract_from(plain)
    bare = {name: getattr(contract, name) for name in ("view", "envelope", "published_names")}
    assert again.with_options(**bare) == contract
    assert contract_to(again) == contract_to(contract)


def test_an_option_changes_the_rule_and_is_checked_again():
    assert lamp().with_options(retry=RetryRule(Immediate())).retry.backoff == Immediate()
    with pytest.raises(ContractError, match=r"loss\.move"):
        lamp().with_options(loss=LossRule(Move.EXPIRE))
