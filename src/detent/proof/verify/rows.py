"""Compares a job's row with its folded log: `agrees` is a fast yes or no, `differences` lists what is wrong."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from detent.core.contract.model import Phase
from detent.core.contract.replay import Fault
from detent.core.times import iso
from detent.ports.verification import EventRow, JobRow

from .fold import ContractTable, FoldedLog, flags_of

Log = Sequence[EventRow]
CLAIMABLE, LEASED, BLOCKED, FINAL = (phase.value for phase in Phase)


def fold_log(table: ContractTable, log: Log) -> FoldedLog:
    return table.fold(tuple([event[4:] if event.data is None else (*event[4:], flags_of(event.data)) for event in log]))


def agrees(row: JobRow, log: Log, folded: FoldedLog, table: ContractTable) -> bool:
    """True if and only if `differences` yields nothing. Optimized, because almost every job passes."""
    faults, state, first_claim, final, _, _, follows = folded
    if faults or state != row.state:
        return False
    phase, lease, retry_at, budget = row.phase, row.lease_until, row.next_retry_at, row.max_retries
    times = [event.at for event in log]
    last = log[-1]
    if row.created_at != times[0] or row.updated_at != last.at or last.seq != row.version or times != sorted(times):
        return False
    if row.started_at != (None if first_claim < 0 else times[first_claim]):
        return False
    if row.finished_at != (None if final < 0 else times[final]):
        return False
    if row.retries > budget or row.failures > budget + 1 or (table.frozen is not None and budget != table.frozen):
        return False
    if follows and any(times[index] != times[index - 1] for index in follows):
        return False
    if (retry_at is not None) != (row.status in table.timed) or (retry_at is not None and retry_at != row.due_at):
        return False
    if row.timeout_ms is not None and any(_check_timeout(JobCase(row, log, folded, table))):
        return False
    if phase == FINAL:
        free = lease is None and not (row.has_worker or row.ready) and row.wait_name is None
        return free and bool(row.has_token) == (row.execution_no > 0)
    if last.data is not None and any(_check_event_data(JobCase(row, log, folded, table))):
        return False
    if phase == LEASED:
        held = row.has_token and row.has_worker and lease is not None and lease >= row.updated_at
        return bool(held and not row.ready and row.wait_name is None)
    if row.has_worker or lease is not None or bool(row.has_token) != (row.execution_no > 0):
        return False
    return row.due_at is not None and row.wait_name is None if phase == CLAIMABLE else not row.ready


@dataclass(frozen=True, slots=True)
class JobCase:
    """One job with everything `differences` needs to check it."""

    row: JobRow
    log: Log
    folded: FoldedLog
    table: ContractTable


def differences(case: JobCase) -> Iterator[Fault]:
    """Everything that is wrong with the row and the log of one job; links to other tables are checked elsewhere."""
    yield from case.folded.faults
    for check in (
        _check_numbers, _check_status, _check_invariants, _check_counters, _check_budget, _check_times, _check_follows,
        _check_timeout, _check_lease, _check_due, _check_event_data,
    ):  # fmt: skip
        yield from check(case)


def _check_numbers(case: JobCase) -> Iterator[Fault]:
    if not case.log:
        yield Fault(None, "creation-first", "the job has no events at all")
        return
    for index, event in enumerate(case.log):
        if event.seq != index + 1:
            yield Fault(index, "seq-gap", f"event number {event.seq}, expected {index + 1}")
            break
    if case.row.version != case.log[-1].seq:
        yield Fault(None, "version-differs", f"version {case.row.version}, the last event is {case.log[-1].seq}")


def _check_status(case: JobCase) -> Iterator[Fault]:
    status, phase = case.row.status, case.row.phase
    if case.log and status != case.folded.state[0]:
        yield Fault(None, "status-differs", f"the row has {status}, the log leads to {case.folded.state[0]}")
    expected = case.table.phases.get(status, phase)
    if phase != expected:
        yield Fault(None, "phase-differs", f"the row has {phase}, the phase of {status} is {expected}")


def _check_invariants(case: JobCase) -> Iterator[Fault]:
    """The invariants of the formal contract, on the row and its last event, for every contract."""
    phase, logged = case.row.phase, case.folded.state[1]
    last = case.folded.state[0] or "nothing"
    if phase == BLOCKED and logged != BLOCKED:
        yield Fault(None, "waiting-unlogged", f"the job is blocked, but its last event led to {last}")
    if phase == LEASED and logged != LEASED:
        yield Fault(None, "running-unlogged", f"the job is leased, but its last event led to {last}")
    if phase in (CLAIMABLE, LEASED) and logged == BLOCKED:
        yield Fault(None, "blocked-taken", f"the job is {phase}, but its last event led to {last} and none woke it")
    expected = 1 if phase == FINAL else 0
    if case.folded.finals != expected:
        yield Fault(None, "final-once", f"the job is {phase} and has {case.folded.finals} final events")


def _check_counters(case: JobCase) -> Iterator[Fault]:
    names = ("executions", "failures", "retries", "interruptions")
    for name, actual, expected in zip(names, case.row.state[3:], case.folded.state[3:], strict=True):
        if actual != expected:
            yield Fault(None, f"{name}-differ", f"the row has {actual}, the log gives {expected}")


def _check_budget(case: JobCase) -> Iterator[Fault]:
    failures, retries, budget = case.row.failures, case.row.retries, case.row.max_retries
    if retries > budget or failures > budget + 1:
        yield Fault(None, "budget-exceeded", f"{failures} failures and {retries} retries with max_retries {budget}")
    if case.table.frozen is not None and budget != case.table.frozen:
        yield Fault(None, "budget-exceeded", f"max_retries {budget}, the contract freezes it at {case.table.frozen}")


def _check_times(case: JobCase) -> Iterator[Fault]:
    if not case.log:
        return
    row = case.row
    times: list[int | None] = [event.at for event in case.log]
    for index in range(1, len(case.log)):
        if case.log[index].at < case.log[index - 1].at:
            yield Fault(index, "time-backwards", f"{iso(times[index])} after {iso(times[index - 1])}")
    logged_times = {"created": times[0], "updated": times[-1]}
    times.append(None)  # the index -1 (no such event) now gives None
    logged_times |= {"started": times[case.folded.started], "finished": times[case.folded.finished]}
    for (name, logged), actual in zip(
        logged_times.items(), (row.created_at, row.updated_at, row.started_at, row.finished_at), strict=True
    ):
        if actual != logged:
            yield Fault(None, f"{name}-differs", f"{name}_at is {iso(actual)}, the log gives {iso(logged)}")


def _check_follows(case: JobCase) -> Iterator[Fault]:
    for index in case.folded.follows:
        if index and case.log[index].at != case.log[index - 1].at:
            times = f"{iso(case.log[index].at)}, the edge before at {iso(case.log[index - 1].at)}"
            yield Fault(index, "follow-at-once", f"{case.log[index].event} was logged at {times}")


def _check_timeout(case: JobCase) -> Iterator[Fault]:
    """Of a success: the event before it is the claim that began the execution."""
    if case.row.timeout_ms is not None and case.row.status in case.table.successes and len(case.log) > 1:
        late = case.log[-1].at - case.log[-2].at - case.row.timeout_ms * 1_000
        if late > 0:
            detail = f"succeeded {late} µs after the timeout of {case.row.timeout_ms} ms"
            yield Fault(len(case.log) - 1, "success-late", detail)


def _check_lease(case: JobCase) -> Iterator[Fault]:
    row = case.row
    phase, token, worker, lease = row.phase, row.has_token, row.has_worker, row.lease_until
    if phase == LEASED:
        missing = [name for name, value in (("token", token), ("worker", worker), ("lease", lease)) if not value]
        if missing:
            yield Fault(None, "lease-missing", f"the job is leased without {' and '.join(missing)}")
        elif lease is not None and lease < row.updated_at:
            began = iso(row.updated_at)
            yield Fault(None, "lease-missing", f"the lease ends at {iso(lease)}, before it began at {began}")
        return
    if worker or lease is not None:
        yield Fault(None, "lease-left", f"the job is {phase}, but still has a {'worker' if worker else 'lease'}")
    if bool(token) != (row.execution_no > 0):
        yield Fault(None, "token-unearned", f"{'a' if token else 'no'} token after {row.execution_no} executions")


def _check_due(case: JobCase) -> Iterator[Fault]:
    status, phase = case.row.status, case.row.phase
    due, retry_at, wait = case.row.due_at, case.row.next_retry_at, case.row.wait_name
    if phase == CLAIMABLE and due is None:
        yield Fault(None, "due-missing", "the job is claimable but has no due time, so it will never be claimed")
    if case.row.ready and phase != CLAIMABLE:
        yield Fault(None, "due-missing", f"the job is {phase}, but marked ready")
    if (retry_at is not None) != (status in case.table.timed):
        has = "has" if retry_at is not None else "has no"
        yield Fault(None, "retry-at-differs", f"{status} {has} next_retry_at")
    elif retry_at is not None and retry_at != due:
        yield Fault(None, "retry-at-differs", f"next_retry_at is {iso(retry_at)}, due_at {iso(due)}")
    if wait is not None and phase != BLOCKED:
        yield Fault(None, "wait-differs", f"the job is {phase}, but waits for {wait!r}")


def _check_event_data(case: JobCase) -> Iterator[Fault]:
    """The row must agree with the data of the last event, as long as the job is not final."""
    if not case.log or case.log[-1].data is None or case.row.phase == FINAL:
        return
    due, wait = case.row.due_at, case.row.wait_name
    try:
        data = json.loads(case.log[-1].data)
    except ValueError as error:
        yield Fault(len(case.log) - 1, "data-unreadable", f"the data is not JSON: {error}")
        return
    if not isinstance(data, dict):
        yield Fault(len(case.log) - 1, "data-unreadable", f"the data is a {type(data).__name__}, not an object")
        return
    if "due_at" in data and data["due_at"] != due:
        yield Fault(None, "due-differs", f"due_at is {iso(due)}, the log gives {iso(data['due_at'])}")
    if "correlation_key" in data and data["correlation_key"] != wait:
        yield Fault(None, "wait-differs", f"the job waits for {wait!r}, the log gives {data['correlation_key']!r}")
