"""An in-memory SQLite store whose transactions are run by a driver, which may delay, fail or drop each of them."""

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import Contract, Phase
from detent.core.job import Micros
from detent.engine import Engine
from detent.ports.clock import Clock
from detent.stores.sqlite.claim import SqliteTx
from detent.stores.sqlite.migrate import ensure_schema, register
from detent.stores.sqlite.session import Act, Session, connect
from detent.stores.sqlite.store import SqliteStore
from detent.worker.state import WorkerState

T = TypeVar("T")
BrokenRule = tuple[str, str, str]
"""(job id, rule, detail)"""


@dataclass(frozen=True, slots=True)
class Hooks:
    """The classes a simulation or exploration is built from; a planted bug replaces one of them."""

    transaction: type[SqliteTx] = SqliteTx
    engine: type[Engine] = Engine
    state: type[WorkerState] = WorkerState
    acknowledges_early: bool = False
    """True: stream workers acknowledge a message before its result is stored."""


DEFAULT_HOOKS = Hooks()


@dataclass(slots=True)
class ManualClock:
    """A clock whose wall time and monotonic time are set by the driver, independently of each other."""

    wall: Micros = 1_700_000_000_000_000
    mono: float = 0.0
    highest: Micros = 0
    """The latest wall time that any reader can have seen."""

    def now(self) -> Micros:
        return self.wall

    def monotonic(self) -> float:
        return self.mono


class StoreCall:
    """One transaction a coroutine awaits. The driver decides whether and when to run it."""

    __slots__ = ("act", "session")

    def __init__(self, session: Session, act: Act[Any]) -> None:
        self.session = session
        self.act = act

    def run(self) -> Any:
        return self.session.run(self.act)

    def __await__(self) -> Generator["StoreCall", Any, Any]:
        return (yield self)


class ControlledStore(SqliteStore):
    """The SQLite store in memory, opened from a serialized schema; it yields each transaction to the driver."""

    def __init__(self, clock: Clock, hooks: Hooks = DEFAULT_HOOKS) -> None:
        super().__init__(":memory:", clock=clock, inline=True, synchronous="OFF")
        self._hooks = hooks
        self.effects: Counter[str] = Counter()
        """External side effects of handlers per job: a rollback does not undo them."""
        self.handler_findings: list[BrokenRule] = []
        """One for each function of a step that must not run and was called, and for each wrong value a handler got."""

    @property
    def session(self) -> Session:
        assert self._writer is not None, "the store is open"
        return self._writer

    def step_called(self, job_id: str, token: str, name: str) -> None:
        """The function of a step runs now, in the execution with this token."""
        query = "SELECT 1 FROM detent_steps WHERE job_id = ? AND name = ? AND finished"
        if list(self.session.connection.execute(query, (job_id, name))):
            self.handler_findings.append((job_id, "step.repeated", f"{name} was called although it is recorded"))
        query = "SELECT token FROM detent_job_list WHERE id = ? AND token <> ? AND phase = ?"
        for (holder,) in self.session.connection.execute(query, (job_id, token, str(Phase.LEASED))):
            detail = f"{name} was called by {token} while {holder} held the job"
            self.handler_findings.append((job_id, "step.lost", detail))

    def check_received(self, job_id: str, query: str, value: Any) -> None:
        """A handler receives what is stored. query: JSON values of this job; no row if there is nothing to compare."""
        for (stored,) in self.session.connection.execute(query, (job_id,)):
            if json.loads(stored) != value:
                self.handler_findings.append((job_id, "handler.differs", f"received {value}, stored is {stored}"))

    def open_now(self, own: Mapping[str, Contract], builtin: Mapping[str, Contract] = CONTRACTS) -> None:
        connection = connect(self.path, self.synchronous)
        connection.deserialize("main", _schema())
        self._writer = self._reader = Session(connection, "BEGIN IMMEDIATE", self._clock, self._hooks.transaction)
        self._use_contracts(register(connection, own, builtin) if own else dict(CONTRACTS))

    async def _on(self, session: Session | None, act: Act[T], *, short: bool = False, relaxed: bool = False) -> T:
        assert session is not None, "the store is open"
        result: T = await StoreCall(session, act)
        return result


@cache
def _schema() -> bytes:
    """A serialized empty database with the built-in contracts registered; created once and copied for each store."""
    connection = connect(":memory:", "OFF")
    ensure_schema(connection, may_migrate=True)
    register(connection, {}, CONTRACTS)
    image = connection.serialize("main")
    connection.close()
    return image


def run_all(awaitable: Awaitable[T]) -> T:
    """Run a coroutine to its end, executing each of its store calls immediately."""
    coroutine: Coroutine[Any, Any, T] = awaitable  # type: ignore[assignment]
    resume: Callable[[Any], StoreCall] = coroutine.send
    value: Any = None
    while True:
        try:
            call = resume(value)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        try:
            resume, value = coroutine.send, call.run()
        except Exception as error:
            resume, value = coroutine.throw, error
