"""Runs a job once for each crash point and compares every recovery with the run without a crash.

A crash point is before or after one call of the worker process to the store: the calls of the handler's context and the
settlement. The store is wrapped, so that new methods of the context are covered without a change here.
"""

import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from detent.client.app import Detent
from detent.client.job import JobDefinition
from detent.core.contract.builtin import CONTRACTS, DEFAULT
from detent.core.contract.model import Contract
from detent.core.job import Change, Job, Micros, Step
from detent.ports.claims import ClaimRequest, StoreBatchResult, Success
from detent.ports.store import OpenTransaction, Store, Watch
from detent.ports.tx import Tx

from .single_step_worker import SimulatedProcess, SingleStepWorker

T = TypeVar("T")
BEFORE, AFTER = "before", "after"
MAX_POINTS = 1_000


class Effects:
    """Counts effects outside the job, for example requests to a payment service.

    With a key it behaves like a service that understands idempotency keys: a repeated key has no effect.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._keys: set[str] = set()
        self._lock = threading.Lock()

    def record(self, name: str, key: str | None = None) -> bool:
        """Count one effect. False, and not counted, if the key was used before."""
        with self._lock:
            if key is not None and key in self._keys:
                return False
            if key is not None:
                self._keys.add(key)
            self.counts[name] += 1
            return True

    def clear(self) -> None:
        """Forget all counts and keys; called before every run."""
        with self._lock:
            self.counts = Counter()
            self._keys = set()


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """Before or after the `number`-th call to the store; `call` describes this call."""

    when: str
    number: int
    call: str

    def __str__(self) -> str:
        return f"{self.when} call {self.number} ({self.call})"


@dataclass(frozen=True, slots=True)
class Finding:
    """A crash point after which the result or the effects were different."""

    point: CrashPoint
    problem: str

    def __str__(self) -> str:
        return f"crash {self.point}: {self.problem}"


@dataclass(slots=True)
class CrashReport:
    """All crash points that were tried, and the problems found."""

    points: list[CrashPoint] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    expected: "RunResult | None" = None
    """The result of the run without a crash."""

    @property
    def ok(self) -> bool:
        """True if no problem was found."""
        return not self.findings

    def check(self) -> None:
        """Raise AssertionError with all problems, if there are any."""
        if self.findings:
            lines = "\n  ".join(map(str, self.findings))
            raise AssertionError(f"not crash-safe at {len(self.findings)} of {len(self.points)} points:\n  {lines}")


@dataclass(frozen=True, slots=True)
class RunResult:
    """Status, result, error code and counted effects of one run."""

    status: str
    result: str | None
    error_code: str | None
    effects: Mapping[str, int]

    def differences(self, other: "RunResult") -> list[str]:
        """How the other result differs from this one, one text for each difference."""
        differences = []
        for name in ("status", "result", "error_code"):
            expected, actual = getattr(self, name), getattr(other, name)
            if expected != actual:
                differences.append(f"{name} is {actual!r} instead of {expected!r}")
        for name in sorted({*self.effects, *other.effects}):
            expected, actual = self.effects.get(name, 0), other.effects.get(name, 0)
            if expected != actual:
                differences.append(f"effect {name!r} happened {actual} times instead of {expected}")
        return differences


async def crash_everywhere(
    app: Detent,
    job: JobDefinition[Any, Any],
    arguments: Mapping[str, Any] | None = None,
    *,
    effects: Effects | None = None,
    signals: Mapping[str, Any] | None = None,
    reset: Callable[[], object] = lambda: None,
) -> CrashReport:
    """Run the job once without a crash, then once for each crash point, and compare.

    arguments: those of the job. effects: counts what the handler does outside; the counts are compared as well.
    signals: {name: data}: sent as soon as the job, or a child of it, waits for this name; for an approval of this name,
    whether it is approved. reset: called before every run, to reset what the handler keeps in memory.

    The job gets one more retry than declared, because some contracts count a crash as a failure. Raises AssertionError
    for more than 1,000 crash points; call `check()` on the report to fail the test.

        report = await crash_everywhere(app, charge, {"order_id": 7}, effects=effects)
        report.check()
    """
    effects = effects or Effects()
    test = _CrashTest(app, _with_one_more_retry(app, job), dict(arguments or {}), dict(signals or {}), effects, reset)
    expected, calls = await test.run(None)
    points = [CrashPoint(when, number, call) for number, call in enumerate(calls, 1) for when in (BEFORE, AFTER)]
    if len(points) > MAX_POINTS:
        raise AssertionError(f"{len(points)} crash points, the limit is {MAX_POINTS}; test a smaller job")
    report = CrashReport(points, expected=expected)
    for point in points:
        result, calls = await test.run(point)
        problems = expected.differences(result)
        if calls[point.number - 1 : point.number] != [point.call]:
            problems.append("the calls before this point differ from the run without a crash; is it deterministic?")
        report.findings += [Finding(point, problem) for problem in problems]
    return report


@dataclass(frozen=True, slots=True)
class _CrashTest:
    app: Detent
    job: JobDefinition[Any, Any]
    arguments: dict[str, Any]
    signals: dict[str, Any]
    effects: Effects
    reset: Callable[[], object]

    async def run(self, point: CrashPoint | None) -> tuple[RunResult, list[str]]:
        """Run the job once; returns its result and descriptions of all store calls."""
        self.effects.clear()
        self.reset()
        log = _CallLog(point)
        async with SingleStepWorker(
            self.app, wrap_store=lambda store, process: CrashPointStore(store, process, log)
        ) as worker:
            log.worker = worker
            submitted = await worker.submit(self.job, **self.arguments)
            job: Job = await worker.run(submitted.id, self.signals)
            counts = dict(self.effects.counts)
        return RunResult(job.status, job.result, job.error_code, counts), log.calls


def _with_one_more_retry(app: Detent, job: JobDefinition[Any, Any]) -> JobDefinition[Any, Any]:
    name = job.handler.options.contract or DEFAULT
    contract: Contract = {**CONTRACTS, **app.contracts}[name]
    if contract.retry.frozen:
        return job
    declared = job.submission({}).max_retries
    return job.using(max_retries=(contract.retry.max_retries if declared is None else declared) + 1)


class _CallLog:
    """Describes the store calls of one run, and decides at which of them the process dies. One crash per run."""

    def __init__(self, point: CrashPoint | None) -> None:
        self.worker: SingleStepWorker | None = None
        self.calls: list[str] = []
        self._point = point

    def begin(self) -> int:
        self.calls.append("unfinished")
        return len(self.calls)

    def describe(self, number: int, kind: str, methods: Sequence[str]) -> None:
        outcome = self.worker.settling if self.worker else None
        methods_text = ", ".join(dict.fromkeys(methods))
        self.calls[number - 1] = f"settlement: {type(outcome).__name__}" if outcome else f"{kind}: {methods_text}"

    def is_crash(self, when: str, number: int) -> bool:
        return self._point is not None and (self._point.when, self._point.number) == (when, number)

    def describe_as_crash_point(self, number: int) -> None:
        """A call that is not made because of the crash gets the description it has in the run without a crash."""
        if self._point is not None:
            self.calls[number - 1] = self._point.call


class CrashPointStore:
    """Wraps the store of the process under test: the process may die before or after each call."""

    def __init__(self, store: Store, process: SimulatedProcess, log: _CallLog) -> None:
        self.contracts = store.contracts
        self.skips_locked_rows = store.skips_locked_rows
        self.max_batches_in_flight = 1
        self.claim_limits = store.claim_limits
        self._store = store
        self._process = process
        self._log = log

    async def write(self, act: Callable[[Tx], Awaitable[T]]) -> T:
        return await self.call("write", lambda methods: self._store.write(lambda tx: act(_described(tx, methods))))

    async def read(self, act: Callable[[Tx], Awaitable[T]]) -> T:
        return await self.call("read", lambda methods: self._store.read(lambda tx: act(_described(tx, methods))))

    async def insert(self, changes: Sequence[Change]) -> set[str]:
        return await self.call("submit", lambda methods: self._store.insert(changes))

    async def record_step(self, step: Step, token: str) -> bool:
        async def record(methods: list[str]) -> bool:
            methods.append(f"record_step {step.name!r}{'' if step.finished else ' begun'}")
            return await self._store.record_step(step, token)

        return await self.call("write", record)

    async def settle_and_claim(self, successes: Sequence[Success], request: ClaimRequest | None) -> StoreBatchResult:
        return await self.call("settle_and_claim", lambda methods: self._store.settle_and_claim(successes, request))

    async def begin(self) -> OpenTransaction:
        transaction = await self.call("begin", lambda methods: self._store.begin())
        return _CrashPointTransaction(transaction, self)

    async def call(self, kind: str, act: Callable[[list[str]], Awaitable[T]]) -> T:
        """Make one store call, unless the process dies before or after it. act: fills in the methods it used."""
        if self._process.dead:
            await self._process.hang()
        number = self._log.begin()
        if self._log.is_crash(BEFORE, number):
            self._log.describe_as_crash_point(number)
            await self._process.hang()
        methods: list[str] = []
        try:
            result = await act(methods)
        finally:
            self._log.describe(number, kind, methods or [kind])
        if self._log.is_crash(AFTER, number):
            await self._process.hang()
        return result

    async def open(self, own: Mapping[str, Contract], builtin: Mapping[str, Contract]) -> None:
        """Does nothing: SingleStepWorker opened the store."""

    async def close(self) -> None:
        """Does nothing: the next process needs the store."""

    def now(self) -> Micros:
        return self._store.now()

    async def uptime(self) -> float:
        return await self._store.uptime()

    def sibling(self) -> "CrashPointStore":
        return self

    def watch(self, *, ends: bool = False) -> Watch:
        return self._store.watch(ends=ends)


class _CrashPointTransaction:
    """A transaction of the handler (ctx.transaction) whose commit is a crash point."""

    def __init__(self, transaction: OpenTransaction, store: CrashPointStore) -> None:
        self.connection = transaction.connection
        self._transaction = transaction
        self._store = store

    async def commit(self, act: Callable[[Tx], Awaitable[T]]) -> T:
        async def commit(methods: list[str]) -> T:
            return await self._transaction.commit(lambda tx: act(_described(tx, methods)))

        return await self._store.call("commit", commit)

    async def rollback(self) -> None:
        await self._transaction.rollback()


def _described(tx: Tx, methods: list[str]) -> Tx:
    return cast("Tx", _DescribedTx(tx, methods))


class _DescribedTx:
    """A transaction, or a topic of it, that lists the methods called on it."""

    def __init__(self, tx: object, methods: list[str]) -> None:
        self._tx = tx
        self._methods = methods

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._tx, name)
        if name == "now":
            return attribute
        if not callable(attribute):
            return _DescribedTx(attribute, self._methods)

        def call(*args: Any, **kwargs: Any) -> Any:
            if name != "lock":
                self._methods.append(f"{name.removeprefix('list_')} {_describe(args)}".rstrip())
            return attribute(*args, **kwargs)

        return call


def _describe(args: Sequence[Any]) -> str:
    """The names of the objects that are passed, else the strings after the first argument."""
    objects = args[0] if args and isinstance(args[0], list | tuple) else args
    names = [getattr(item, "name", None) for item in objects]
    quoted = [repr(name) for name in names if isinstance(name, str)]
    return ", ".join(quoted or [repr(text) for text in args[1:] if isinstance(text, str)])
