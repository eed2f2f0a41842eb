"""The six contract tables, copied from the specifications; every other move is refused and changes nothing."""

from collections import Counter
from dataclasses import replace

import pytest

from detent.core.contract.builtin import CONTRACTS, DEFAULT
from detent.core.contract.model import Contract, Move
from detent.core.contract.moves import MOVE_PHASES
from detent.core.contract.replay import replay
from detent.core.decide import create, decide
from detent.core.errors import IllegalMove
from detent.core.job import Facts
from support.contracts.job_history import NAMES, NOW, blank, job_in_status

PHASES = {
    "gate-b2": {
        "claimable": {"queued", "retrying"},
        "leased": {"running"},
        "blocked": {"dlq_pending", "dlq_recorded"},
        "final": {"succeeded", "failed"},
    },
    "men": {
        "claimable": {"ready"},
        "leased": {"running"},
        "blocked": {"pending"},
        "final": {"succeeded", "failed", "cancelled"},
    },
    "p3c": {
        "claimable": {"queued", "retry_scheduled", "interrupted"},
        "leased": {"running"},
        "blocked": set(),
        "final": {"succeeded", "failed", "cancelled"},
    },
    "streams": {
        "claimable": {"queued"},
        "leased": {"running"},
        "blocked": {"waiting_approval"},
        "final": {"succeeded", "failed"},
    },
    "formal": {
        "claimable": {"Queued", "Retrying"},
        "leased": {"Running"},
        "blocked": {"Waiting", "Parked"},
        "final": {"Completed", "Failed", "Cancelled"},
    },
    "standard": {
        "claimable": {"queued", "retrying", "interrupted"},
        "leased": {"running"},
        "blocked": {"scheduled", "waiting", "parked", "waiting_approval", "dlq_pending", "dlq_recorded"},
        "final": {"succeeded", "failed", "cancelled"},
    },
}

# The arrows of the diagrams in the specifications, without creation.
ARROWS = {
    "gate-b2": """
        queued running | running succeeded | running retrying | running dlq_pending | retrying running
        retrying dlq_pending | dlq_pending dlq_recorded | dlq_recorded failed""",
    "men": """
        pending ready | ready running | running succeeded | running failed | running ready
        pending cancelled | ready cancelled | running cancelled""",
    "p3c": """
        queued running | queued cancelled | running succeeded | running failed | running retry_scheduled
        running interrupted | running cancelled | retry_scheduled running | retry_scheduled cancelled
        interrupted running | interrupted failed | interrupted cancelled""",
}

# move, source, event, target; "-" is nothing (no source, or no move).
EDGES = {
    "gate-b2": """
        SUBMIT   -             job.queued         queued
        CLAIM    queued        job.running        running
        CLAIM    retrying      job.running        running
        SUCCEED  running       job.succeeded      succeeded
        RETRY    running       job.retrying       retrying
        FAIL     running       job.dlq_pending    dlq_pending
        FAIL     retrying      job.dlq_pending    dlq_pending
        FOLLOW   dlq_pending   job.dlq_recorded   dlq_recorded
        FOLLOW   dlq_recorded  job.failed         failed""",
    "men": """
        SUBMIT   -        task.pending    pending
        WAKE     pending  task.ready      ready
        CLAIM    ready    task.running    running
        SUCCEED  running  task.succeeded  succeeded
        FAIL     running  task.failed     failed
        RETRY    running  task.ready      ready
        CANCEL   pending  task.cancelled  cancelled
        CANCEL   ready    task.cancelled  cancelled
        CANCEL   running  task.cancelled  cancelled""",
    "p3c": """
        SUBMIT   -                created              queued
        CLAIM    queued           worker_claim         running
        CANCEL   queued           cancel_command       cancelled
        SUCCEED  running          completed            succeeded
        FAIL     running          non_retryable_error  failed
        RETRY    running          retryable_error      retry_scheduled
        EXPIRE   running          process_restart      interrupted
        CANCEL   running          cancel_command       cancelled
        CLAIM    retry_scheduled  retry_due            running
        CANCEL   retry_scheduled  cancel_command       cancelled
        CLAIM    interrupted      recovery_resume      running
        FAIL     interrupted      recovery_abort       failed
        CANCEL   interrupted      cancel_command       cancelled""",
    "streams": """
        SUBMIT   -                 task.created       queued
        HOLD     -                 task.created       waiting_approval
        CLAIM    queued            task.claimed       running
        SUCCEED  running           task.succeeded     succeeded
        RETRY    running           task.retrying      queued
        RECLAIM  running           task.reclaimed     running
        FAIL     running           task.failed        failed
        WAKE     waiting_approval  approval.approved  queued
        REJECT   waiting_approval  task.failed        failed""",
    "formal": """
        SUBMIT   -         job_created     Queued
        -        -         job_queued      Queued
        -        -         job_requeued    Queued
        -        Queued    job_requeued    Queued
        -        Queued    job_leased      Running
        CLAIM    Queued    job_running     Running
        -        Queued    wait_completed  Queued
        RETRY    Running   job_requeued    Queued
        EXPIRE   Running   job_requeued    Queued
        RELEASE  Running   job_requeued    Queued
        WAIT     Running   job_waiting     Waiting
        -        Running   wait_completed  Queued
        SUCCEED  Running   job_completed   Completed
        FAIL     Running   job_failed      Failed
        CANCEL   Running   job_cancelled   Cancelled
        WAKE     Waiting   wait_completed  Queued
        CANCEL   Waiting   job_cancelled   Cancelled
        WAKE     Parked    wait_completed  Queued
        CANCEL   Parked    job_cancelled   Cancelled
        -        Retrying  job_requeued    Queued
        -        Retrying  job_leased      Running
        CLAIM    Retrying  job_running     Running
        -        Retrying  wait_completed  Queued
        REOPEN   Failed    job_requeued    Queued""",
    "standard": """
        SUBMIT   -                 job.created        queued
        DEFER    -                 job.scheduled      scheduled
        HOLD     -                 job.held           waiting_approval
        HOLD     running           job.held           waiting_approval
        WAKE     scheduled         job.due            queued
        WAKE     waiting           job.woken          queued
        WAKE     parked            job.woken          queued
        WAKE     waiting_approval  job.decided        queued
        CLAIM    queued            job.claimed        running
        CLAIM    retrying          job.claimed        running
        CLAIM    interrupted       job.claimed        running
        SUCCEED  running           job.succeeded      succeeded
        RETRY    running           job.retrying       retrying
        RELEASE  running           job.released       queued
        EXPIRE   running           job.interrupted    interrupted
        WAIT     running           job.waiting        waiting
        PARK     running           job.parked         parked
        FAIL     running           job.failing        dlq_pending
        FAIL     retrying          job.failing        dlq_pending
        FAIL     interrupted       job.failing        dlq_pending
        FOLLOW   dlq_pending       job.dead_lettered  dlq_recorded
        FOLLOW   dlq_recorded      job.failed         failed
        REJECT   waiting_approval  job.rejected       failed
        CANCEL   scheduled         job.cancelled      cancelled
        CANCEL   queued            job.cancelled      cancelled
        CANCEL   retrying          job.cancelled      cancelled
        CANCEL   interrupted       job.cancelled      cancelled
        CANCEL   running           job.cancelled      cancelled
        CANCEL   waiting           job.cancelled      cancelled
        CANCEL   parked            job.cancelled      cancelled
        CANCEL   waiting_approval  job.cancelled      cancelled
        CANCEL   dlq_pending       job.cancelled      cancelled
        CANCEL   dlq_recorded      job.cancelled      cancelled""",
}

REFUSAL = {
    "gate-b2": "WF_STATE_TRANSITION_INVALID",
    "men": "TASK_INVALID_TRANSITION",
    "p3c": "RUN_INVALID_TRANSITION",
    "streams": "TASK_TRANSITION_INVALID",
    "formal": "JOB_TRANSITION_INVALID",
    "standard": "JOB_TRANSITION_INVALID",
}

FORMAL_EVENTS = [
    "job_created",
    "job_queued",
    "job_requeued",
    "job_leased",
    "job_running",
    "job_waiting",
    "wait_completed",
    "job_completed",
    "job_failed",
    "job_cancelled",
]
FORMAL_GRID = {
    None: "Queued  Queued  Queued  .        .        .        .       .          .       .",
    "Queued": ".  .  Queued  Running  Running  .        Queued  .          .       .",
    "Running": ".  .  Queued  .        .        Waiting  Queued  Completed  Failed  Cancelled",
    "Waiting": ".  .  .       .        .        .        Queued  .          .       Cancelled",
    "Parked": ".  .  .       .        .        .        Queued  .          .       Cancelled",
    "Retrying": ".  .  Queued  Running  Running  .        Queued  .          .       .",
    "Completed": ".  .  .       .        .        .        .       .          .       .",
    "Failed": ".  .  Queued  .        .        .        .       .          .       .",
    "Cancelled": ".  .  .       .        .        .        .       .          .       .",
}
FORMAL_HISTORIES = {
    None: "",
    "Queued": "job_created",
    "Running": "job_created job_running",
    "Waiting": "job_created job_running job_waiting",
    "Completed": "job_created job_running job_completed",
    "Failed": "job_created job_running job_failed",
    "Cancelled": "job_created job_running job_cancelled",
}
FORMAL_CELLS = [
    pytest.param(status, event, None if target == "." else target, id=f"{status}-{event}")
    for status, row in FORMAL_GRID.items()
    for event, target in zip(FORMAL_EVENTS, row.split(), strict=True)
]

# Move -> (phases it may leave, phases it may enter); "-" is creation.
EXPECTED_MOVE_PHASES = {
    "SUBMIT": ("-", "claimable blocked"),
    "DEFER": ("-", "blocked"),
    "HOLD": ("- leased", "blocked"),
    "CLAIM": ("claimable", "leased"),
    "SUCCEED": ("leased", "final"),
    "RETRY": ("leased", "claimable blocked"),
    "FAIL": ("leased claimable", "final blocked"),
    "RELEASE": ("leased", "claimable"),
    "EXPIRE": ("leased", "claimable"),
    "RECLAIM": ("leased", "leased"),
    "WAIT": ("leased", "blocked"),
    "PARK": ("leased", "blocked"),
    "WAKE": ("blocked", "claimable"),
    "REJECT": ("blocked", "final"),
    "CANCEL": ("claimable leased blocked", "final"),
    "REOPEN": ("final", "claimable"),
    "FOLLOW": ("blocked", "blocked final"),
}


def expected_edges(name: str) -> list[tuple[str | None, ...]]:
    rows = [line.split() for line in EDGES[name].strip().splitlines()]
    return [tuple(None if cell == "-" else cell for cell in row) for row in rows]


def declared_edges(contract: Contract) -> list[tuple[str | None, ...]]:
    return [(e.move and str(e.move), e.source, e.event, e.target) for e in contract.edges]


def test_there_are_six_contracts_and_standard_is_the_default():
    assert tuple(CONTRACTS) == NAMES
    assert DEFAULT == "standard"


def test_the_phases_of_every_move():
    declared = {
        str(move): tuple({str(p or "-") for p in side} for side in sides) for move, sides in MOVE_PHASES.items()
    }
    assert declared == {
        move: tuple(set(side.split()) for side in sides) for move, sides in EXPECTED_MOVE_PHASES.items()
    }
    assert {str(move) for move in Move} == set(EXPECTED_MOVE_PHASES)


@pytest.mark.parametrize("name", NAMES)
def test_statuses_and_phases(name):
    declared = {status: str(phase) for status, phase in CONTRACTS[name].statuses.items()}
    assert declared == {status: phase for phase, statuses in PHASES[name].items() for status in statuses}


@pytest.mark.parametrize("name", NAMES)
def test_edges(name):
    assert Counter(declared_edges(CONTRACTS[name])) == Counter(expected_edges(name))


@pytest.mark.parametrize("name", ARROWS)
def test_the_arrows_of_the_diagrams(name):
    drawn = [tuple(arrow.split()) for arrow in ARROWS[name].replace("\n", "|").split("|") if arrow.strip()]
    assert len(drawn) == len(set(drawn))
    declared = [(e.source, e.target) for e in CONTRACTS[name].edges if e.source]
    assert sorted(declared) == sorted(drawn)


def test_the_sizes_in_the_specifications():
    sources = {name: [e for e in CONTRACTS[name].edges if e.source] for name in NAMES}
    assert len(sources["gate-b2"]) == 8
    assert len(sources["p3c"]) == 12
    assert CONTRACTS["formal"].unreachable == {"Parked", "Retrying"}
    assert all(not CONTRACTS[name].unreachable for name in NAMES if name != "formal")


def test_formal_has_22_legal_and_68_illegal_cells():
    targets = [cell.values[2] for cell in FORMAL_CELLS]
    assert len(targets) == 90
    assert sum(target is not None for target in targets) == 22
    assert sum(target is None for target in targets) == 68
    assert set(CONTRACTS["formal"].state_events) == set(FORMAL_EVENTS)


@pytest.mark.parametrize("status, event, target", FORMAL_CELLS)
def test_formal_cell_by_step(status, event, target):
    assert next(iter(CONTRACTS["formal"].targets(status, event)), None) == target


@pytest.mark.parametrize("status, event, target", [c for c in FORMAL_CELLS if c.values[0] in FORMAL_HISTORIES])
def test_formal_cell_by_replay(status, event, target):
    formal = CONTRACTS["formal"]
    history = FORMAL_HISTORIES[status].split()
    assert replay(formal, history).status == status
    replayed = replay(formal, [*history, event])
    if target:
        assert replayed.ok
        assert replayed.status == target
    else:
        legal = [e for e, t in zip(FORMAL_EVENTS, FORMAL_GRID[status].split(), strict=True) if t != "."]
        assert (replayed.ok, replayed.status, replayed.index) == (False, status, len(history))
        assert (replayed.event, replayed.legal) == (event, tuple(sorted(legal)))


ILLEGAL = [
    pytest.param(name, status, move, id=f"{name}-{status}-{move}")
    for name in NAMES
    for status in (status for statuses in PHASES[name].values() for status in sorted(statuses))
    for move in EXPECTED_MOVE_PHASES
    if not any(row[:2] == (move, status) for row in expected_edges(name))
]


@pytest.mark.parametrize("name, status, move", ILLEGAL)
def test_every_other_move_is_refused_and_changes_nothing(name, status, move):
    contract = CONTRACTS[name]
    held = {"token": "t1", "worker": "w1", "lease_until": NOW + 1} if status.lower() == "running" else {}
    job = job_in_status(contract, status, retries=1, failures=1, execution_no=2, error_code="X", **held)
    before = replace(job)
    with pytest.raises(IllegalMove) as refused:
        decide(contract, job, Move(move), NOW + 1, Facts(actor="ann", token="t2", dlq_id="d"))
    assert (refused.value.code, refused.value.http_status) == (REFUSAL[name], 409)
    assert move in refused.value.message
    assert status in refused.value.message
    assert job == before


@pytest.mark.parametrize("name", NAMES)
def test_every_move_of_the_table_is_possible(name):
    contract = CONTRACTS[name]
    for move, source, event, target in expected_edges(name):
        if move is None:
            continue
        facts = Facts(token="t", worker="w", lease=1, dlq_id="d")
        if source is None:
            change = create(contract, blank(contract, due_at=None), Move(move), NOW, facts)
        else:
            change = decide(contract, job_in_status(contract, source), Move(move), NOW, facts)
        first = change.events[0]
        assert (first.source, first.event, first.target) == (source, event, target)


@pytest.mark.parametrize("name", NAMES)
def test_no_other_move_creates_a_job(name):
    contract = CONTRACTS[name]
    creating = {row[0] for row in expected_edges(name) if row[1] is None}
    for move in set(EXPECTED_MOVE_PHASES) - creating:
        job = blank(contract)
        with pytest.raises(IllegalMove) as refused:
            create(contract, job, Move(move), NOW, Facts())
        assert refused.value.code == REFUSAL[name]
        assert job == blank(contract)
