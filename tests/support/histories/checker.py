"""Checks recorded histories of client calls. It imports nothing of Detent: the rules of a job are written down again.

For each job alone: is there an order of its calls, each at one moment between its invocation and its response, in
which a job of the contract `standard` gives all these answers (Wing and Gong, 1993; linearizability is local, so that
jobs can be checked one by one)? A call without a response may have taken effect at any later time, or never. What no
client calls (an expired lease, a claim whose reply was lost) may happen in between, if the rules allow it then.

So a violation is any of: a submit that was acknowledged and is lost, two settlements, a result under a stale token, two
holders, a token that is given out twice, a status that goes back, a cancel of a job that had ended, a lease that was
taken away too early, a retry that starts before its time, two jobs for one idempotency key (the calls with one key are
checked like those of a job).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

NEVER = float("inf")
CLAIMABLE = ("queued", "retrying", "interrupted")
FINAL = ("succeeded", "failed", "cancelled")
UNFLUSHED_SECONDS = 2.0
"""A claim that settles nothing is flushed by the server's own writer, within three times wal_writer_delay (0.2 s)."""
DEAD_LETTER_EVENTS = 3
"""A failure for good is three events: dlq_pending, dlq_recorded, failed."""


class Call(NamedTuple):
    """One call on one job. answer: ok, refused or unknown; for a read and a cancel (status, version)."""

    kind: str
    begin: float
    end: float
    """NEVER if there was no response."""
    arguments: tuple[Any, ...]
    answer: Any


class State(NamedTuple):
    """A job of the model. failures are charged ones; settled: the last settlement, which may be repeated."""

    status: str | None = None
    version: int = 0
    executions: int = 0
    failures: int = 0
    token: str | None = None
    cancel_requested: bool = False
    signalled: bool = False
    settled: tuple[str, str] | None = None
    lease_floor: float = 0.0
    """The lease of the present claim does not end before this time."""
    not_before: float = 0.0
    """A lease has ended, or the server crashed, not before this time: no call later in the order ended before it."""
    before_claim: "State | None" = None
    """The state before the present claim, if that is committed without a flush: a crash may undo it."""
    due: float = 0.0
    """A retry is not claimed before this time."""


class Violation(NamedTuple):
    job_id: str
    calls: list[Call]

    def __str__(self) -> str:
        lines = [f"  {c.begin:.6f} .. {c.end:.6f}  {c.kind} {c.arguments} -> {c.answer}" for c in self.calls]
        return "\n".join([f"job {self.job_id}: no order of these calls explains their answers", *lines])


class Rules(NamedTuple):
    lease: float
    retries: Callable[[str], int]
    """Job type -> max_retries."""
    backoff: float = 0.0
    """Seconds between a failure and the retry."""
    lost_claims_from: float = NEVER
    """When the first claim began whose reply was lost: which jobs it took is unknown."""
    crashes: Sequence[tuple[float, float]] = ()
    """When the server was killed: from, until."""


def check(histories: Iterable[tuple[str, list[Call]]], rules: Rules) -> Iterator[Violation]:
    for job_id, calls in histories:
        if not is_linearizable(calls, rules):
            yield Violation(job_id, sorted(calls, key=lambda call: call.begin))


def is_linearizable(calls: list[Call], rules: Rules) -> bool:
    calls = sorted(calls, key=lambda call: call.begin)
    tokens = [call.arguments[0] for call in calls if call.kind == "claim"]
    if len(tokens) > len(set(tokens)):
        return False
    submits = [call for call in calls if call.kind == "submit"]
    retries = rules.retries(submits[0].arguments[0]) if submits else 0
    last_version = max((_observed_version(call) for call in calls), default=0)
    required = sum(1 << n for n, call in enumerate(calls) if call.end != NEVER)
    waiting = [((1 << len(calls)) - 1, State())]
    seen = set(waiting)
    while waiting:
        remaining, state = waiting.pop()
        if not remaining & required:
            return True
        for following in _next(calls, remaining, state, rules, retries, last_version):
            if following not in seen:
                seen.add(following)
                waiting.append(following)
    return False


def _observed_version(call: Call) -> int:
    if call.kind == "claim":
        return int(call.arguments[1])
    return call.answer[1] if isinstance(call.answer, tuple) else 0


def _next(
    calls: list[Call], remaining: int, state: State, rules: Rules, retries: int, last_version: int
) -> Iterator[tuple[int, State]]:
    """What may come next, the likely last: a step that no client calls, or a call that began before any other ended.

    A call that is answered and changes nothing is put in order at once: that never rules out another order.
    """
    first_end = min(call.end for n, call in enumerate(calls) if remaining >> n & 1)
    possible = []
    for n, call in enumerate(calls):
        if call.begin > first_end:
            break
        if not remaining >> n & 1 or call.end < state.not_before:
            continue
        for after in _STEPS[call.kind](state, call, rules, retries):
            if after != state:
                possible.append((call.end, n, after))
            elif call.end != NEVER:
                yield remaining & ~(1 << n), state
                return
    for after in _unseen_steps(state, rules, retries):
        if after.version <= last_version:
            yield remaining, after
    for _, n, after in sorted(possible, key=lambda step: -step[0]):
        yield remaining & ~(1 << n), after


def _unseen_steps(state: State, rules: Rules, retries: int) -> Iterator[State]:
    if state.status in CLAIMABLE and rules.lost_claims_from != NEVER:
        yield state._replace(
            status="running",
            version=state.version + 1,
            executions=state.executions + 1,
            token=None,
            lease_floor=rules.lost_claims_from + rules.lease,
        )
    if state.status == "running":
        if state.before_claim is not None and not state.cancel_requested:
            claimed_at = state.lease_floor - rules.lease
            for begin, end in rules.crashes:
                if begin - UNFLUSHED_SECONDS <= claimed_at <= end:
                    yield state.before_claim._replace(not_before=max(state.not_before, begin))
        yield _charged(state, "interrupted", retries)._replace(not_before=max(state.not_before, state.lease_floor))


def _leave(state: State, status: str, events: int) -> State:
    """The job leaves its worker. A requested cancel comes true unless the job has ended."""
    cancelled = state.cancel_requested and status not in FINAL
    return state._replace(
        status="cancelled" if cancelled else status,
        version=state.version + events + cancelled,
        cancel_requested=False,
        lease_floor=0.0,
        before_claim=None,
    )


def _charged(state: State, status: str, retries: int) -> State:
    """A failure or a lost worker: with the retries used up the job has failed."""
    state = state._replace(failures=state.failures + 1)
    if state.failures > retries:
        return _leave(state, "failed", DEAD_LETTER_EVENTS)
    return _leave(state, status, 1)


Step = Iterator[State]


def _submit(state: State, call: Call, rules: Rules, retries: int) -> Step:
    yield state if state.status else state._replace(status="queued", version=1)


def _claim(state: State, call: Call, rules: Rules, retries: int) -> Step:
    token, version, execution, is_flushed = call.arguments
    is_next = (state.version + 1, state.executions + 1) == (version, execution)
    if state.status in CLAIMABLE and is_next and call.end >= state.due:
        yield state._replace(
            status="running",
            version=version,
            executions=execution,
            token=token,
            lease_floor=call.begin + rules.lease,
            due=0.0,
            before_claim=None if is_flushed else state._replace(before_claim=None),
        )


def _settle(state: State, call: Call, rules: Rules, retries: int) -> Step:
    """A repetition gets the same answer until the job is claimed again; from then on the former token is refused."""
    token, outcome = call.arguments
    holds = state.status == "running" and state.token == token
    is_repeated = state.settled == (token, outcome) and state.token == token
    if call.answer != "refused":
        if holds:
            after = _outcome(state, outcome, retries)
            due = call.begin + rules.backoff if after.status == "retrying" else 0.0
            yield after._replace(settled=(token, outcome), due=due)
        elif is_repeated:
            yield state
    if call.answer == "unknown" or (call.answer == "refused" and not holds and not is_repeated):
        yield state


def _extend(state: State, call: Call, rules: Rules, retries: int) -> Step:
    """A heartbeat. It is flushed, and so is the claim before it."""
    holds = state.status == "running" and state.token == call.arguments[0]
    if holds and call.answer == "ok":
        yield state._replace(lease_floor=max(state.lease_floor, call.begin + rules.lease), before_claim=None)
    elif holds == (call.answer == "ok"):
        yield state


def _outcome(state: State, outcome: str, retries: int) -> State:
    match outcome:
        case "Succeeded":
            return _leave(state, "succeeded", 1)
        case "Failed":
            return _charged(state, "retrying", retries)
        case "Failed for good":
            return _leave(state._replace(failures=state.failures + 1), "failed", DEAD_LETTER_EVENTS)
        case "Cancelled":
            return _leave(state, "cancelled", 1)
        case "Waits" if state.signalled:
            return _leave(state, "queued", 2)
        case "Waits":
            return _leave(state, "parked", 1)
        case _:  # the worker stopped in good order
            return _leave(state, "queued", 1)


def _signal(state: State, call: Call, rules: Rules, retries: int) -> Step:
    refused = state.status is None or (state.status in FINAL and not state.signalled)
    if call.answer == "unknown" or refused == (call.answer == "refused"):
        if refused:
            yield state
        elif state.status == "parked":
            yield state._replace(status="queued", version=state.version + 1, signalled=True)
        else:
            yield state._replace(signalled=True)


def _cancel(state: State, call: Call, rules: Rules, retries: int) -> Step:
    if state.status is None or state.status in FINAL:
        after, refused = state, True
    elif state.status == "running":
        after, refused = state._replace(cancel_requested=True), False
    else:
        after, refused = state._replace(status="cancelled", version=state.version + 1), False
    if call.answer in ("unknown", "refused" if refused else (after.status, after.version)):
        yield after


def _read(state: State, call: Call, rules: Rules, retries: int) -> Step:
    if call.answer == (state.status, state.version):
        yield state


def _keyed(state: State, call: Call, rules: Rules, retries: int) -> Step:
    """A submit with a key: the first one creates the job, all others get its id. The token of a key is that id."""
    owner = state.token or call.arguments[0]
    if call.answer in ("unknown", owner):
        yield state._replace(token=owner)


_STEPS = {
    "submit": _submit, "keyed": _keyed, "claim": _claim, "extend": _extend, "settle": _settle, "signal": _signal,
    "cancel": _cancel, "read": _read,
}  # fmt: skip


def by_job(calls: Iterable[tuple[str, Call]]) -> dict[str, list[Call]]:
    jobs: dict[str, list[Call]] = defaultdict(list)
    for job_id, call in calls:
        jobs[job_id].append(call)
    return jobs
