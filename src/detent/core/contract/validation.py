"""Validation of contracts at load time. Every error names the faulty row."""

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from detent.core.errors import ContractError
from detent.core.retry import Origin, backoff_to

from .moves import CODES, MOVE_PHASES, Edge, Move, Phase

if TYPE_CHECKING:
    from .model import Contract

MAX_DESCRIPTION = 200


def validate(contract: "Contract") -> None:
    """Raise ContractError unless every edge conforms to MOVE_PHASES and the rules fit the edges."""
    if not contract.name or not contract.statuses:
        raise ContractError("a contract needs a name and at least one status")
    if len(contract.description) > MAX_DESCRIPTION or not contract.description.isprintable():
        _fail(contract, f"description must be one line of at most {MAX_DESCRIPTION} characters")
    for edge in contract.edges:
        _check_edge(contract, edge)
    _check_deterministic(contract)
    _check_reachable(contract)
    _check_exits(contract)
    _check_follow_ends(contract)
    _check_rules(contract)
    _check_values(contract)


def _fail(contract: "Contract", text: str) -> None:
    raise ContractError(f"contract {contract.name!r}: {text}", contract=contract.name)


def _check_edge(contract: "Contract", edge: Edge) -> None:
    for status in (edge.source, edge.target):
        if status is not None and status not in contract.statuses:
            _fail(contract, f"edge {edge}: status {status!r} is not declared in statuses")
    if not edge.event:
        _fail(contract, f"edge {edge}: the event has no name")
    source = None if edge.source is None else contract.statuses[edge.source]
    target = contract.statuses[edge.target]
    if edge.move is None:
        if source is Phase.FINAL:
            _fail(contract, f"edge {edge}: only the move REOPEN may leave a final status")
        return
    leaves, enters = MOVE_PHASES[edge.move]
    if source not in leaves or target not in enters:
        _fail(
            contract,
            f"edge {edge}: {edge.move} must lead from {_names(leaves)} to {_names(enters)}, "
            f"not from {source or 'nothing'} to {target}",
        )


def _check_deterministic(contract: "Contract") -> None:
    by_move: dict[tuple[Move, str | None], Edge] = {}
    by_event: dict[tuple[str | None, str], Edge] = {}
    for edge in contract.edges:
        if edge.move:
            other = by_move.setdefault((edge.move, edge.source), edge)
            if other is not edge:
                _fail(contract, f"edges {other} and {edge}: a move may have only one edge from a status")
        other = by_event.setdefault((edge.source, edge.event), edge)
        if other.target != edge.target and (edge.source or edge.move is other.move):
            _fail(contract, f"edges {other} and {edge}: an event may have only one target from a status")
    _check_event_targets(contract)


def _check_event_targets(contract: "Contract") -> None:
    """An event name must have one target, because `derive_status` uses the last event alone.

    Creation is excepted: two moves may create a job under one event name; the logged target distinguishes them.
    """
    targets: dict[str, Edge] = {}
    for edge in contract.edges:
        other = targets.setdefault(edge.event, edge)
        if other.target != edge.target and (edge.source or other.source):
            _fail(contract, f"edges {other} and {edge}: the event {edge.event!r} leads to two statuses")


def _check_reachable(contract: "Contract") -> None:
    if not any(e.move is Move.SUBMIT for e in contract.edges):
        _fail(contract, "it needs a SUBMIT edge, otherwise no job can be created")
    reached: set[str | None] = {None}
    grew = True
    while grew:
        new_statuses = {e.target for e in contract.edges if e.source in reached} - reached
        reached |= new_statuses
        grew = bool(new_statuses)
    for status in contract.statuses:
        if status not in reached and status not in contract.unreachable:
            _fail(contract, f"status {status!r} cannot be reached; declare it unreachable or add an edge")
    for status in contract.unreachable:
        if status not in contract.statuses or status in reached:
            _fail(contract, f"status {status!r} is declared unreachable but is reachable or unknown")


def _check_exits(contract: "Contract") -> None:
    for status, phase in contract.statuses.items():
        out = [e for e in contract.edges if e.source == status]
        if phase is not Phase.FINAL and not out:
            _fail(contract, f"status {status!r} is {phase} but has no edge that leaves it")
        if phase is Phase.CLAIMABLE and not contract.edge(status, Move.CLAIM):
            _fail(contract, f"status {status!r} is claimable but has no CLAIM edge")
        for move in (Move.SUCCEED, Move.FAIL):
            if phase is Phase.LEASED and not contract.edge(status, move):
                _fail(contract, f"status {status!r} is leased but has no {move} edge")


def _check_follow_ends(contract: "Contract") -> None:
    follow = {e.source: e.target for e in contract.edges if e.move is Move.FOLLOW}
    for start in follow:
        seen: list[str | None] = [start]
        while seen[-1] in follow:
            step = follow[seen[-1]]
            if step in seen:
                _fail(contract, f"FOLLOW edges run in a circle through {step!r}")
            seen.append(step)


def _check_rules(contract: "Contract") -> None:
    leased = [s for s in contract.in_phase(Phase.LEASED) if s not in contract.unreachable]
    for rule, moves in _RULE_MOVES.items():
        move = attrgetter(rule)(contract)
        if move not in moves:
            _fail(contract, f"{rule} cannot be {move}; use one of {', '.join(sorted(map(str, moves)))}")
        for status in leased:
            if move and not contract.edge(status, move):
                _fail(contract, f"{rule} is {move}, but status {status!r} has no such edge")
    for rule in ("cancel_requests", "retry_at_statuses", "approval_statuses"):
        for status in getattr(contract, rule):
            if status not in contract.statuses:
                _fail(contract, f"{rule} names {status!r}, which is not a status")
    if contract.dead_letters and any(e.move is Move.REOPEN for e in contract.edges):
        _fail(
            contract, "a contract with dead_letters cannot have a REOPEN edge; a dead letter is requeued as a new job"
        )
    if contract.uses_stream and (contract.loss.move is not Move.RECLAIM or contract.retry_counter != "failures"):
        _fail(contract, "with uses_stream, loss.move must be RECLAIM and retry_counter must be failures")
    for name in contract.codes:
        if name not in CODES:
            _fail(contract, f"codes.{name} is not a code; use one of {', '.join(sorted(CODES))}")


_RULE_MOVES: dict[str, frozenset[Move | None]] = {
    "loss.move": frozenset({Move.EXPIRE, Move.RETRY, Move.RECLAIM}),
    "stop.move": frozenset({None, Move.RELEASE, Move.EXPIRE, Move.RETRY}),
    "snooze": frozenset({None, Move.RELEASE}),
}
_ALLOWED_VALUES: dict[str, tuple[str, ...]] = {
    "keys.same_content": ("payload", "critical", "nothing"),
    "retry_counter": ("retries", "failures"),
}


def _check_values(contract: "Contract") -> None:
    """Check enumerated values and the ranges of numbers."""
    retry, backoff = contract.retry, backoff_to(contract.retry.backoff)
    for name, allowed in _ALLOWED_VALUES.items():
        value = attrgetter(name)(contract)
        if value not in allowed:
            _fail(contract, f"{name} is {value!r}; use one of {', '.join(allowed)}")
    if contract.parks_as is not None and contract.parks_as not in contract.statuses:
        _fail(contract, f"parks_as names {contract.parks_as!r}, which is not a status")
    for origin in retry.opt_in - set(Origin):
        _fail(contract, f"retry.opt_in names {origin!r}; use {', '.join(Origin)}")
    for name in contract.approval_notes:
        if name not in ("requested", "rejected"):
            _fail(contract, f"approval_notes.{name} is not a note; use requested, rejected")
    numbers: list[tuple[str, Any, float]] = [("retry.max_retries", retry.max_retries, 0)]
    numbers += [(f"retry.{name}", value, 0) for name, value in backoff.items() if name not in ("kind", "delays_ms")]
    numbers += [("retry.delays_ms", value, 0) for value in backoff.get("delays_ms", ())]
    numbers += [(f"retry.caps.{code}", cap, 0) for code, cap in retry.caps.items()]
    numbers += [("keys.max_length", contract.keys.max_length, 1)]
    if contract.loss.max_interruptions is not None:
        numbers.append(("loss.max_interruptions", contract.loss.max_interruptions, 0))
    if contract.dead_letters:
        numbers.append(("dead_letters.discard_people", contract.dead_letters.discard_people, 1))
    for name, value, minimum in numbers:
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            _fail(contract, f"{name} must be a whole number of at least {minimum}, got {value!r}")
    if backoff.get("delays_ms") == []:
        _fail(contract, "retry.delays_ms needs at least one delay")
    lease = contract.lease_seconds
    if isinstance(lease, bool) or not isinstance(lease, int | float) or lease <= 0:
        _fail(contract, f"lease_seconds must be a number above 0, got {lease!r}")


def _names(phases: frozenset[Phase | None] | frozenset[Phase]) -> str:
    return "|".join(sorted(str(p or "nothing") for p in phases))
