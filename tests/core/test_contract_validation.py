"""Invalid contracts are refused, in Python and in TOML, and the message names the faulty row."""

from collections.abc import Callable
from typing import Any

import pytest

from detent.core.contract.io import contract_from_toml
from detent.core.contract.model import Contract, DeadLetterRule, Edge, KeyRule, LossRule, Move, Phase, StopRule
from detent.core.errors import ContractError
from detent.core.retry import Exponential, RetryRule, Table
from support.contracts.lamp import Data, as_toml, lamp, plain

from .test_tables import EXPECTED_MOVE_PHASES

Mutation = Callable[[Data], Any]


def row(move: str | None, source: str | None, event: str, target: str) -> Data:
    cells = {"move": move, "source": source, "event": event, "target": target}
    return {name: cell for name, cell in cells.items() if cell is not None}


def without(event: str) -> Mutation:
    return lambda data: data.update(edges=[e for e in data["edges"] if e["event"] != event])


def adding(*rows: Data, **statuses: str) -> Mutation:
    return lambda data: (data["edges"].extend(rows), data["statuses"].update(statuses))


def setting(**values: Any) -> Mutation:
    return lambda data: data.update(values)


# id: (mutation of the contract, parts of the message)
FAULTS: dict[str, tuple[Mutation, list[str]]] = {
    "two targets for one move and source": (
        adding(row("SUCCEED", "on", "lamp.sold", "broken")),
        ["(SUCCEED, on, lamp.dimmed, done)", "(SUCCEED, on, lamp.sold, broken)"],
    ),
    "two events for one move and source": (
        adding(row("SUCCEED", "on", "lamp.sold", "done")),
        ["(SUCCEED, on, lamp.dimmed, done)", "(SUCCEED, on, lamp.sold, done)"],
    ),
    "two targets for one source and event": (
        adding(row("CANCEL", "on", "lamp.dimmed", "broken")),
        ["(SUCCEED, on, lamp.dimmed, done)", "(CANCEL, on, lamp.dimmed, broken)"],
    ),
    "two targets without a move": (
        adding(row(None, "cold", "lamp.dropped", "done")),
        ["(-, cold, lamp.dropped, broken)", "(-, cold, lamp.dropped, done)"],
    ),
    "one event leads to two statuses": (
        adding(row("REJECT", "cold", "lamp.dimmed", "broken")),
        ["(SUCCEED, on, lamp.dimmed, done)", "(REJECT, cold, lamp.dimmed, broken)"],
    ),
    "a creation event leads elsewhere later": (
        lambda data: [e.update(event="lamp.made") for e in data["edges"] if e["event"] == "lamp.lit"],
        ["(SUBMIT, (nothing), lamp.made, off)", "(CLAIM, off, lamp.made, on)"],
    ),
    "a final status left without a move": (
        adding(row(None, "done", "lamp.found", "off")),
        ["(-, done, lamp.found, off)"],
    ),
    "an edge from an unknown status": (
        adding(row("CANCEL", "attic", "lamp.lost", "broken")),
        ["(CANCEL, attic, lamp.lost, broken)", "'attic'"],
    ),
    "an edge to an unknown status": (
        adding(row("CANCEL", "off", "lamp.lost", "attic")),
        ["(CANCEL, off, lamp.lost, attic)", "'attic'"],
    ),
    "an event without a name": (adding(row("CANCEL", "off", "", "broken")), ["(CANCEL, off, , broken)"]),
    "unreachable, undeclared": (
        adding(row("CLAIM", "attic", "lamp.lit", "on"), attic="claimable"),
        ["'attic'"],
    ),
    "declared unreachable, reachable": (setting(unreachable=["cold"]), ["'cold'", "unreachable"]),
    "declared unreachable, unknown": (setting(unreachable=["attic"]), ["'attic'", "unreachable"]),
    "an unknown origin of failures": (
        lambda data: data["retry"].update(opt_in=["telepathy"]),
        ["retry.opt_in", "telepathy"],
    ),
    "blocked without an exit": (
        adding(row("PARK", "on", "lamp.stored", "attic"), attic="blocked"),
        ["'attic'", "blocked"],
    ),
    "leased without an exit": (
        lambda data: (
            data["statuses"].update(lent="leased", spare="claimable"),
            data["edges"].extend(
                [row("EXPIRE", "on", "lamp.spared", "spare"), row("CLAIM", "spare", "lamp.lent", "lent")]
            ),
        ),
        ["'lent'", "leased"],
    ),
    "claimable without a claim": (
        adding(
            row("RELEASE", "on", "lamp.shelved", "shelf"),
            row("CANCEL", "shelf", "lamp.sold", "done"),
            shelf="claimable",
        ),
        ["'shelf'", "CLAIM"],
    ),
    "leased without a success": (
        lambda data: (without("lamp.dimmed")(data), data["statuses"].pop("done")),
        ["'on'", "SUCCEED"],
    ),
    "no SUBMIT": (
        lambda data: (without("lamp.made")(data), adding(row(None, None, "lamp.made", "off"))(data)),
        ["SUBMIT"],
    ),
    "a FOLLOW circle": (
        adding(
            row("FOLLOW", "cold", "lamp.froze", "ice"),
            row("FOLLOW", "ice", "lamp.cooled", "cold"),
            ice="blocked",
        ),
        ["FOLLOW", "circle"],
    ),
    "a FOLLOW to itself": (adding(row("FOLLOW", "cold", "lamp.cooled", "cold")), ["FOLLOW", "'cold'"]),
    "a loss move the table lacks": (setting(loss={"move": "EXPIRE"}), ["loss.move", "EXPIRE", "'on'"]),
    "a stop move the table lacks": (setting(stop={"move": "RELEASE"}), ["stop.move", "RELEASE", "'on'"]),
    "a snooze move the table lacks": (setting(snooze="RELEASE"), ["snooze", "RELEASE", "'on'"]),
    "a loss that succeeds": (setting(loss={"move": "SUCCEED"}), ["loss.move", "SUCCEED"]),
    "a stop that succeeds": (setting(stop={"move": "SUCCEED"}), ["stop.move", "SUCCEED"]),
    "a snooze that fails": (setting(snooze="FAIL"), ["snooze", "FAIL"]),
    "an unknown code": (setting(codes={"lots": "LAMP_LOST"}), ["codes.lots", "illegal_transition"]),
    "a leased status cannot fail": (
        lambda data: (
            without("lamp.burnt")(data),
            adding(row("CANCEL", "on", "lamp.burnt", "broken"))(data),
        ),
        ["on", "FAIL"],
    ),
    "cancel_requests, unknown status": (setting(cancel_requests=["attic"]), ["cancel_requests", "'attic'"]),
    "retry_at_statuses, unknown status": (
        setting(retry_at_statuses=["attic"]),
        ["retry_at_statuses", "'attic'"],
    ),
    "approval_statuses, unknown status": (
        setting(approval_statuses=["attic"]),
        ["approval_statuses", "'attic'"],
    ),
    "parks_as, unknown status": (setting(parks_as="attic"), ["parks_as", "'attic'"]),
    "an unknown counter": (setting(retry_counter="colour"), ["retry_counter", "colour"]),
    "an unknown rule for keys": (setting(keys={"same_content": "colour"}), ["same_content", "colour"]),
    "no statuses": (lambda data: data.update(statuses={}, edges=[]), ["status"]),
    "no name": (setting(name=""), ["name"]),
}
NEGATIVE = {
    "retry.max_retries": {"retry": {"max_retries": -1}},
    "retry.base_ms": {"retry": {"base_ms": -1}},
    "retry.cap_ms": {"retry": {"cap_ms": -1}},
    "retry.jitter_ms": {"retry": {"jitter_ms": -1}},
    "retry.delays_ms": {"retry": {"kind": "table", "delays_ms": [10, -1]}},
    "retry.delays_ms, none": {"retry": {"kind": "table", "delays_ms": []}},
    "retry.caps": {"retry": {"caps": {"FLICKER": -1}}},
    "loss.max_interruptions": {"loss": {"move": "RETRY", "max_interruptions": -1}},
    "dead_letters.discard_people": {"dead_letters": {"discard_people": -1}},
    "keys.max_length": {"keys": {"max_length": -1}},
    "lease_seconds": {"lease_seconds": -1.0},
}
FAULTS |= {
    f"negative {what}": (setting(**values), [what.split(",")[0].split(".")[-1]]) for what, values in NEGATIVE.items()
}
SAMPLE = {"-": None, "claimable": "off", "leased": "on", "blocked": "cold", "final": "done"}
FAULTS |= {
    f"{move} must not lead from {source} to {target}": (
        adding(row(move, SAMPLE[source], "bad", str(SAMPLE[target]))),
        [f"({move}, {SAMPLE[source] or '(nothing)'}, bad, {SAMPLE[target]})", f"{move} must lead from"],
    )
    for move, (leaves, enters) in EXPECTED_MOVE_PHASES.items()
    for source in SAMPLE
    for target in list(SAMPLE)[1:]
    if source not in leaves.split() or target not in enters.split()
}


def in_python(data: Data) -> Contract:
    def move(name: str | None) -> Move | None:
        return Move(name) if name else None

    retry, keys = dict(data["retry"]), dict(data["keys"])
    options = {name: retry.pop(name) for name in ("max_retries", "caps") if name in retry}
    options["opt_in"] = frozenset(retry.pop("opt_in", ()))
    numbers = {name: retry[name] for name in ("base_ms", "cap_ms", "jitter_ms") if name in retry}
    backoff = Table(tuple(retry["delays_ms"])) if "delays_ms" in retry else Exponential(**numbers)
    keys = {name: tuple(value) if isinstance(value, list) else value for name, value in keys.items()}
    sets = ("unreachable", "cancel_requests", "retry_at_statuses", "approval_statuses")
    return Contract(
        name=data["name"],
        statuses={status: Phase(phase) for status, phase in data["statuses"].items()},
        edges=tuple(Edge(move(e.get("move")), e.get("source"), e["event"], e["target"]) for e in data["edges"]),
        codes=data["codes"],
        retry=RetryRule(backoff, **options),
        loss=LossRule(**(data["loss"] | {"move": Move(data["loss"]["move"])})),
        stop=StopRule(move(data["stop"]["move"])),
        snooze=move(data["snooze"]),
        dead_letters=DeadLetterRule(**data["dead_letters"]),
        keys=KeyRule(**keys),
        parks_as=data["parks_as"],
        retry_counter=data["retry_counter"],
        lease_seconds=data["lease_seconds"],
        **{name: frozenset(data[name]) for name in sets},
    )


def in_toml(data: Data) -> Contract:
    return contract_from_toml(as_toml(data))


both = pytest.mark.parametrize("read", [in_python, in_toml], ids=["python", "toml"])


@both
@pytest.mark.parametrize("mutate, parts", FAULTS.values(), ids=FAULTS)
def test_an_invalid_contract_is_refused_with_the_faulty_row(mutate, parts, read):
    data = plain()
    mutate(data)
    with pytest.raises(ContractError) as refused:
        read(data)
    assert refused.value.code == "CONTRACT_INVALID"
    for part in parts:
        assert part in refused.value.message


@both
def test_the_unchanged_contract_is_accepted(read):
    assert read(plain()).edges == lamp().edges


def test_two_creating_moves_may_share_an_event_name():
    rows = (Edge(Move.HOLD, None, "lamp.made", "cold"),)
    assert lamp(edges=lamp().edges + rows).edge(None, Move.HOLD).target == "cold"
