"""The invariants of `verify` for one job at a time, on raw rows: used by the explorer and the simulator."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from detent.core.contract.replay import derive_status, replay
from detent.ports.verification import DeadLetterRow, EventRow, JobRow

from .controlled_store import BrokenRule
from .verify.dead_letters import check_dead_letters
from .verify.fold import ContractTable
from .verify.rows import BLOCKED, JobCase, Log, differences, fold_log
from .verify.rules import WARNINGS, Report

JOB_COLUMNS = {"has_token": "token IS NOT NULL", "has_worker": "worker IS NOT NULL"}
"""Fields of JobRow that are no columns."""
JOBS_QUERY = f"SELECT {', '.join(JOB_COLUMNS.get(name, name) for name in JobRow._fields)} FROM detent_job_list"
EVENTS_QUERY = f"SELECT {', '.join(EventRow._fields)} FROM detent_event_list"


def check_job(
    table: ContractTable,
    row: JobRow,
    log: Log,
    dead_letters: Sequence[DeadLetterRow],
    signals: Collection[str],
) -> Iterator[BrokenRule]:
    """All invariants of one committed job; signals: names of the signals sent to it."""
    folded = fold_log(table, log)
    for _, rule, detail in differences(JobCase(row, log, folded, table)):
        if rule not in WARNINGS:
            yield row.id, rule, detail
    report = Report()
    check_dead_letters(row, folded, dead_letters, report)
    for finding in report.violations:
        yield row.id, finding.rule, finding.detail
    events: Any = log
    strict, tolerant = replay(table.contract, events), derive_status(table.contract, events)
    if not strict.ok or strict.status != row.status or tolerant != row.status:
        yield row.id, "replay", f"strict replay gives {strict.status}, tolerant {tolerant}, the row has {row.status}"
    if row.phase == BLOCKED and row.wait_name in signals:
        yield row.id, "signal-missed", f"the job waits for {row.wait_name!r}, but that signal was sent"
