"""Checks of idempotency keys (each belongs to the job that has it) and of the numbered attempts of a task."""

from collections.abc import Iterable, Mapping

from detent.core.contract.model import Contract, key_space
from detent.ports.verification import AttemptRow, JobRow, KeyRow

from .fold import ContractTable
from .rules import Report

Pair = tuple[str, str]
"""(space, key): the space is the scope in which the key is unique."""


def expected_keys(rows: Iterable[JobRow], tables: Mapping[str, ContractTable]) -> list[tuple[Pair, str]]:
    """The pairs that these jobs must own, each with its job.

    A key that is made from the job's id needs no row, one that was kept by a requeue belongs to the first job.
    """
    expected: list[tuple[Pair, str]] = []
    for row in rows:
        key, table = row.idempotency_key, tables.get(row.contract)
        if table is None or (key is None and not table.contract.keys.task_id_is_key):
            continue
        rule = table.contract.keys
        if key == rule.generated_key(row.id) or (row.requeued_from and rule.kept_by_requeue):
            key = None
        columns = (row.tenant_id, key, row.idempotency_scope, row.task_id)
        expected += [(pair, row.id) for pair in _pairs(table.contract, row.id, *columns)]
    return expected


def _pairs(
    contract: Contract, job_id: str, tenant: str, key: str | None, scope: str | None, task: str | None
) -> list[Pair]:
    """The pairs a job must own according to its columns. A task_id equal to the job's id was not given as a key."""
    rule, pairs = contract.keys, []
    if rule.task_id_is_key and task and task != job_id:
        pairs.append((key_space(contract.name, "task_id"), task))
    if key and key.strip():
        values = {"tenant_id": tenant, "idempotency_scope": scope}
        pairs.append((key_space(contract.name, "key", *[values[name] for name in rule.scope]), key))
    return pairs


def check_expected_keys(expected: Iterable[tuple[Pair, str]], owners: Mapping[Pair, str], report: Report) -> None:
    for pair, job_id in expected:
        owner = owners.get(pair)
        if owner is None:
            report.add(job_id, None, "key-missing", f"the key {pair[1]!r} in {pair[0]} has no row")
        elif owner != job_id:
            report.add(job_id, None, "key-taken", f"the key {pair[1]!r} in {pair[0]} belongs to job {owner}")


def check_key_rows(rows: Iterable[KeyRow], tables: Mapping[str, ContractTable], report: Report) -> None:
    """The owner of each key exists and has that key."""
    for space, key, owner, job_id, contract, tenant, job_key, scope, task in rows:
        if job_id is None:
            report.add(owner, None, "key-without-job", f"the key {key!r} in {space} belongs to a job that is gone")
            continue
        table = tables.get(contract)
        if table is None or (space, key) in _pairs(table.contract, job_id, tenant, job_key, scope, task):
            continue
        if (space, key) != (key_space(contract, "task_id"), task):  # a task_id given as key may equal the id
            report.add(job_id, None, "key-stray", f"the job owns the key {key!r} in {space}, but does not have it")


class AttemptSequence:
    """Checks that the attempts of each task are numbered without gaps; rows come ordered by task and attempt."""

    def __init__(self, report: Report, *, pruned: bool = False) -> None:
        self._report = report
        self._pruned = pruned
        """True if the first attempts of a task may have been pruned."""
        self._task: str | None = None
        self._last = 0

    def check(self, rows: Iterable[AttemptRow]) -> None:
        for task, attempt, job_id in rows:
            expected = self._last + 1 if task == self._task else (attempt if self._pruned else 1)
            if attempt != expected:
                detail = f"task {task!r} has attempt {attempt}, expected {expected}"
                self._report.add(job_id, None, "attempt-gap", detail)
            self._task, self._last = task, attempt
