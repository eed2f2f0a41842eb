"""`verify` works from the contract tables: it checks contracts of users, and distinguishes moves that share an edge."""

import json
from pathlib import Path
from typing import Any

import apsw
import pytest

from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import Contract, DeadLetterRule, Edge, LossRule, Move, Phase, StopRule
from detent.core.contract.standard import STANDARD
from detent.core.contract.streams import STREAMS
from detent.core.job import Failure
from detent.core.outcome import Failed, Outcome, Snoozed, Stopped, Succeeded
from detent.core.retry import Immediate, RetryRule
from detent.core.times import SECOND
from detent.engine import Engine, Submission
from detent.proof.verify.fold import CHARGED, DUE, STOPPED, UNCHARGED, ContractTable, flags_of
from detent.proof.verify.rules import Report
from detent.proof.verify.verify import verify
from detent.stores.sqlite.store import SqliteStore
from support.proof.healthy import ManualClock

pytestmark = pytest.mark.anyio
C, L, B, F = Phase.CLAIMABLE, Phase.LEASED, Phase.BLOCKED, Phase.FINAL

LAMP = Contract(
    name="lamp",
    statuses={"dark": C, "glowing": L, "cooling": B, "warm": B, "burnt": F, "spent": F},
    edges=(
        Edge(Move.SUBMIT, None, "made", "dark"),
        Edge(Move.CLAIM, "dark", "lit", "glowing"),
        Edge(Move.SUCCEED, "glowing", "spent", "spent"),
        Edge(Move.RETRY, "glowing", "put_out", "dark"),
        Edge(Move.EXPIRE, "glowing", "put_out", "dark"),
        Edge(Move.RELEASE, "glowing", "put_out", "dark"),
        Edge(Move.FAIL, "glowing", "cracked", "cooling"),
        Edge(Move.FOLLOW, "cooling", "cooled", "warm"),
        Edge(Move.FOLLOW, "warm", "burnt", "burnt"),
    ),
    retry=RetryRule(Immediate(), max_retries=2),
    loss=LossRule(Move.EXPIRE, charged=True),
    stop=StopRule(Move.RELEASE, charged=True),
    snooze=Move.RELEASE,
    dead_letters=DeadLetterRule(discard_people=1),
)
"""A user's contract with one event for three moves, follow-up edges and dead letters."""

BOOM = Failed(Failure("BOOM", 'say "charged":true and "due_at":1', "Boom"))
BROKEN = Failed(Failure("BROKEN", "never", retryable=False))
LOST = "lost"


async def build(path: Path, contract: Contract, histories: list[list[Outcome | str]]) -> None:
    clock = ManualClock()
    engine = Engine(SqliteStore(str(path), clock=clock, inline=True, synchronous="OFF"), {contract.name: contract})
    await engine.open()
    for number, outcomes in enumerate(histories):
        kind = f"kind-{number}"
        job = (await engine.jobs.submit(Submission(kind, contract=contract.name))).job
        for outcome in outcomes:
            clock.advance(10)
            claimed = await engine.claim(engine.claim_request("w1", 1, 30.0, job_types=frozenset({kind}), reclaim=True))
            if isinstance(outcome, str):
                clock.advance(400)
                await engine.expire()
            else:
                await engine.settle(job.id, claimed[0].token, outcome)
    await engine.close()


async def verified(path: Path, contracts: dict[str, Contract] | None = None) -> Report:
    store = SqliteStore(str(path), inline=True, synchronous="OFF")
    await store.open({}, {})
    try:
        return await verify(store, CONTRACTS if contracts is None else contracts)
    finally:
        await store.close()


HISTORIES: dict[str, list[Outcome | str]] = {
    "retried": [BOOM, BOOM, Succeeded()],
    "lost": [LOST, LOST, Succeeded()],
    "stopped": [Stopped(), Stopped(), Succeeded()],
    "snoozed": [Snoozed(5 * SECOND), Snoozed(5 * SECOND), Snoozed(5 * SECOND), Succeeded()],
    "all of it": [BOOM, Snoozed(SECOND), LOST, Snoozed(SECOND), BOOM],
    "worn out": [BOOM, LOST, Stopped()],
    "broken": [BROKEN],
}


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
async def test_moves_that_share_an_event_are_distinguished(tmp_path: Path, history: list[Outcome | str]) -> None:
    await build(tmp_path / "jobs.db", LAMP, [history])
    report = await verified(tmp_path / "jobs.db")
    assert (report.violations, report.jobs) == ([], 1)


@pytest.mark.parametrize("column", ["failures", "retries", "interruptions", "execution_no"])
@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
async def test_a_wrong_counter_is_reported_for_every_history(
    tmp_path: Path, history: list[Outcome | str], column: str
) -> None:
    await build(tmp_path / "jobs.db", LAMP, [history])
    connection = apsw.Connection(str(tmp_path / "jobs.db"))
    connection.execute(f"PRAGMA ignore_check_constraints = ON; UPDATE detent_jobs SET {column} = {column} + 1")
    connection.close()
    name = "executions" if column == "execution_no" else column
    assert f"{name}-differ" in {finding.rule for finding in (await verified(tmp_path / "jobs.db")).violations}


async def test_a_contract_declared_only_in_the_database(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    await build(path, LAMP, list(HISTORIES.values()))
    assert (await verified(path, {})).ok
    connection = apsw.Connection(str(path))
    connection.execute("DELETE FROM detent_contracts WHERE name = 'lamp'")
    connection.close()
    report = await verified(path)
    assert {finding.rule for finding in report.violations} == {"contract-unknown"}
    assert len(report.violations) == len(HISTORIES)


async def test_other_options_do_not_make_another_contract(tmp_path: Path) -> None:
    nine_retries = STANDARD.with_options(retry=RetryRule(Immediate(), max_retries=9))
    await build(tmp_path / "jobs.db", nine_retries, [[BOOM] * 9])
    report = await verified(tmp_path / "jobs.db")
    assert (report.violations, report.warnings) == ([], [])


async def test_uncharged_losses_and_takeovers(tmp_path: Path) -> None:
    p3c = CONTRACTS["p3c"].with_options(loss=LossRule(Move.EXPIRE, charged=False, max_interruptions=1))
    await build(tmp_path / "p3c.db", p3c, [[LOST], [LOST, LOST], [LOST, Stopped()]])
    report = await verified(tmp_path / "p3c.db")
    assert (report.violations, report.jobs) == ([], 3)
    await build(tmp_path / "streams.db", STREAMS, [[LOST, LOST, Succeeded()], [LOST, BOOM, Succeeded()]])
    report = await verified(tmp_path / "streams.db")
    assert (report.violations, report.jobs) == ([], 2)


@pytest.mark.parametrize(
    ("data", "flags"),
    [
        ({}, 0),
        ({"charged": True}, CHARGED),
        ({"charged": False, "due_at": 5}, UNCHARGED | DUE),
        ({"reason": "worker_stopped", "charged": True}, CHARGED | STOPPED),
        ({"error_message": '"charged":true,"due_at":1'}, 0),
        ({"error_message": 'x"charged":true', "charged": False}, UNCHARGED),
    ],
)
def test_flags_are_read_from_any_json_format(data: dict[str, Any], flags: int) -> None:
    assert flags_of(json.dumps(data, separators=(",", ":"))) == flags
    if "reason" not in data:  # only the engine writes it, in compact JSON
        assert flags_of(json.dumps(data, indent=1)) == flags


def test_unreadable_data_has_no_flags() -> None:
    assert flags_of('{"charged" cut of') == 0
    assert flags_of('["charged"]') == 0


def test_the_cache_of_folds_is_bounded() -> None:
    table = ContractTable(LAMP)
    for count in range(10_000):
        table.fold((("made", None, "dark", 0, count),))
    table.fold((("made", None, "dark", 0, 0),) * 100)
    assert len(table._folds) < 5_000
