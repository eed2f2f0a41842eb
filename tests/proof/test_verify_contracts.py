"""`verify` is driven by the tables: contracts nobody foresaw are held to their own, and shared edges are told apart."""

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

from .healthy import Hands

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
"""One event for three moves, follow-ups and dead letters: nothing of it spelled anywhere else."""

BOOM = Failed(Failure("BOOM", 'say "charged":true and "due_at":1', "Boom"))
BROKEN = Failed(Failure("BROKEN", "never", retryable=False))
LOST = "lost"


async def lived(path: Path, contract: Contract, lives: list[list[Outcome | str]]) -> None:
    clock = Hands()
    engine = Engine(SqliteStore(str(path), clock=clock, inline=True, synchronous="OFF"), {contract.name: contract})
    await engine.open()
    for number, life in enumerate(lives):
        kind = f"kind-{number}"
        job = (await engine.submit(Submission(kind, contract=contract.name))).job
        for outcome in life:
            clock.advance(10)
            held = await engine.claim(engine.claim_request("w1", 1, 30.0, job_types=frozenset({kind}), reclaim=True))
            if isinstance(outcome, str):
                clock.advance(400)
                await engine.expire()
            else:
                await engine.settle(job.id, held[0].token, outcome)
    await engine.close()


async def judged(path: Path, contracts: dict[str, Contract] | None = None) -> Report:
    store = SqliteStore(str(path), inline=True, synchronous="OFF")
    await store.open({}, {})
    try:
        return await verify(store, CONTRACTS if contracts is None else contracts)
    finally:
        await store.close()


LIVES: dict[str, list[Outcome | str]] = {
    "retried": [BOOM, BOOM, Succeeded()],
    "lost": [LOST, LOST, Succeeded()],
    "stopped": [Stopped(), Stopped(), Succeeded()],
    "snoozed": [Snoozed(5 * SECOND), Snoozed(5 * SECOND), Snoozed(5 * SECOND), Succeeded()],
    "all of it": [BOOM, Snoozed(SECOND), LOST, Snoozed(SECOND), BOOM],
    "worn out": [BOOM, LOST, Stopped()],
    "broken": [BROKEN],
}


@pytest.mark.parametrize("life", LIVES.values(), ids=LIVES)
async def test_moves_that_share_an_event_are_told_apart(tmp_path: Path, life: list[Outcome | str]) -> None:
    await lived(tmp_path / "jobs.db", LAMP, [life])
    report = await judged(tmp_path / "jobs.db")
    assert (report.violations, report.jobs) == ([], 1)


@pytest.mark.parametrize("column", ["failures", "retries", "interruptions", "execution_no"])
@pytest.mark.parametrize("life", LIVES.values(), ids=LIVES)
async def test_a_wrong_counter_is_seen_on_every_life(tmp_path: Path, life: list[Outcome | str], column: str) -> None:
    await lived(tmp_path / "jobs.db", LAMP, [life])
    connection = apsw.Connection(str(tmp_path / "jobs.db"))
    connection.execute(f"PRAGMA ignore_check_constraints = ON; UPDATE jobs SET {column} = {column} + 1")
    connection.close()
    name = "executions" if column == "execution_no" else column
    assert f"{name}-differ" in {finding.rule for finding in (await judged(tmp_path / "jobs.db")).violations}


async def test_a_contract_only_the_database_knows(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    await lived(path, LAMP, list(LIVES.values()))
    assert (await judged(path, {})).ok
    connection = apsw.Connection(str(path))
    connection.execute("DELETE FROM contracts WHERE name = 'lamp'")
    connection.close()
    report = await judged(path)
    assert {finding.rule for finding in report.violations} == {"contract-unknown"}
    assert len(report.violations) == len(LIVES)


async def test_other_options_are_no_other_table(tmp_path: Path) -> None:
    patient = STANDARD.with_options(retry=RetryRule(Immediate(), max_retries=9))
    await lived(tmp_path / "jobs.db", patient, [[BOOM] * 9])
    report = await judged(tmp_path / "jobs.db")
    assert (report.violations, report.warnings) == ([], [])


async def test_uncharged_losses_and_takeovers(tmp_path: Path) -> None:
    given_up = CONTRACTS["p3c"].with_options(loss=LossRule(Move.EXPIRE, charged=False, max_interruptions=1))
    await lived(tmp_path / "p3c.db", given_up, [[LOST], [LOST, LOST], [LOST, Stopped()]])
    report = await judged(tmp_path / "p3c.db")
    assert (report.violations, report.jobs) == ([], 3)
    await lived(tmp_path / "streams.db", STREAMS, [[LOST, LOST, Succeeded()], [LOST, BOOM, Succeeded()]])
    report = await judged(tmp_path / "streams.db")
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
def test_flags_are_read_from_any_spelling(data: dict[str, Any], flags: int) -> None:
    assert flags_of(json.dumps(data, separators=(",", ":"))) == flags
    if "reason" not in data:  # only ever written by us, closely
        assert flags_of(json.dumps(data, indent=1)) == flags


def test_unreadable_data_says_nothing() -> None:
    assert flags_of('{"charged" cut of') == 0
    assert flags_of('["charged"]') == 0


def test_long_and_many_logs_do_not_fill_the_memory() -> None:
    table = ContractTable(LAMP)
    for count in range(10_000):
        table.walk((("made", None, "dark", 0, count),))
    table.walk((("made", None, "dark", 0, 0),) * 100)
    assert len(table._walks) < 5_000
