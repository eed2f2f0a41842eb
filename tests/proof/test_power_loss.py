"""SQLite when the power is lost: every acknowledged commit is there afterwards, and the log still proves each job.

The disk is a VFS that drops, tears and reorders what was not synced. SQLite needs its exclusive mode for WAL there: the
index of the log is then in memory instead of in a file that processes share.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any

import apsw
import pytest

from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import Contract
from detent.core.errors import DetentError
from detent.core.job import Failure, Step
from detent.core.outcome import Failed, Outcome, Succeeded
from detent.engine import Engine, Settlement, Submission
from detent.ports.claims import Claimed
from detent.proof.verify.verify import verify
from detent.stores.sqlite.migrate import ensure_schema, register
from detent.stores.sqlite.session import Session
from detent.stores.sqlite.store import SqliteStore
from detent.system.run_now import run_now
from detent.testing.clocks import ManualClock
from support.proof.simulated_disk import Disk

FILE = "jobs.db"
ROUNDS = 40
LONGEST = 400
"""Writes to the disk in one round."""
CHECKPOINT_PAGES = 12
"""So few that several checkpoints fall into one round."""


class DiskStore(SqliteStore):
    """The SQLite store on a simulated disk."""

    def __init__(self, disk: Disk, clock: ManualClock, synchronous: str = "FULL") -> None:
        super().__init__(FILE, clock=clock, inline=True, synchronous=synchronous)
        self._disk = disk

    def open_now(self, own: Mapping[str, Contract], builtin: Mapping[str, Contract] = CONTRACTS) -> None:
        connection = apsw.Connection(FILE, vfs=self._disk.vfs)
        connection.pragma("locking_mode", "exclusive")
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", self.synchronous)
        connection.pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
        ensure_schema(connection, may_migrate=True)
        self._writer = self._reader = Session(connection, "BEGIN IMMEDIATE", self._clock)
        self._use_contracts(register(connection, own, builtin))


@dataclass
class Acknowledged:
    """What callers were told before the power was lost."""

    submitted: set[str] = field(default_factory=set)
    ended: dict[str, str] = field(default_factory=dict)
    """job id -> status"""
    steps: dict[tuple[str, str], str | None] = field(default_factory=dict)


Acknowledge = Callable[[], object]
"""Called if the caller got the answer."""


class Round:
    """Submits, claims, steps and results, until the power is lost."""

    def __init__(
        self, engine: Engine, disk: Disk, clock: ManualClock, random: Random, acknowledged: Acknowledged
    ) -> None:
        self.engine, self.disk, self.clock, self.random = engine, disk, clock, random
        self.acknowledged = acknowledged
        self.held: list[Claimed] = []

    def run(self) -> None:
        calls = (self._submit, self._submit, self._claim, self._record, self._settle)
        while not self.disk.lost_power:
            self.clock.advance(self.random.random())
            acknowledge = self.random.choice(calls)()
            if not self.disk.lost_power:  # else the power was lost before the caller got the answer
                acknowledge()

    def _submit(self) -> Acknowledge:
        size = self.random.choice((10, 10, 3_000))
        submissions = [Submission("work", {"text": "x" * size}) for _ in range(self.random.choice((1, 1, 5)))]
        submitted = run_now(self.engine.jobs.submit_many(submissions))
        return lambda: self.acknowledged.submitted.update(one.job.id for one in submitted)

    def _claim(self) -> Acknowledge:
        request = self.engine.claim_request("w1", 3, 30.0)
        claimed = run_now(self.engine.settle_and_claim([], request)).claimed
        return lambda: self.held.extend(claimed)

    def _record(self) -> Acknowledge:
        if not self.held:
            return lambda: None
        claimed = self.random.choice(self.held)
        name = f"step {self.random.randrange(4)}"
        step = Step(claimed.id, name, "", "1", True, claimed.execution_no, self.clock.now())
        run_now(self.engine.store.record_step(step, claimed.token))
        return lambda: self.acknowledged.steps.update({(step.job_id, step.name): step.result})

    def _settle(self) -> Acknowledge:
        batch, self.held = self.held[:2], self.held[2:]
        outcomes: list[Outcome] = [Succeeded('"done"'), Failed(Failure("NO", "no", retryable=False))]
        settlements = [
            Settlement(claimed.id, claimed.token, claimed.contract, self.random.choice(outcomes), claimed=claimed)
            for claimed in batch
        ]
        assert not run_now(self.engine.settle_and_claim(settlements, None)).refused
        ended = {s.id: "succeeded" if isinstance(s.outcome, Succeeded) else "failed" for s in settlements}
        return lambda: self.acknowledged.ended.update(ended)


@cache
def empty_database() -> bytes:
    """A file with the schema, so that not every round creates it."""
    disk = Disk(Random(0), 10**9)
    store = DiskStore(disk, ManualClock())
    run_now(Engine(store).open())
    store.close_now()
    return bytes(disk.files[FILE].durable)


def lose_power(seed: int, synchronous: str = "FULL") -> list[str]:
    """One round: what is wrong after the restart. In half of the rounds the power is lost again after a restart."""
    random, clock, acknowledged = Random(seed), ManualClock(), Acknowledged()
    files = {FILE: empty_database()}
    for _ in range(random.choice((1, 2))):
        disk = Disk(random, random.randrange(1, LONGEST), files)
        store = DiskStore(disk, clock, synchronous)
        engine = Engine(store)
        try:
            run_now(engine.open())
            Round(engine, disk, clock, random, acknowledged).run()
        except Exception as error:  # rows that must exist are missing
            return [f"the file is damaged: {error!r}"]
        finally:
            store.close_now()
        assert disk.survivors is not None
        files = disk.survivors
    return differences(files, clock, acknowledged)


def differences(files: dict[str, bytes], clock: ManualClock, acknowledged: Acknowledged) -> list[str]:
    store = DiskStore(Disk(Random(0), 10**9, files), clock)
    engine = Engine(store)
    try:
        run_now(engine.open())
        assert store._writer is not None
        return [*_lost(store._writer.connection, acknowledged), *_broken(store, engine)]
    except (apsw.Error, DetentError) as error:
        return [f"the file is damaged: {error}"]
    finally:
        store.close_now()


def _lost(connection: apsw.Connection, acknowledged: Acknowledged) -> Iterator[str]:
    if (check := connection.pragma("integrity_check")) != "ok":
        yield f"integrity_check: {check}"
    rows: Any = connection.execute("SELECT id, status FROM detent_job_list").fetchall()
    statuses = dict(rows)
    for job_id in acknowledged.submitted - statuses.keys():
        yield f"job {job_id} is lost"
    for job_id, status in acknowledged.ended.items():
        if statuses.get(job_id) != status:
            yield f"job {job_id} is {statuses.get(job_id)}, it was {status}"
    recorded = set(connection.execute("SELECT job_id, name FROM detent_steps"))
    for key in acknowledged.steps.keys() - recorded:
        yield f"step {key} is lost"


def _broken(store: DiskStore, engine: Engine) -> list[str]:
    report = run_now(verify(store, engine.contracts, read_ahead=False))
    return [f"{broken.rule}: {broken.detail}" for broken in report.violations]


def test_no_acknowledged_commit_is_lost() -> None:
    for seed in range(ROUNDS):
        assert lose_power(seed) == [], f"seed {seed}"


@pytest.mark.parametrize("synchronous", ["OFF", "NORMAL"])
def test_a_database_that_does_not_sync_is_found(synchronous: str) -> None:
    """The planted bugs: without syncs the file is damaged or commits are lost; with NORMAL the latest commits are."""
    assert any(lose_power(seed, synchronous) for seed in range(20)), "20 rounds lost nothing"


def test_the_rounds_reach_checkpoints_and_all_kinds_of_calls() -> None:
    disk, clock = Disk(Random(7), LONGEST, {FILE: empty_database()}), ManualClock()
    engine = Engine(DiskStore(disk, clock))
    run_now(engine.open())
    known = Acknowledged()
    Round(engine, disk, clock, Random(7), known).run()
    assert disk.syncs > 20 and disk.files[FILE].durable != empty_database(), "a checkpoint wrote to the file"
    assert known.submitted and known.steps and set(known.ended.values()) == {"succeeded", "failed"}


@pytest.mark.drill
def test_ten_thousand_losses_of_power() -> None:
    for seed in range(ROUNDS, ROUNDS + 10_000):
        assert lose_power(seed) == [], f"seed {seed}"
