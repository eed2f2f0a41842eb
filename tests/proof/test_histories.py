"""Calls of real processes on a real Postgres under faults, recorded with their times and checked from outside."""

import asyncio
import time
from pathlib import Path

import pytest

from support.histories.checker import NEVER, Call, Rules, check, is_linearizable
from support.histories.recording import Recorder
from support.histories.run import count, load, record
from support.servers.databases import migrated
from support.servers.postgres import running

RULES = Rules(lease=10.0, retries=lambda job_type: 3, backoff=2.0)
LIMIT_SECONDS = 600
OPERATIONS = 1_000_000


def submit(begin: float, end: float) -> Call:
    return Call("submit", begin, end, ("quick",), "unknown" if end == NEVER else "ok")


def claim(begin: float, end: float, token: str = "a", version: int = 2, execution: int = 1) -> Call:
    return Call("claim", begin, end, (token, version, execution, True), "ok")


def settle(begin: float, end: float, token: str = "a", outcome: str = "Succeeded", answer: str = "ok") -> Call:
    return Call("settle", begin, end, (token, outcome), answer)


def extend(begin: float, end: float, token: str = "a", answer: str = "ok") -> Call:
    return Call("extend", begin, end, (token,), answer)


def keyed(begin: float, end: float, job_id: str, answer: str) -> Call:
    return Call("keyed", begin, end, (job_id,), answer)


def read(begin: float, status: str | None, version: int) -> Call:
    return Call("read", begin, begin + 0.5, (), (status, version))


def cancel(begin: float, end: float, answer: str | tuple[str, int]) -> Call:
    return Call("cancel", begin, end, (), answer)


PLAIN = [submit(0, 1), claim(2, 3), settle(4, 5)]
LEGAL = {
    "plain": [*PLAIN, read(6, "succeeded", 3)],
    "the reply of the submit was lost": [submit(0, NEVER), claim(2, 3), settle(4, 5), read(6, "succeeded", 3)],
    "the submit was repeated": [*PLAIN, submit(3, 4), read(6, "succeeded", 3)],
    "the settlement was repeated": [*PLAIN, settle(6, 7), read(8, "succeeded", 3)],
    "the settlement was repeated when the job had been claimed again": [
        submit(0, 1), claim(2, 3), settle(4, NEVER, outcome="Failed", answer="unknown"), claim(6.1, 7, "b", 4, 2),
        settle(8, 9, outcome="Failed", answer="refused"), settle(10, 11, "b")],
    "a read during the claim sees either status": [*PLAIN, read(2.2, "queued", 1), read(2.4, "running", 2)],
    "a settlement without a reply took effect": [submit(0, 1), claim(2, 3), settle(4, NEVER, answer="unknown"),
                                                 read(6, "succeeded", 3)],
    "a settlement without a reply did not": [submit(0, 1), claim(2, 3), settle(4, NEVER, answer="unknown"),
                                             read(6, "running", 2)],
    "the lease ran out, the late result was refused": [
        submit(0, 1), claim(2, 3), claim(14, 15, "b", 4, 2), settle(16, 17, answer="refused"), settle(18, 19, "b"),
        read(20, "succeeded", 5)],
    "cancelled while queued": [submit(0, 1), cancel(2, 3, ("cancelled", 2)), read(4, "cancelled", 2)],
    "cancelled while running, by the worker": [
        submit(0, 1), claim(2, 3), cancel(4, 5, ("running", 2)), settle(6, 7, outcome="Cancelled"),
        read(8, "cancelled", 3)],
    "retried after its backoff": [submit(0, 1), claim(2, 3), settle(4, 5, outcome="Failed"),
                                  claim(5.5, 6.1, "b", 4, 2)],
    "the lease was extended, and ran out later": [
        submit(0, 1), claim(2, 3), extend(9, 9.5), claim(20, 21, "b", 4, 2), extend(22, 23, answer="refused")],
    "a heartbeat during the settlement": [submit(0, 1), claim(2, 3), settle(4, 6), extend(5, 5.5, answer="refused")],
    "one job for one key": [keyed(0, NEVER, "x", "unknown"), keyed(1, 2, "y", "x"), keyed(3, 4, "z", "x")],
    "a cancel and a result at once": [submit(0, 1), claim(2, 3), settle(4, 6), cancel(5, 7, "refused"),
                                      read(8, "succeeded", 3)],
}  # fmt: skip
"""Histories that the rules allow."""
ILLEGAL = {
    "lost submit": [submit(0, 1), read(2, None, 0)],
    "a job that nobody submitted": [claim(2, 3)],
    "double settlement": [*PLAIN, claim(6, 7, "b", 4, 2), settle(8, 9, "b")],
    "another outcome after the settlement": [*PLAIN, settle(6, 7, outcome="Failed")],
    "stale token accepted": [submit(0, 1), claim(2, 3), claim(14, 15, "b", 4, 2), settle(16, 17, "a")],
    "a repeated settlement is accepted after the next claim": [
        submit(0, 1), claim(2, 3), settle(4, 5, outcome="Failed"), claim(7.1, 8, "b", 4, 2),
        settle(9, 10, outcome="Failed")],
    "a repeated settlement is refused": [*PLAIN, settle(6, 7, answer="refused")],
    "valid token refused": [submit(0, 1), claim(2, 3), settle(4, 5, answer="refused"), read(6, "running", 2)],
    "status goes back": [submit(0, 1), claim(2, 3), read(4, "running", 2), read(5, "queued", 1)],
    "version goes back": [*PLAIN, read(6, "succeeded", 3), read(7, "succeeded", 2)],
    "cancel after success": [*PLAIN, cancel(6, 7, ("cancelled", 4))],
    "cancelled job runs": [submit(0, 1), cancel(2, 3, ("cancelled", 2)), claim(4, 5, "a", 3, 1)],
    "two holders": [submit(0, 1), claim(2, 3), claim(4, 5, "b", 4, 2)],
    "settled before it was claimed": [submit(0, 1), settle(2, 3), claim(4, 5)],
    "claimed before it was submitted": [claim(0, 1), submit(2, 3), settle(4, 5)],
    "retried before its backoff": [submit(0, 1), claim(2, 3), settle(4, 5, outcome="Failed"),
                                   claim(5.1, 5.5, "b", 4, 2)],
    "one token for two executions": [submit(0, 1), claim(2, 3), claim(14, 15, "a", 4, 2)],
    "an extended lease is taken away": [submit(0, 1), claim(2, 3), extend(9, 9.5), claim(15, 16, "b", 4, 2)],
    "a heartbeat is accepted after another claim": [
        submit(0, 1), claim(2, 3), claim(14, 15, "b", 4, 2), extend(16, 17)],
    "a heartbeat is accepted after the end": [*PLAIN, extend(6, 7)],
    "a heartbeat of the holder is refused": [submit(0, 1), claim(2, 3), extend(4, 5, answer="refused")],
    "two jobs for one key": [keyed(0, 1, "x", "x"), keyed(2, 3, "y", "y")],
    "a version that never was": [*PLAIN, read(6, "succeeded", 5)],
    "an execution number is left out": [submit(0, 1), claim(2, 3, execution=2)],
    "more retries than allowed": [
        submit(0, 1), *(call for n in range(5) for call in (
            claim(10 * n + 2, 10 * n + 3, f"{n}", 2 * n + 2, n + 1),
            settle(10 * n + 4, 10 * n + 5, f"{n}", "Failed")))],
    "a signal is lost": [submit(0, 1), claim(2, 3), settle(4, 5, outcome="Waits"),
                         Call("signal", 6, 7, (), "ok"), read(8, "parked", 3)],
    "a requested cancel is forgotten": [
        submit(0, 1), claim(2, 3), cancel(4, 5, ("running", 2)), settle(6, 7, outcome="Failed"),
        claim(10, 11, "b", 4, 2)],
}  # fmt: skip
"""Histories with a violation."""


@pytest.mark.parametrize("name", LEGAL)
def test_the_checker_accepts(name: str) -> None:
    assert is_linearizable(LEGAL[name], RULES)


@pytest.mark.parametrize("name", ILLEGAL)
def test_the_checker_finds(name: str) -> None:
    assert not is_linearizable(ILLEGAL[name], RULES)


def test_only_a_crash_undoes_a_claim_and_only_one_that_settles_nothing() -> None:
    again = [submit(0, 1), claim(2, 3), claim(4, 5, "b", 2, 1), settle(6, 7, "b"), read(8, "succeeded", 3)]
    unflushed = [
        call._replace(arguments=(*call.arguments[:3], False)) if n == 1 else call for n, call in enumerate(again)
    ]
    crash = RULES._replace(crashes=[(3.2, 3.4)])
    assert is_linearizable(unflushed, crash)
    assert not is_linearizable(unflushed, RULES) and not is_linearizable(again, crash)


def test_a_settlement_that_was_acknowledged_survives_a_crash() -> None:
    crash = RULES._replace(crashes=[(5.2, 5.4)])
    assert not is_linearizable([*PLAIN, read(6, "running", 2)], crash)
    assert not is_linearizable([*PLAIN, read(6, "queued", 1)], crash)


def test_a_claim_whose_reply_was_lost_explains_an_execution_that_no_worker_knows() -> None:
    calls = [submit(0, 1), claim(20, 21, "b", 4, 2), settle(22, 23, "b"), read(24, "succeeded", 5)]
    assert is_linearizable(calls, RULES._replace(lost_claims_from=2.0))
    assert not is_linearizable(calls, RULES)


def test_a_job_that_the_listing_at_the_end_leaves_out_was_lost(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "client")
    for job_ids, answer in ((["kept", "lost"], "ok"), (["unknown"], None)):
        number = recorder.invoke("submit", "quick", job_ids)
        if answer:
            recorder.respond(number, answer)
    recorder.respond(recorder.invoke("reads"), [["kept", "queued", 1]])
    calls, rules = load(tmp_path)
    assert [violation.job_id for violation in check(calls.items(), rules)] == ["lost"]


def run(folder: Path, jobs: int, seed: int, faults: int = 0) -> int:
    """The number of operations that were answered in a run without violations."""
    with running(settings={"max_connections": "200"}) as server:
        asyncio.run(migrated(server.url()))
        begin = time.monotonic()
        numbers = record(server, folder, jobs, seed)
    recorded = time.monotonic()
    calls, rules = load(folder)
    wrong = list(check(calls.items(), rules))
    kinds = count(calls)
    answered = sum(number for name, number in kinds.items() if not name.endswith("unknown"))
    print(f"\n{numbers}\n{dict(kinds)}")
    print(f"{answered} operations answered, recorded in {recorded - begin:.0f} s, checked in", end=" ")
    print(f"{time.monotonic() - recorded:.0f} s")
    assert not wrong, "\n".join(map(str, wrong[:3]))
    assert numbers["jobs read"] >= jobs
    assert numbers["faults"] >= faults
    return answered


def plant(name: str, calls: list[Call]) -> list[Call]:
    """The history of a job that succeeded, with a violation in it."""
    end = max(call.end for call in calls if call.end != NEVER)
    last = max((call for call in calls if call.kind == "read"), key=lambda call: call.begin)
    first_claim = min((call for call in calls if call.kind == "claim"), key=lambda call: call.begin)
    version, executions = last.answer[1], max(call.arguments[2] for call in calls if call.kind == "claim")
    match name:
        case "lost submit":
            return [*(call for call in calls if call is not last), last._replace(answer=(None, 0))]
        case "double settlement":
            later = claim(end + 1, end + 2, "other", version + 1, executions + 1)
            return [*calls, later, settle(end + 3, end + 4, "other")]
        case "stale token accepted":
            return [*calls, settle(end + 1, end + 2, "stale")]
        case "status goes back":
            return [*calls, read(end + 1, "running", 2)]
        case "cancel after success":
            return [*calls, cancel(end + 1, end + 2, ("cancelled", version + 1))]
        case "two holders":
            _, claimed, execution, _ = first_claim.arguments
            return [*calls, claim(first_claim.end, first_claim.end + 0.01, "other", claimed + 2, execution + 1)]
        case "heartbeat after the end":
            return [*calls, extend(end + 1, end + 2, max(calls, key=lambda call: call.kind == "claim").arguments[0])]
        case _:
            raise AssertionError(name)


PLANTED = (
    "lost submit", "double settlement", "stale token accepted", "status goes back", "cancel after success",
    "two holders", "heartbeat after the end",
)  # fmt: skip


@pytest.mark.long
def test_calls_under_faults_are_linearizable_and_planted_violations_are_found(tmp_path: Path) -> None:
    assert run(tmp_path, 4_000, seed=1) > 4 * 4_000
    jobs, rules = load(tmp_path)
    succeeded = [calls for calls in jobs.values() if any(call.answer == ("succeeded", 3) for call in calls)]
    for name in PLANTED:
        for calls in succeeded[:50]:
            assert not is_linearizable(plant(name, calls), rules), (name, calls)


@pytest.mark.drill
def test_a_million_operations_under_faults(tmp_path: Path) -> None:
    begin = time.monotonic()
    assert run(tmp_path, 250_000, seed=2, faults=5) >= OPERATIONS
    assert time.monotonic() - begin < LIMIT_SECONDS
