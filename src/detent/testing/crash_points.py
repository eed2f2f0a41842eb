"""Runs a handler once per crash point and holds every recovery against the run without a crash.

A crash point lies before or after one call that the process makes to the store: what the handler asks for through its
context, and the settlement. The store is wrapped, so whatever the context learns to do later is covered as well.
"""

import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from detent.client.app import Detent
from detent.client.job import JobDefinition
from detent.core.contract.model import Contract
from detent.core.job import Change, Job, Micros, Step
from detent.ports.claims import ClaimRequest, StoreBatchResult, Success
from detent.ports.store import OpenTransaction, Store, Watch

from .single_step_worker import Process, SingleStepWorker

T = TypeVar("T")
BEFORE, AFTER = "before", "after"
MAX_POINTS = 1_000


class Effects:
    """What the outside world saw. With a key it answers as a service does that knows idempotency keys."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._keys: set[str] = set()
        self._lock = threading.Lock()

    def record(self, name: str, key: str | None = None) -> bool:
        """One effect happened; False if the key was known and it did not happen again."""
        with self._lock:
            if key is not None and key in self._keys:
                return False
            if key is not None:
                self._keys.add(key)
            self.counts[name] += 1
            return True

    def clear(self) -> None:
        """A fresh world; called before every run."""
        with self._lock:
            self.counts = Counter()
            self._keys = set()


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """Before or after the act-th call to the store; `act` says which call that is."""

    when: str
    number: int
    act: str

    def __str__(self) -> str:
        return f"{self.when} act {self.number} ({self.act})"


@dataclass(frozen=True, slots=True)
class Finding:
    """A crash that left a trace it should not have left."""

    point: CrashPoint
    problem: str

    def __str__(self) -> str:
        return f"crash {self.point}: {self.problem}"


@dataclass(slots=True)
class CrashReport:
    """Every point that was tried and what was wrong at some of them."""

    points: list[CrashPoint] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    expected: "Ending | None" = None

    @property
    def ok(self) -> bool:
        return not self.findings

    def check(self) -> None:
        if self.findings:
            lines = "\n  ".join(map(str, self.findings))
            raise AssertionError(f"not crash-safe at {len(self.findings)} of {len(self.points)} points:\n  {lines}")


@dataclass(frozen=True, slots=True)
class Ending:
    """What one run came to."""

    status: str
    result: str | None
    error_code: str | None
    effects: Mapping[str, int]

    def differences(self, other: "Ending") -> list[str]:
        said = []
        for name in ("status", "result", "error_code"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                said.append(f"{name} is {theirs!r} instead of {mine!r}")
        for name in sorted({*self.effects, *other.effects}):
            mine, theirs = self.effects.get(name, 0), other.effects.get(name, 0)
            if mine != theirs:
                said.append(f"effect {name!r} happened {theirs} times instead of {mine}")
        return said


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

    signals: what is sent as soon as the job, or a child of it, waits for that name; for a question of that name, is it
    approved. reset: called before every run, for what the handler keeps in memory. The job gets one retry more than
    declared, because some contracts charge a crash as a failure.
    """
    effects = effects or Effects()
    trial = _Trial(app, _with_one_more_try(app, job), dict(arguments or {}), dict(signals or {}), effects, reset)
    expected, acts = await trial.run(None)
    points = [CrashPoint(when, number, act) for number, act in enumerate(acts, 1) for when in (BEFORE, AFTER)]
    if len(points) > MAX_POINTS:
        raise AssertionError(f"{len(points)} crash points are too many to try; test a smaller job")
    report = CrashReport(points, expected=expected)
    for point in points:
        ending, seen = await trial.run(point)
        problems = expected.differences(ending)
        if seen[point.number - 1 : point.number] != [point.act]:
            problems.append("the run up to here was not the same as without a crash; is the handler deterministic?")
        report.findings += [Finding(point, problem) for problem in problems]
    return report


@dataclass(frozen=True, slots=True)
class _Trial:
    app: Detent
    job: JobDefinition[Any, Any]
    arguments: dict[str, Any]
    signals: dict[str, Any]
    effects: Effects
    reset: Callable[[], object]

    async def run(self, point: CrashPoint | None) -> tuple[Ending, list[str]]:
        self.effects.clear()
        self.reset()
        script = _Script(point)
        async with SingleStepWorker(
            self.app, through=lambda store, process: WitnessStore(store, process, script)
        ) as rig:
            script.rig = rig
            made = await rig.submit(self.job, **self.arguments)
            ended: Job = await rig.run(made.id, self.signals)
            counts = dict(self.effects.counts)
        return Ending(ended.status, ended.result, ended.error_code, counts), script.acts


def _with_one_more_try(app: Detent, job: JobDefinition[Any, Any]) -> JobDefinition[Any, Any]:
    from detent.core.contract.builtin import CONTRACTS, DEFAULT

    name = job.handler.options.contract or DEFAULT
    contract: Contract = {**CONTRACTS, **app.contracts}[name]
    if contract.retry.frozen:
        return job
    declared = job.submission({}).max_retries
    return job.using(max_retries=(contract.retry.max_retries if declared is None else declared) + 1)


class _Script:
    """Counts the acts of one run and says where it ends suddenly. There is one crash in a run."""

    def __init__(self, point: CrashPoint | None) -> None:
        self.rig: SingleStepWorker | None = None
        self.acts: list[str] = []
        self._point = point

    def begin(self) -> int:
        self.acts.append("unfinished")
        return len(self.acts)

    def name(self, number: int, kind: str, calls: Sequence[str]) -> None:
        outcome = self.rig.settling if self.rig else None
        told = f"settlement: {type(outcome).__name__}" if outcome else f"{kind}: {', '.join(dict.fromkeys(calls))}"
        self.acts[number - 1] = told

    def crashes(self, when: str, number: int) -> bool:
        return self._point is not None and (self._point.when, self._point.number) == (when, number)

    def settle_name(self, number: int) -> None:
        """A call that never happened bears the name it has in the run without a crash."""
        if self._point is not None:
            self.acts[number - 1] = self._point.act


class WitnessStore:
    """The store as the process under test sees it: every call is an act that the process may not survive."""

    def __init__(self, store: Store, process: Process, script: _Script) -> None:
        self.contracts = store.contracts
        self.skips_locked_rows = store.skips_locked_rows
        self.max_batches_in_flight = 1
        self._store = store
        self._process = process
        self._script = script

    async def write(self, act: Callable[[Any], Awaitable[T]]) -> T:
        return await self.witnessed("write", lambda calls: self._store.write(lambda tx: act(_Witness(tx, calls))))

    async def read(self, act: Callable[[Any], Awaitable[T]]) -> T:
        return await self.witnessed("read", lambda calls: self._store.read(lambda tx: act(_Witness(tx, calls))))

    async def insert(self, changes: Sequence[Change]) -> set[str]:
        return await self.witnessed("submit", lambda calls: self._store.insert(changes))

    async def record_step(self, step: Step, token: str) -> bool:
        async def record(calls: list[str]) -> bool:
            calls.append(f"record_step {step.name!r}{'' if step.finished else ' begun'}")
            return await self._store.record_step(step, token)

        return await self.witnessed("write", record)

    def held_back(self) -> tuple[bool, Micros | None]:
        return self._store.held_back()

    async def settle_and_claim(self, successes: Sequence[Success], request: ClaimRequest | None) -> StoreBatchResult:
        return await self.witnessed("cycle", lambda calls: self._store.settle_and_claim(successes, request))

    async def begin(self) -> OpenTransaction:
        lent = await self.witnessed("begin", lambda calls: self._store.begin())
        return _WitnessedTransaction(lent, self)

    async def witnessed(self, kind: str, call: Callable[[list[str]], Awaitable[T]]) -> T:
        if self._process.dead:
            await self._process.hang()
        number = self._script.begin()
        if self._script.crashes(BEFORE, number):
            self._script.settle_name(number)
            await self._process.hang()
        calls: list[str] = []
        try:
            answer = await call(calls)
        finally:
            self._script.name(number, kind, calls or [kind])
        if self._script.crashes(AFTER, number):
            await self._process.hang()
        return answer

    async def open(self, own: Mapping[str, Contract], carried: Mapping[str, Contract]) -> None:
        """It is open: the rig opened it."""

    async def close(self) -> None:
        """It stays open: the next process needs it."""

    def now(self) -> Micros:
        return self._store.now()

    async def uptime(self) -> float:
        return await self._store.uptime()

    def sibling(self) -> "WitnessStore":
        return self

    def watch(self) -> Watch:
        return self._store.watch()


class _WitnessedTransaction:
    """A transaction of the handler's own, which its process may not survive."""

    def __init__(self, lent: OpenTransaction, store: WitnessStore) -> None:
        self.connection = lent.connection
        self._lent = lent
        self._store = store

    async def commit(self, act: Callable[[Any], Awaitable[T]]) -> T:
        commit = lambda calls: self._lent.commit(lambda tx: act(_Witness(tx, calls)))  # noqa: E731
        return await self._store.witnessed("commit", commit)

    async def rollback(self) -> None:
        await self._lent.rollback()


class _Witness:
    """A transaction that writes down what is asked of it."""

    def __init__(self, tx: Any, calls: list[str]) -> None:
        self._tx = tx
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        asked = getattr(self._tx, name)
        if not callable(asked):
            return asked

        def told(*args: Any, **kwargs: Any) -> Any:
            if name != "lock":
                self._calls.append(f"{name} {_subject(args)}".rstrip())
            return asked(*args, **kwargs)

        return told


def _subject(args: Sequence[Any]) -> str:
    """What a call is about: the name it bears, or the names of the things it writes."""
    things = args[0] if args and isinstance(args[0], list | tuple) else args
    named = [getattr(thing, "name", None) for thing in things]
    found = [repr(name) for name in named if isinstance(name, str)]
    if found:
        return ", ".join(found)
    texts = [repr(text) for text in args[1:] if isinstance(text, str)]
    return ", ".join(texts)
