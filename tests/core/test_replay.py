"""`replay` and `derive_status` agree with each other and with the row on every legal history."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import Contract, Edge, Move, Phase
from detent.core.contract.replay import derive_status, replay
from detent.core.job import Event
from support.contracts.job_history import NAMES, JobHistory

FORMAL = CONTRACTS["formal"]
FOREIGN = ("plan_generated", "node_started", "task.heartbeat", "approval.requested", "JOB_CREATED", "")


def logged(edge: Edge, seq: int) -> Event:
    return Event("job-1", seq, edge.event, edge.source, edge.target, at=seq)


def foreign(seq: int, name: str) -> Event:
    return Event("job-1", seq, name, None, "nowhere", at=seq)


@st.composite
def paths(draw: st.DrawFn, contract: Contract) -> list[Edge]:
    """A legal history of any length, edges without a move included."""
    status: str | None = None
    path: list[Edge] = []
    for _ in range(draw(st.integers(1, 25))):
        edges = [edge for edge in contract.edges if edge.source == status]
        if not edges:
            break
        path.append(draw(st.sampled_from(edges)))
        status = path[-1].target
    return path


@st.composite
def histories(draw: st.DrawFn, contract: Contract) -> tuple[list[Edge], list[Event]]:
    """A legal path as a log, mixed with events that are not in the contract."""
    path = draw(paths(contract))
    log: list[Event] = []
    for edge in path:
        log += [foreign(0, name) for name in draw(st.lists(st.sampled_from(FOREIGN), max_size=2))]
        log.append(logged(edge, len(log)))
    return path, log


def creation_is_ambiguous(contract: Contract, path: list[Edge]) -> bool:
    """True for a single creation event that two moves share: its name alone does not give the status."""
    targets = {e.target for e in contract.edges if e.source is None and e.event == path[0].event}
    return len(path) == 1 and len(targets) > 1


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None)
@given(data=st.data())
def test_both_return_the_last_target_of_a_legal_history(name, data):
    contract = CONTRACTS[name]
    path, log = data.draw(histories(contract))
    replayed = replay(contract, log)
    assert (replayed.ok, replayed.index, replayed.event, replayed.legal) == (True, None, None, ())
    assert replayed.status == derive_status(contract, log) == path[-1].target


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None)
@given(data=st.data())
def test_event_names_are_enough(name, data):
    contract = CONTRACTS[name]
    path, log = data.draw(histories(contract))
    names = [event.event for event in log]
    replayed = replay(contract, names)
    assert replayed.ok
    assert replayed.status == derive_status(contract, names)
    assert replayed.status == path[-1].target or creation_is_ambiguous(contract, path)


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None)
@given(data=st.data())
def test_the_first_illegal_event_is_returned_with_the_legal_ones(name, data):
    contract = CONTRACTS[name]
    path, log = data.draw(histories(contract))
    status = path[-1].target
    legal = sorted({edge.event for edge in contract.edges if edge.source == status})
    wrong = data.draw(st.sampled_from([edge for edge in contract.edges if edge.event not in legal]))
    rest = data.draw(st.lists(st.sampled_from(contract.edges), max_size=4))
    broken = [*log, logged(wrong, 99), *(logged(edge, 100) for edge in rest)]
    replayed = replay(contract, broken)
    assert (replayed.ok, replayed.status) == (False, status)
    assert (replayed.index, replayed.event) == (len(log), wrong.event)
    assert replayed.legal == tuple(legal) == tuple(contract.legal_events(status))
    assert derive_status(contract, broken) == broken[-1].target


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None)
@given(data=st.data())
def test_a_logged_target_that_is_not_in_the_table_is_illegal(name, data):
    contract = CONTRACTS[name]
    path, log = data.draw(histories(contract))
    last = log[-1]
    reached = {e.target for e in contract.edges if (e.source, e.event) == (path[-1].source, path[-1].event)}
    other = data.draw(st.sampled_from(sorted(set(contract.statuses) - reached)))
    replayed = replay(contract, [*log[:-1], replace(last, target=other)])
    assert (replayed.ok, replayed.index, replayed.event) == (False, len(log) - 1, last.event)


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_the_log_of_a_job_replays_to_its_row(name, data):
    contract = CONTRACTS[name]
    starts = [e.move for e in contract.edges if e.source is None and e.move]
    history = JobHistory(contract, data.draw(st.sampled_from(starts)))
    for _ in range(data.draw(st.integers(0, 15))):
        moves = contract.legal_moves(history.job.status)
        if not moves:
            break
        history.move(data.draw(st.sampled_from(moves)))
        assert replay(contract, history.events).status == derive_status(contract, history.events) == history.job.status
    assert [event.seq for event in history.events] == list(range(1, history.job.version + 1))
    assert contract.statuses[history.job.status] is history.job.phase


def test_an_empty_history_has_no_status():
    for contract in CONTRACTS.values():
        assert replay(contract, []).status is None
        assert replay(contract, FOREIGN).status is None
        assert derive_status(contract, FOREIGN) is None


def test_the_two_creations_of_streams_are_distinguished():
    streams = CONTRACTS["streams"]
    held, sent = ([e for e in streams.edges if e.move is move] for move in (Move.HOLD, Move.SUBMIT))
    assert replay(streams, [logged(held[0], 1)]).status == "waiting_approval"
    assert replay(streams, [logged(sent[0], 1)]).status == "queued"
    for log, end in (
        (["task.created", "task.failed"], "failed"),
        (["task.created", "approval.approved"], "queued"),
        (["task.created", "task.claimed"], "running"),
    ):
        assert replay(streams, log).status == derive_status(streams, log) == end
    assert replay(streams, ["task.created", "task.claimed", "approval.approved"]).index == 2
    assert not replay(streams, [logged(sent[0], 1), "task.failed"]).ok


# The formal invariants as histories: (log, first illegal index or None, derived status)
INVARIANTS = {
    "1 nothing after completed": ("created running completed running", 3, "Running"),
    "1 nothing after completed, not even a second end": ("created running completed failed", 3, "Failed"),
    "1 nothing after cancelled": ("created running cancelled requeued", 3, "Queued"),
    "1 failed may be requeued": ("created running failed requeued running", None, "Running"),
    "1 failed may not run": ("created running failed running", 3, "Running"),
    "2 waiting needs job_waiting": ("created waiting", 1, "Waiting"),
    "2 a wait ends with wait_completed": ("created running waiting running", 3, "Running"),
    "2 a wait ends with wait_completed, then runs": ("created running waiting wait running", None, "Running"),
    "2 a waiting job cannot complete": ("created running waiting completed", 3, "Completed"),
    "3 running twice": ("created running running", 2, "Running"),
    "3 leased then running": ("created leased running", 2, "Running"),
    "3 leased will do": ("created leased completed", None, "Completed"),
    "3 no end without a run": ("created completed", 1, "Completed"),
    "4 a blocked job is not requeued": ("created running waiting requeued", 3, "Queued"),
    "4 a blocked job is not leased": ("created running waiting leased", 3, "Running"),
    "a queued job is not cancelled": ("created cancelled", 1, "Cancelled"),
    "created twice": ("created created", 1, "Queued"),
    "begins with requeued": ("requeued running requeued", None, "Queued"),
    "begins with running": ("running", 0, "Running"),
}


@pytest.mark.parametrize("names, index, derived", INVARIANTS.values(), ids=INVARIANTS)
def test_formal_invariants(names, index, derived):
    log = ["wait_completed" if name == "wait" else f"job_{name}" for name in names.split()]
    replayed = replay(FORMAL, log)
    assert replayed.index == index
    assert derive_status(FORMAL, log) == derived
    if index is None:
        assert replayed.status == derived
    else:
        assert replayed.event == log[index]


ENDS = {
    "Running": {"job_running", "job_leased"},
    "Waiting": {"job_waiting"},
    "Completed": {"job_completed"},
    "Failed": {"job_failed"},
    "Cancelled": {"job_cancelled"},
    "Queued": {"job_created", "job_queued", "job_requeued", "wait_completed"},
}


@settings(deadline=None)
@given(paths(FORMAL))
def test_formal_status_implies_the_last_event(path):
    for edge in path:
        assert edge.event in ENDS[edge.target]
    for edge, following in pairwise(path):
        if edge.event == "job_waiting":
            assert following.event in ("wait_completed", "job_cancelled")
        if FORMAL.statuses[edge.target] is Phase.FINAL:
            assert (edge.event, following.event) == ("job_failed", "job_requeued")


def test_formal_never_reopens_automatically():
    assert [edge.move for edge in FORMAL.edges if edge.source == "Failed"] == [Move.REOPEN]
    assert not FORMAL.legal_moves("Completed") + FORMAL.legal_moves("Cancelled")
    assert {FORMAL.loss.move, FORMAL.stop.move, FORMAL.snooze} == {Move.EXPIRE, Move.RELEASE}


def test_a_blocked_formal_job_is_neither_reclaimed_nor_claimed():
    for status in ("Waiting", "Parked"):
        assert set(FORMAL.legal_moves(status)) == {Move.WAKE, Move.CANCEL}
