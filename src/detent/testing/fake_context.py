"""FakeContext: calls a handler as a plain function, with its signals, approvals, children and steps given by the test.

The context is the real one on a database in memory; only what a worker, another job or a person would do is replaced.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, NoReturn, cast

from detent.client.app import Detent
from detent.client.job import JobDefinition
from detent.core.approval import APPROVE, FAIL
from detent.core.contract.model import Phase
from detent.core.job import Signal
from detent.core.times import SECOND, to_datetime
from detent.engine import Submission
from detent.engine.reads.why import TIMER
from detent.handler.approvals import ApprovalExpired, Decision
from detent.handler.blocking import blocking
from detent.handler.children import Child, ChildJobs
from detent.handler.context import Context
from detent.handler.json_values import from_json, to_json
from detent.handler.outcomes import Suspend
from detent.handler.steps import NO_RETRIES, StepCall, StepRetries
from detent.handler.stop_requests import StopKind
from detent.handler.sync_context import SyncContext
from detent.ports.children import ChildState
from detent.ports.store import OpenTransaction
from detent.stores.sqlite.store import SqliteStore
from detent.system.ids import SeededIds
from detent.system.run_now import run_now
from detent.worker.runner import failure_of

from .clocks import ManualClock

_LEASE_SECONDS = 3_600.0
_FACTS = {"retries", "execution_no", "trace_id", "idempotency_key"}


class Enqueued(NamedTuple):
    """A child that the handler enqueued."""

    job_type: str
    arguments: dict[str, Any]


class RequestedApproval(NamedTuple):
    """An approval that the handler requested."""

    name: str
    summary: str
    about: Any
    roles: tuple[str, ...]


class FakeContext(Context):
    """The context of a handler that a test calls as a function; nothing runs but this handler.

        ctx = FakeContext(charge, signals={"confirmed": {"user": "ann"}}, steps={"pay": "receipt-7"})
        assert await charge(ctx, order_id=7) == {"receipt": "receipt-7", "by": "ann"}

    job: gives the job type, the contract and contracts of your own. Default: a job of the standard contract.
    signals: data of each wait by name. A wait without data times out if it has a timeout, else it fails the test.
    approvals: True, False or a Decision by name ("approval" by default). One that is not given is decided by its
        deadline, if it has one; else it fails the test.
    children: the result of each child, by its name ("resize", then "resize#2") or by its job type: a value, an
        exception that makes the child fail, or a function of the child's arguments.
    steps: results of steps that are not to be called, by name; an exception is raised.
    connection: what `ctx.transaction()` returns; the test commits it.
    tenant, clock; facts: `retries`, `execution_no`, `trace_id`, `idempotency_key`.

    Afterwards: `steps`, `sleeps` (seconds, with the pauses before retries of steps), `waits` (names), `enqueued`,
    `approval_requests`, and `reports` (share and message of each progress). A plain `def` handler gets `ctx.sync`.
    """

    def __init__(
        self,
        job: JobDefinition[Any, Any] | None = None,
        *,
        signals: Mapping[str, Any] | None = None,
        approvals: Mapping[str, bool | Decision] | None = None,
        children: Mapping[str, Any] | None = None,
        steps: Mapping[str, Any] | None = None,
        connection: Any = None,
        tenant: str = "default",
        clock: ManualClock | None = None,
        **facts: Any,
    ) -> None:
        if unknown := facts.keys() - _FACTS:
            raise TypeError(f"unknown arguments {', '.join(sorted(unknown))}; facts are {', '.join(sorted(_FACTS))}")
        self.app = job.app if job else Detent("sqlite:///:memory:")
        self.clock = clock or ManualClock()
        store = SqliteStore(":memory:", clock=self.clock, inline=True, synchronous="OFF")
        engine = self.app.make_engine(store, SeededIds("fake"))
        run_now(engine.open())
        name, contract = (job.name, job.submission({}).contract) if job else ("fake", None)
        run_now(engine.jobs.submit(Submission(name, {}, contract=contract, tenant_id=tenant, idempotency_key="fake")))
        (claimed,) = run_now(engine.claim(engine.claim_request("test", 1, _LEASE_SECONDS)))
        give_up_on = job.handler.options.give_up_on if job else ()
        super().__init__(claimed._replace(**{"idempotency_key": None, **facts}), engine, give_up_on=give_up_on)
        self._signals, self._approvals, self._step_results = signals or {}, approvals or {}, steps or {}
        self._child_results, self._connection = children or {}, connection
        self.sleeps: list[float] = []
        self.waits: list[str] = []
        self.approval_requests: list[RequestedApproval] = []
        self.enqueued: list[Enqueued] = []
        self.reports: list[tuple[float, str]] = []

    @property
    def steps(self) -> dict[str, Any]:
        """The recorded result of each finished step, as JSON."""
        rows = run_now(self._engine.store.read(lambda tx: tx.steps.list_steps(self.job_id)))
        return {step.name: from_json(None, step.result or "null") for step in rows if step.finished}

    @cached_property
    def sync(self) -> SyncContext:
        """The context for a plain `def` handler, with the same data."""
        return _FakeSyncContext(self, self.app.sync.loop)

    def cancel(self, reason: str | None = None) -> None:
        """Request a cancel: the next call of the context raises CancelRequested."""
        self.request_stop(StopKind.CANCEL, reason)

    def stop(self) -> None:
        """Say that the worker is about to stop: `ctx.stopping` is true."""
        self.request_stop(StopKind.WORKER_STOPS, None)

    def _begin_step(
        self,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        policy: StepRetries = NO_RETRIES,
    ) -> StepCall:
        call = super()._begin_step(name, fn, args, kwargs, policy)
        if call.name not in self._step_results:
            return call
        return replace(call, function=partial(_value_or_raise, self._step_results[call.name]))

    async def _wait_before_retry(self, seconds: float) -> None:
        self._requests.raise_pending()
        self.sleeps.append(seconds)
        self.clock.advance(seconds)

    async def _recorded_signal(self, name: str, kind: str, timeout: Any) -> Signal:
        try:
            return await super()._recorded_signal(name, kind, timeout)
        except Suspend as request:
            limit = request.wait.timeout
        if kind != TIMER:
            self.waits.append(name)
            if name in self._signals:
                return Signal(self.job_id, name, to_json(None, self._signals[name]), "test", self.clock.now())
        if limit is None:
            _missing(f"the handler waits for signal {name!r}", "signals", name)
        if kind == TIMER:
            self.sleeps.append(limit / SECOND)
        self.clock.advance(limit / SECOND)
        return Signal(self.job_id, name, "null", None, self.clock.now(), timed_out=True)

    async def approval(self, *arguments: Any, **options: Any) -> Decision:
        try:
            return await super().approval(*arguments, **options)
        except Suspend as suspended:
            wait, request = suspended.wait, suspended.wait.approval
        assert request is not None, "a wait for an approval has a request"
        self.approval_requests.append(
            RequestedApproval(wait.name, request.summary, from_json(None, request.about), request.roles)
        )
        given = self._approvals.get(wait.name)
        if isinstance(given, Decision):
            return given
        expired = given is None
        if expired:
            if wait.timeout is None:
                _missing(f"the handler asks for approval {wait.name!r}", "approvals", wait.name)
            self.clock.advance(wait.timeout / SECOND)
            if request.on_expiry == FAIL:
                raise ApprovalExpired(f"approval {wait.name!r} was not decided before its deadline")
        approved = request.on_expiry == APPROVE if given is None else given
        now = to_datetime(self.clock.now())
        return Decision(approved, () if expired else ("test",), None, now, expired, request.digest)

    async def progress(self, share: float, message: str = "") -> None:
        self._requests.raise_pending()
        self.reports.append((max(0.0, min(1.0, share)), message[:500]))

    async def begin_transaction(self) -> OpenTransaction:
        if self._connection is None:
            raise AssertionError("the handler opens a transaction; pass connection=")
        return cast(OpenTransaction, _LentTransaction(self._connection, self._engine.store.write))

    @cached_property
    def children(self) -> ChildJobs:
        return _FakeChildren(self)


class _FakeSyncContext(SyncContext):
    """SyncContext calls the methods of Context by name, so the replaced ones are named again."""

    approval = blocking(cast(Any, FakeContext.approval))
    progress = blocking(cast(Any, FakeContext.progress))


class _FakeChildren(ChildJobs):
    """Children that end at once, with the results that the test gives."""

    _context: FakeContext

    async def send(self, children: Any) -> None:
        unsent = [child for child in children if not child.sent]
        await super().send(unsent)
        sent = [(child._handler.name, child._request.submission.payload or {}) for child in unsent]
        self._context.enqueued += [Enqueued(name, dict(payload)) for name, payload in sent]

    async def _states(self, children: Sequence[Child[Any]]) -> dict[str, ChildState]:
        await self.send(children)
        return {child.id: self._state(child) for child in children}

    def _state(self, child: Child[Any]) -> ChildState:
        submission, handler, results = child._request.submission, child._handler, self._context._child_results
        key = child.name if child.name in results else handler.name
        if key not in results:
            _missing(f"the handler waits for child {child.name!r}", "children", child.name)
        contract, given = self._engine.contract(submission.contract), results[key]
        end: tuple[str | None, str | None, str | None]
        try:
            value = _value_or_raise(given(**(submission.payload or {})) if callable(given) else given)
            end = handler.result_text(value), None, None
        except Exception as error:
            failure = failure_of(error, handler, contract.codes)
            end = None, failure.code or contract.code("execution_failed"), failure.message
        status = next(one for one in contract.in_phase(Phase.FINAL) if contract.succeeded(one) == (end[1] is None))
        return ChildState(child.id, submission.parent_id, handler.name, contract.name, status, str(Phase.FINAL), *end)


@dataclass(frozen=True, slots=True)
class _LentTransaction:
    """The test's own connection, which the test commits. The record of a step is written to the database in memory."""

    connection: Any
    commit: Callable[..., Any]

    async def rollback(self) -> None: ...


def _value_or_raise(given: Any) -> Any:
    if isinstance(given, BaseException):
        raise given
    return given


def _missing(problem: str, parameter: str, name: str) -> NoReturn:
    raise AssertionError(f"{problem}, and the test gives none; pass {parameter}={{{name!r}: ...}}")
