"""`replay`: the five gate-b2 cases on a real store, and histories against contracts."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.gate_b2 import GATE_B2
from detent.core.contract.model import Edge, Move
from detent.core.contract.replay import INVARIANTS, walk
from detent.core.errors import InvalidInput
from detent.core.job import DeadLetter
from detent.engine import Engine
from detent.engine.dead_letters import DeadLetters
from detent.engine.jobs import Jobs
from detent.proof.replay import gate_b2_cases
from detent.proof.replay.gate_b2_cases import CASES, CaseResult, run_gate_b2_cases
from detent.proof.replay.history import read_history, replay_history
from detent.proof.verify.fold import ContractTable
from detent.stores.sqlite.store import SqliteStore

RUN, AGAIN = "queued -> running", ["running -> retrying", "retrying -> running"]
STEPS = {
    "RP-001": ["-> queued", RUN, "running -> succeeded"],
    "RP-002": ["-> queued", RUN, *AGAIN, "running -> succeeded"],
    "RP-003": ["-> queued", RUN, *AGAIN * 3, "running -> succeeded"],
    "RP-004": ["-> queued", RUN, *AGAIN * 3, "running -> dlq_pending", "dlq_pending -> dlq_recorded",
               "dlq_recorded -> failed"],
    "RP-005": ["-> queued", RUN, "running -> succeeded",
               "succeeded -> succeeded (WF_STATE_TRANSITION_INVALID)",
               "succeeded -> failed (WF_STATE_TRANSITION_INVALID)"],
}  # fmt: skip


def gate_on(path: Path, contracts: dict[str, Any] | None = None, **options: Any) -> list[CaseResult]:
    async def run() -> list[CaseResult]:
        engine = Engine(SqliteStore(str(path), inline=True, synchronous="OFF"), contracts, **options)
        await engine.open()
        try:
            return await run_gate_b2_cases(engine)
        finally:
            await engine.close()

    return asyncio.run(run())


def test_the_gate_passes_and_every_transition_is_recorded(tmp_path: Path) -> None:
    results = gate_on(tmp_path / "jobs.db")
    assert {result.id: result.problems for result in results} == {name: [] for name in STEPS}
    for result in results:
        assert [record["status_transition"] for record in result.records] == STEPS[result.id]
        for record in result.records:
            assert set(record) == {"trace_id", "job_id", "retry_count", "status_transition"}
            assert record["trace_id"] and record["job_id"] in record["trace_id"]
        assert set(result.as_dict()) == {"id", "ok", "records"}
    counts = {result.id: [record["retry_count"] for record in result.records] for result in results}
    assert counts["RP-003"] == [0, 0, 1, 1, 2, 2, 3, 3, 3]
    assert counts["RP-004"][-3:] == [3, 3, 3]
    assert len({record["job_id"] for result in results for record in result.records}) == 5


def test_the_gate_can_be_replayed_in_the_same_database(tmp_path: Path) -> None:
    for _ in range(2):
        assert all(result.ok for result in gate_on(tmp_path / "jobs.db"))


def test_a_gate_with_another_policy_does_not_pass(tmp_path: Path) -> None:
    """The cases that depend on the policy fail if an application declares gate-b2 differently."""
    two_retries = GATE_B2.with_options(retry=replace(GATE_B2.retry, max_retries=2))
    results = {result.id: result for result in gate_on(tmp_path / "jobs.db", {GATE_B2.name: two_retries})}
    assert [name for name, result in results.items() if not result.ok] == ["RP-003", "RP-004"]
    assert "expected running -> retrying" in results["RP-003"].problems[0]
    assert results["RP-004"].as_dict()["problems"][-1] == "retry_count is 2, expected 3"


def test_an_accepted_transition_of_a_finished_job_does_not_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def accept(self: Jobs, job_id: str, *_: Any) -> Any:
        return await self.get(job_id)

    monkeypatch.setattr(gate_b2_cases, "CASES", [case for case in CASES if case.end_again])
    monkeypatch.setattr(Jobs, "transition", accept)
    (result,) = gate_on(tmp_path / "jobs.db")
    assert result.problems[0] == (
        "succeeded -> succeeded was answered with no refusal, expected WF_STATE_TRANSITION_INVALID"
    )


@pytest.mark.parametrize(
    ("retry", "problem"),
    [
        ({"base_ms": 50}, "delay 1 is 50 to 350 ms, the specification gives 1000 to 1300 ms"),
        ({"cap_ms": 60_000}, "delay 6 is 32000 to 32300 ms, the specification gives 30000 to 30300 ms"),
        ({"jitter_ms": 9_000}, "delay 1 is 1000 to 10000 ms, the specification gives 1000 to 1300 ms"),
        ({"jitter_ms": 299}, "delay 1 is 1000 to 1299 ms, the specification gives 1000 to 1300 ms"),
        ({"factor": 3}, "delay 2 is 3000 to 3300 ms, the specification gives 2000 to 2300 ms"),
    ],
)
def test_the_cases_check_the_numbers_of_the_specification(tmp_path: Path, retry: Any, problem: str) -> None:
    contracts = {GATE_B2.name: GATE_B2.with_options(retry=retry)}
    results = {result.id: result for result in gate_on(tmp_path / "jobs.db", contracts)}
    assert [name for name, result in results.items() if not result.ok] == ["RP-002", "RP-003", "RP-004"]
    assert problem in results["RP-002"].problems


@pytest.mark.parametrize(("drawn", "ok"), [(0, True), (300, True), (301, False)])
def test_the_delay_of_each_retry_is_in_the_range_of_the_specification(tmp_path: Path, drawn: int, ok: bool) -> None:
    results = {result.id: result for result in gate_on(tmp_path / "jobs.db", jitter=lambda *_: drawn)}
    assert results["RP-001"].ok and results["RP-003"].ok is ok
    if not ok:
        assert "retry 3 is due after 4301 ms, the specification gives 4000 to 4300 ms" in results["RP-003"].problems


def test_a_dead_letter_of_another_job_does_not_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = DeadLetters.get

    async def of_another_job(self: DeadLetters, dlq_id: str) -> DeadLetter:
        return replace(await real(self, dlq_id), job_id="another")

    monkeypatch.setattr(DeadLetters, "get", of_another_job)
    assert [result.id for result in gate_on(tmp_path / "jobs.db") if not result.ok] == ["RP-004"]


def test_a_violation_found_by_verify_fails_the_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_b2_cases, "CASES", CASES[:1])
    monkeypatch.setattr("detent.proof.verify.verify.agrees", lambda *_: False)
    monkeypatch.setattr("detent.proof.verify.verify.differences", lambda _: [(None, "lease-left", "a worker is left")])
    (result,) = gate_on(tmp_path / "jobs.db")
    assert result.problems == ["verify: lease-left: a worker is left"]


LEGAL = [
    ("gate-b2", ["job.queued", "job.running", "job.succeeded"], "succeeded"),
    ("men", ["task.pending", "task.ready", "task.running", "task.ready"], "ready"),
    ("p3c", ["created", "worker_claim", "process_restart", "recovery_abort"], "failed"),
    ("streams", ["task.created", "approval.requested", "approval.approved", "task.claimed"], "running"),
    ("formal", ["job_created", "plan_generated", "job_running", "job_failed", "job_requeued"], "Queued"),
    ("standard", ["job.created", "job.cancelled"], "cancelled"),
    ("standard", ["nothing", "of", "ours"], None),
]


@pytest.mark.parametrize(("contract", "names", "end"), LEGAL)
def test_legal_histories(contract: str, names: list[str], end: str | None) -> None:
    result = replay_history(CONTRACTS[contract], names)
    assert result.as_dict() | {"warnings": []} == {"ok": True, "first_illegal": None, "derived": end, "warnings": []}
    assert [warning.step for warning in result.warnings] == ([4] if "job_failed" in names else [])


ILLEGAL = [
    ("gate-b2", ["job.queued", "job.succeeded"], 1, "queued", ["job.running"], "succeeded"),
    ("gate-b2", ["job.queued", "job.running", "job.dlq_pending", "job.failed"], 3, "dlq_pending",
     ["job.dlq_recorded"], "failed"),
    ("men", ["task.ready"], 0, None, ["task.pending"], "ready"),
    ("p3c", ["created", "worker_claim", "completed", "completed"], 3, "succeeded", [], "succeeded"),
    ("streams", ["task.created", "noise", "task.succeeded"], 2, "queued",
     ["approval.approved", "task.claimed", "task.failed"], "succeeded"),
    ("formal", ["job_created", "job_cancelled"], 1, "Queued",
     ["job_leased", "job_requeued", "job_running", "wait_completed"], "Cancelled"),
]  # fmt: skip


@pytest.mark.parametrize(("contract", "names", "index", "status", "legal", "derived"), ILLEGAL)
def test_the_first_illegal_event(
    contract: str, names: list[str], index: int, status: str | None, legal: list[str], derived: str
) -> None:
    assert replay_history(CONTRACTS[contract], names).as_dict() | {"warnings": []} == {
        "warnings": [],
        "ok": False,
        "first_illegal": {"index": index, "event": names[index], "status": status, "legal": legal},
        "derived": derived,
    }


RUNNING = ["job_created", "job_running"]
WAITING = [*RUNNING, "job_waiting"]
INVARIANT_CASES = [
    ("formal", [*RUNNING, "job_completed", "job_running"], [(3, 1)]),
    ("formal", [*RUNNING, "job_completed", "job_failed", "job_leased", "job_requeued"], [(3, 1), (4, 1)]),
    ("formal", [*RUNNING, "job_failed", "noise", "job_requeued", "job_running"], [(4, 1)]),
    ("formal", [*WAITING, "job_completed"], [(3, 2)]),
    ("formal", [*WAITING, "job_waiting", "job_cancelled"], []),
    ("formal", ["job_created", "job_completed"], [(1, 3)]),
    ("formal", ["job_created", "job_waiting", "wait_completed"], [(1, 3)]),
    ("formal", [*WAITING, "job_requeued"], [(3, 4)]),
    ("formal", [*WAITING, "job_leased"], [(3, 4)]),
    ("formal", [*WAITING, "wait_completed", "job_running", "job_completed"], []),
    ("formal", ["job_created", "job_cancelled"], []),
    ("streams", ["task.created", "task.failed"], []),
    ("streams", ["task.created", "approval.approved", "task.claimed", "task.claimed"], []),
    ("standard", ["job.created", "job.claimed", "job.parked", "job.claimed"], [(3, 4)]),
    ("gate-b2", ["job.queued", "job.running", "job.succeeded", "job.succeeded"], [(3, 1)]),
]


@pytest.mark.parametrize(("contract", "names", "expected"), INVARIANT_CASES)
def test_broken_invariants_are_warnings(contract: str, names: list[str], expected: list[tuple[int, int]]) -> None:
    warnings = replay_history(CONTRACTS[contract], names).as_dict()["warnings"]
    assert [(warning["index"], warning["invariant"]) for warning in warnings] == expected


def test_verify_finds_in_a_log_what_replay_finds_in_its_names() -> None:
    for contract, names, expected in INVARIANT_CASES:
        table = ContractTable(CONTRACTS[contract])
        steps = list(walk(CONTRACTS[contract], names))
        folded = table.fold(tuple((step.event, step.sources[0], step.targets[0], 0, 0) for step in steps))
        found = [(steps[fault.step or 0].position, fault.rule) for fault in folded.faults]
        assert [(index, INVARIANTS[rule]) for index, rule in found if rule in INVARIANTS] == expected


NAMES = ["job.created", "job.claimed"]
FORMS = {
    "array of names": json.dumps(NAMES),
    "array of events": json.dumps([{"event": name, "seq": 1} for name in NAMES], indent=2),
    "array of types": json.dumps([{"type": name} for name in NAMES]),
    "mixed": json.dumps([NAMES[0], {"type": "other", "event": NAMES[1]}]),
    "lines of events": "\n".join(json.dumps({"event": name}) for name in NAMES) + "\n",
    "lines of names": '"job.created"\n\n"job.claimed"',
    "output of jobs events --json": json.dumps({"events": [{"event": name} for name in NAMES]}, indent=2),
    "the same on one line": json.dumps({"events": [{"event": name} for name in NAMES]}),
}


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_forms_of_a_history(text: str) -> None:
    assert read_history(text) == NAMES


def test_an_empty_array_is_a_history() -> None:
    assert read_history("[]") == []
    empty = {"ok": True, "first_illegal": None, "derived": None, "warnings": []}
    assert replay_history(CONTRACTS["men"], []).as_dict() == empty


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty"),
        ("  \n ", "empty"),
        ("[1]", "entry 1 is 1"),
        ('["job.created", {"name": "x"}]', "entry 2"),
        ('{"event": 5}', "line 1"),
        ('["job.created"', "the array is not JSON"),
        ('"job.created"\nnonsense', "line 2 is not JSON"),
        ("{\n", "line 1 is not JSON"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_bad_histories_are_refused(text: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match="HISTORY_INVALID") as caught:
        read_history(text)
    assert problem in caught.value.message


def test_a_declared_contract(tmp_path: Path) -> None:
    with_cancel = GATE_B2.with_options(edges=(*GATE_B2.edges, Edge(Move.CANCEL, "queued", "job.dropped", "failed")))
    assert replay_history(with_cancel, ["job.queued", "job.dropped"]).ok
    assert not replay_history(GATE_B2, ["job.queued", "job.dropped", "job.failed"]).ok
