"""Runs single calls of the real engine, each from a given database state, and remembers what each call did."""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from detent.core.contract.model import Contract, Move, Phase
from detent.core.errors import DetentError, StoreRefused, StoreUnavailable
from detent.core.retry import Immediate, Table
from detent.engine import BatchResult, Engine, Submission
from detent.ports.claims import ClaimRequest, Extended
from detent.proof.controlled_store import BrokenRule, ControlledStore, Hooks, ManualClock, StoreCall, run_all

from .snapshot import FRESH, JOBS, NOW, SPAN_SECONDS, DatabaseState, JobState, SnapshotDatabase, StateSnapshot, Values
from .worker_memory import JOB_TYPE, WAITS_FOR_CHILD, BatchCall, HeartbeatReply, LeaseRef, settlements


class CallEffect(NamedTuple):
    """What one call did: the snapshot after it, its return value or the refusal, and the rule it broke."""

    snapshot: StateSnapshot
    result: Any = None
    violation: BrokenRule | None = None


class PlaceholderIds:
    """Ids whose values do not matter, because snapshots rename them."""

    def __init__(self) -> None:
        self._count = 0

    def job(self) -> str:
        self._count += 1
        return f"made-{self._count}"

    def token(self) -> str:
        return FRESH


class EngineCalls:
    """Runs engine calls on one in-memory database; the same call on the same state runs once and is then cached."""

    def __init__(self, contract: Contract, hooks: Hooks) -> None:
        self.contract = small_contract(contract)
        self.clock = ManualClock(NOW)
        self.store = ControlledStore(self.clock, hooks)
        contracts = {self.contract.name: self.contract}
        self.engine: Engine = hooks.engine(self.store, contracts, ids=PlaceholderIds(), jitter=lambda *_: 0)
        run_all(self.engine.open())
        self.database = SnapshotDatabase(self.store.session.connection, self.contract)
        self._create_lanes()
        self._effects: dict[tuple[Any, ...], CallEffect] = {}
        self._batch_results: dict[BatchCall, BatchResult | DetentError] = {}
        self.executed = 0

    def _create_lanes(self) -> None:
        """Submit both jobs and delete them again: lanes are created by the first submit and are not in snapshots."""
        for number in range(len(JOBS)):
            run_all(self.engine.jobs.submit(self.submission(number)))
        self.database.load(StateSnapshot((), (), (), (), ()))

    def submission(self, number: int) -> Submission:
        """The second job is held for approval or delayed, if the contract allows it."""
        edges = {edge.move for edge in self.contract.edges if edge.source is None}
        second = number == 1
        return Submission(
            JOB_TYPE,
            contract=self.contract.name,
            id=JOBS[number],
            hold=second and Move.HOLD in edges,
            delay=SPAN_SECONDS if second and self.contract.due_on_submit else 0.0,
            trace_id="trace",
        )

    def run(
        self, state: DatabaseState, name: tuple[Any, ...], call: Callable[[], Coroutine[Any, Any, Any]]
    ) -> CallEffect:
        """Run an engine call with all its store calls; `name` identifies it in the cache. A refusal is a result."""
        return self._effect((state.number, name), state, lambda: run_all(call()), name)

    def batch_step(self, state: DatabaseState, call: BatchCall) -> CallEffect | BatchResult | DetentError:
        """Run the next store call of a settle_and_claim; or its result, if it needs no further store call."""
        if self.is_finished(call):
            return self._batch_results[call]
        cached = self._effects.get((state.number, call))
        if cached is not None:
            return cached
        coroutine = self._settle_and_claim(call)
        effect = self._effect((state.number, call), state, _advance(coroutine, call).run, ("cycle", call))
        coroutine.close()
        return effect

    def is_finished(self, call: BatchCall) -> bool:
        """Whether a settle_and_claim has had all the replies it needs."""
        if call not in self._batch_results and call.replies:
            coroutine = self._settle_and_claim(call)
            try:
                _advance(coroutine, call)
                coroutine.close()
            except StopIteration as done:
                self._batch_results[call] = done.value
            except DetentError as error:
                self._batch_results[call] = error
        return call in self._batch_results

    def _settle_and_claim(self, call: BatchCall) -> Coroutine[Any, Any, BatchResult]:
        request: ClaimRequest | None = None
        if call.want:
            request = self.engine.claim_request(
                "worker", call.want, SPAN_SECONDS, job_types=frozenset({JOB_TYPE}), reclaim=call.reclaim
            )
            request = replace(request, token=call.token)
        return self.engine.settle_and_claim(settlements(call.settled, self.contract), request)

    def _effect(
        self, key: tuple[Any, ...], state: DatabaseState, run: Callable[[], Any], name: tuple[Any, ...]
    ) -> CallEffect:
        cached = self._effects.get(key)
        if cached is not None:
            return cached
        self.executed += 1
        self.database.load(state.snapshot)
        self.clock.wall = NOW
        result: Any = None
        violation: BrokenRule | None = None
        try:
            result = run()
        except StoreRefused as error:
            violation = "", "store.refused", error.message
        except DetentError as error:
            result = error
        except Exception as error:
            violation = "", "engine", f"the engine raised {type(error).__name__}: {error}"
        after = self.database.read()._replace(effects=state.snapshot.effects)
        if violation is None:
            violation = next(iter(self.database.check(after)), None) or self._illegal_change(state, after, name)
        effect = self._effects[key] = CallEffect(self.database.normalize(after, NOW), result, violation)
        return effect

    def _illegal_change(self, state: DatabaseState, after: StateSnapshot, name: tuple[Any, ...]) -> BrokenRule | None:
        """Rules about a single call: who may end or extend a lease, who may change an unleased job, when to claim."""
        rows = {values[0]: values for values in after.jobs}
        at = self.database.positions
        submitted = {JOBS[name[1]]} if name[0] == "submit" else set()
        acknowledged = {values[0] for values in state.snapshot.jobs} | submitted
        for job_id in sorted(acknowledged - set(rows)):
            return job_id, "submit.lost", "an acknowledged submit is not in the database"
        if name[0] == "step" and after.steps != state.snapshot.steps:
            holder = state.jobs[name[1]]
            if holder is None or holder.phase != Phase.LEASED or holder.token != name[2]:
                return JOBS[name[1]], "step.stale", "a step was recorded by an execution that does not hold the job"
        for job_id, step, *_ in self.database.finished_steps(state.snapshot) - self.database.finished_steps(after):
            return job_id, "step.changed", f"{_call_name(name)} changed or removed the recorded result of {step!r}"
        decisions = self.database.decisions(after).items()
        for (job_id, question), decision in self.database.decisions(state.snapshot).items() - decisions:
            return job_id, "decision.changed", f"{_call_name(name)} changed the decision {decision!r} of {question!r}"
        for number, before in enumerate(state.jobs):
            row = rows.get(JOBS[number])
            if before is None or row is None:
                continue
            old = next(values for values in state.snapshot.jobs if values[0] == JOBS[number])
            changed = row[at["version"]] != old[at["version"]]
            leased = before.phase == Phase.LEASED
            if leased and changed and not self._may_end_lease(number, before.token, before.lease or 0, name):
                return JOBS[number], "lease.taken", f"{_call_name(name)} ended a lease that was still valid"
            settles = changed and not leased and name[0] in ("cycle", "late")
            if settles and not self._is_claim(row, old, name) and not self._is_family_change(before, row, rows):
                return JOBS[number], "settle.stale", f"{_call_name(name)} changed a job that no worker held"
            extended = name[0] == "extend" and row[at["lease_until"]] != old[at["lease_until"]]
            if leased and extended and (JOBS[number], before.token) not in name[1]:
                return JOBS[number], "lease.stale", "a heartbeat without the job's token changed its lease"
            early = before.phase == Phase.CLAIMABLE and (before.due or 0) > 0
            if early and row[at["phase"]] == Phase.LEASED:
                return JOBS[number], "due.early", f"{_call_name(name)} claimed a job {before.due} µs before it was due"
        return None

    def _is_claim(self, row: Values, old: Values, name: tuple[Any, ...]) -> bool:
        """Whether the change of an unleased job is a single claim, the only change settle_and_claim may make to it."""
        at, call = self.database.positions, name[1]
        fresh = isinstance(call, BatchCall) and call.want > 0 and row[at["token"]] == call.token
        return fresh and row[at["version"]] == old[at["version"]] + 1 and row[at["phase"]] == Phase.LEASED

    def _is_family_change(self, before: JobState, row: Values, rows: Mapping[str, Values]) -> bool:
        """Whether an unleased job changed as a settlement of its parent or child may change it.

        A child whose parent has ended is cancelled; a parent that waits for children, all ended, is woken.
        """
        at = self.database.positions
        ended = {job_id for job_id, values in rows.items() if values[at["phase"]] == Phase.FINAL}
        children = {values[0] for values in rows.values() if values[at["parent_id"]] == row[0]}
        waited = before.phase == Phase.BLOCKED and before.wait_name == WAITS_FOR_CHILD and bool(before.relations)
        move = Move.WAKE if waited and children <= ended else Move.CANCEL if row[at["parent_id"]] in ended else None
        edge = self.contract.edge(before.status, move) if move else None
        return edge is not None and row[at["status"]] == edge.target

    def _may_end_lease(self, number: int, token: str | None, left: int, name: tuple[Any, ...]) -> bool:
        """A lease ends by a settlement under its token, by expiry, or by an operator's cancel."""
        kind = name[0]
        if kind == "cycle":
            call: BatchCall = name[1]
            expired = left <= 0 and call.reclaim
            return expired or token == call.token or (number, token) in [(s.job, s.token) for s in call.settled]
        if kind == "late":
            return name[1:3] == (number, token)
        return left <= 0 if kind == "expire" else kind in ("cancel", "force")


def _call_name(name: tuple[Any, ...]) -> str:
    return "settle_and_claim" if name[0] == "cycle" else str(name[0])


def _advance(coroutine: Coroutine[Any, Any, Any], call: BatchCall) -> StoreCall:
    """Feed a settle_and_claim the replies it has had; returns its next store call, or raises StopIteration."""
    waiting: StoreCall = coroutine.send(None)
    for reply, value in zip(call.replies, call.reply_values(), strict=True):
        if reply.lost:
            waiting = coroutine.throw(StoreUnavailable("the reply was lost"))
        else:
            waiting = coroutine.send(value)
    return waiting


def heartbeat_reply(leases: dict[str, str], result: Extended) -> HeartbeatReply | None:
    """The reply as a value; None if every lease was extended and no cancel was requested."""
    if not result.lost and not result.cancels:
        return None
    refs = tuple(sorted(LeaseRef(JOBS.index(job_id), token) for job_id, token in leases.items()))
    lost, cancelled = (tuple(sorted(JOBS.index(job_id) for job_id in ids)) for ids in (result.lost, result.cancels))
    return HeartbeatReply(refs, lost, cancelled)


def small_contract(contract: Contract) -> Contract:
    """The same statuses and edges with one retry and one backoff length, so that the state space stays small."""
    immediate = isinstance(contract.retry.backoff, Immediate)
    backoff = contract.retry.backoff if immediate else Table((int(SPAN_SECONDS * 1_000),))
    return contract.with_options(retry=replace(contract.retry, max_retries=1, backoff=backoff))
