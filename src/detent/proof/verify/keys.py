"""Keys and numbered runs: every key has one owner that bears it, every task its runs 1, 2, 3, …"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from detent.core.contract.model import Contract

from .fold import ContractTable
from .rows import ATTEMPT, CONTRACT, ID, KEY, SCOPE, TASK, TENANT, Row
from .rules import Report

Pair = tuple[str, str]
_SPACES_AT_MOST = 10_000


class KeyRing:
    """Which (space, key) pairs the jobs of one chunk must own."""

    def __init__(self) -> None:
        self._spaces: dict[tuple[Any, ...], str] = {}
        self.wanted: list[tuple[Pair, str]] = []

    def want(self, row: Row, contract: Contract) -> None:
        job_id = row[ID]
        for pair in self.pairs(contract, job_id, row[TENANT], row[KEY], row[SCOPE], row[TASK]):
            self.wanted.append((pair, job_id))

    def pairs(
        self, contract: Contract, job_id: str, tenant: str, key: str | None, scope: str | None, task: str | None
    ) -> list[Pair]:
        """What this job's own columns make it own. A task_id that is only the job's id is nobody's key."""
        rule, found = contract.keys, []
        if rule.task_id_is_key and task and task != job_id:
            found.append((self.space(contract.name, "task_id"), task))
        if key and key.strip():
            if rule.scope:
                values = {"tenant_id": tenant, "idempotency_scope": scope}
                found.append((self.space(contract.name, "key", *[values[name] for name in rule.scope]), key))
            else:
                found.append((self.space(contract.name, "key"), key))
        return found

    def space(self, *parts: Any) -> str:
        """As it is stored: one JSON list of the contract, the kind of key and the values it is unique in."""
        known = self._spaces.get(parts)
        if known is None:
            if len(self._spaces) >= _SPACES_AT_MOST:
                self._spaces.clear()
            known = self._spaces[parts] = json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
        return known

    def take(self) -> list[tuple[Pair, str]]:
        """What was wanted since the last time."""
        wanted, self.wanted = self.wanted, []
        return wanted


def check_owners(wanted: Iterable[tuple[Pair, str]], owners: Mapping[Pair, str], report: Report) -> None:
    for pair, job_id in wanted:
        owner = owners.get(pair)
        if owner is None:
            report.add(job_id, None, "key-missing", f"nobody owns the key {pair[1]!r} in {pair[0]}")
        elif owner != job_id:
            report.add(job_id, None, "key-taken", f"the key {pair[1]!r} in {pair[0]} belongs to job {owner}")


def check_bearers(rows: Iterable[Row], tables: Mapping[str, ContractTable], ring: KeyRing, report: Report) -> None:
    """Rows of the query verify_keys: is every key's owner a job that bears it?"""
    for space, key, owner, job_id, contract, tenant, its_key, scope, task in rows:
        if job_id is None:
            report.add(owner, None, "key-without-job", f"the key {key!r} in {space} belongs to a job that is gone")
            continue
        table = tables.get(contract)
        if table is None or (space, key) in ring.pairs(table.contract, job_id, tenant, its_key, scope, task):
            continue
        if (space, key) != (ring.space(contract, "task_id"), task):  # a task_id may be a key though it is the job's id
            report.add(job_id, None, "key-stray", f"the job owns the key {key!r} in {space}, but does not bear it")


class TaskCount:
    """Walks the runs of all tasks in order and tells where the numbers jump."""

    def __init__(self, report: Report, *, pruned: bool = False) -> None:
        self._report = report
        self._pruned = pruned
        """True: the first runs of a task may be gone."""
        self._task: str | None = None
        self._last = 0

    def check(self, rows: Iterable[Row]) -> None:
        for task, attempt, job_id in rows:
            expected = self._last + 1 if task == self._task else (attempt if self._pruned else 1)
            if attempt != expected:
                told = f"task {task!r} has a run {attempt} where {expected} should stand"
                self._report.add(job_id, None, "attempt-gap", told)
            self._task, self._last = task, attempt


def check_attempt(row: Row, table: ContractTable, report: Report) -> None:
    if (row[ATTEMPT] is not None) != table.contract.task_attempts:
        have = f"{row[CONTRACT]} {'numbers' if table.contract.task_attempts else 'does not number'} the runs of a task"
        report.add(row[ID], None, "attempt-missing", f"{have}, the job's number is {row[ATTEMPT]}")
