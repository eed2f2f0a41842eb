"""A small valid user-defined contract, in TOML and in Python; tests change it to make it invalid."""

import copy
import json
from typing import Any

from detent.core.contract.io import contract_to
from detent.core.contract.model import Contract, DeadLetterRule, Edge, KeyRule, LossRule, Move, Phase, StopRule
from detent.core.retry import RetryRule, Table

Data = dict[str, Any]

LAMP_TOML = """
name = "lamp"
cancel_requests = ["on"]
retry_at_statuses = ["off"]
lease_seconds = 5.5

[statuses]
off = "claimable"
on = "leased"
cold = "blocked"
done = "final"
broken = "final"

[[edges]]
move = "SUBMIT"
event = "lamp.made"
target = "off"

[[edges]]
move = "CLAIM"
source = "off"
event = "lamp.lit"
target = "on"

[[edges]]
move = "SUCCEED"
source = "on"
event = "lamp.dimmed"
target = "done"

[[edges]]
move = "RETRY"
source = "on"
event = "lamp.flickered"
target = "off"

[[edges]]
move = "FAIL"
source = "on"
event = "lamp.burnt"
target = "broken"

[[edges]]
move = "WAIT"
source = "on"
event = "lamp.cooled"
target = "cold"

[[edges]]
move = "WAKE"
source = "cold"
event = "lamp.warmed"
target = "off"

[[edges]]
source = "cold"
event = "lamp.dropped"
target = "broken"

[codes]
lost = "LAMP_LOST"

[retry]
kind = "table"
delays_ms = [10, 20]
max_retries = 2
permanent_codes = ["SHORT"]

[retry.caps]
FLICKER = 1

[loss]
move = "RETRY"

[stop]

[dead_letters]
discard_people = 1

[keys]
scope = ["tenant_id"]
"""


def lamp(**changes: Any) -> Contract:
    """The contract of LAMP_TOML in Python."""
    options: dict[str, Any] = {
        "name": "lamp",
        "statuses": {
            "off": Phase.CLAIMABLE,
            "on": Phase.LEASED,
            "cold": Phase.BLOCKED,
            "done": Phase.FINAL,
            "broken": Phase.FINAL,
        },
        "edges": (
            Edge(Move.SUBMIT, None, "lamp.made", "off"),
            Edge(Move.CLAIM, "off", "lamp.lit", "on"),
            Edge(Move.SUCCEED, "on", "lamp.dimmed", "done"),
            Edge(Move.RETRY, "on", "lamp.flickered", "off"),
            Edge(Move.FAIL, "on", "lamp.burnt", "broken"),
            Edge(Move.WAIT, "on", "lamp.cooled", "cold"),
            Edge(Move.WAKE, "cold", "lamp.warmed", "off"),
            Edge(None, "cold", "lamp.dropped", "broken"),
        ),
        "cancel_requests": frozenset({"on"}),
        "retry_at_statuses": frozenset({"off"}),
        "lease_seconds": 5.5,
        "codes": {"lost": "LAMP_LOST"},
        "retry": RetryRule(Table((10, 20)), max_retries=2, permanent_codes=frozenset({"SHORT"}), caps={"FLICKER": 1}),
        "loss": LossRule(Move.RETRY),
        "stop": StopRule(None),
        "dead_letters": DeadLetterRule(discard_people=1),
        "keys": KeyRule(scope=("tenant_id",)),
    }
    return Contract(**(options | changes))


def plain() -> Data:
    """The contract as plain data; edges without None values."""
    data = copy.deepcopy(contract_to(lamp()))
    data["edges"] = [{k: v for k, v in edge.items() if v is not None} for edge in data["edges"]]
    return data


def as_toml(data: Data) -> str:
    tables = [name for name, value in data.items() if isinstance(value, dict)]
    lines = _pairs({name: v for name, v in data.items() if name not in (*tables, "edges")})
    for edge in data["edges"]:
        lines += ["[[edges]]", *_pairs(edge)]
    for name in tables:
        caps = data[name].get("caps")
        lines += [f"[{name}]", *_pairs({k: v for k, v in data[name].items() if k != "caps"})]
        lines += [f"[{name}.caps]", *_pairs(caps)] if caps else []
    return "\n".join(lines)


def _pairs(values: Data) -> list[str]:
    return [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in values.items() if value is not None]


def cooling_lamp() -> Contract:
    """A variant whose retry waits in a blocked status."""
    other_edges = [edge for edge in lamp().edges if edge.move not in (Move.RETRY, Move.WAIT)]
    return lamp(
        edges=(*other_edges, Edge(Move.RETRY, "on", "lamp.cooled", "cold")), retry_at_statuses=frozenset({"cold"})
    )
