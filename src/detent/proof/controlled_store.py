"""A SQLite store whose every call can be held back, failed or undone by whoever drives the coroutine that made it."""

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import Contract
from detent.core.job import Micros
from detent.engine import Engine
from detent.ports.clock import Clock
from detent.stores.sqlite.claim import SqliteTx
from detent.stores.sqlite.migrate import ensure_schema, register
from detent.stores.sqlite.session import Act, Session, connect
from detent.stores.sqlite.store import SqliteStore
from detent.worker.state import WorkerState

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Hooks:
    """What a world is built of; a planted bug swaps one part for a broken one."""

    transaction: type[SqliteTx] = SqliteTx
    engine: type[Engine] = Engine
    state: type[WorkerState] = WorkerState


HONEST = Hooks()


@dataclass(slots=True)
class ManualClock:
    """Time that moves only when told; wall and monotonic time may part."""

    wall: Micros = 1_700_000_000_000_000
    mono: float = 0.0
    highest: Micros = 0
    """The latest wall time anyone can have read."""

    def now(self) -> Micros:
        return self.wall

    def monotonic(self) -> float:
        return self.mono


class StoreCall:
    """One transaction somebody waits for. The driver decides whether and when it happens."""

    __slots__ = ("act", "session")

    def __init__(self, session: Session, act: Act[Any]) -> None:
        self.session = session
        self.act = act

    def run(self) -> Any:
        return self.session.run(self.act)

    def __await__(self) -> Generator["StoreCall", Any, Any]:
        return (yield self)


class ControlledStore(SqliteStore):
    """The SQLite store in memory, opened from a ready-made schema; its acts are handed to the driver."""

    def __init__(self, clock: Clock, hooks: Hooks = HONEST) -> None:
        super().__init__(":memory:", clock=clock, inline=True, synchronous="OFF")
        self._hooks = hooks
        self.effects: Counter[str] = Counter()
        """What handlers did to the world outside, by job: what no store can undo."""

    @property
    def session(self) -> Session:
        assert self._writer is not None, "the store is open"
        return self._writer

    def open_now(self, own: Mapping[str, Contract], carried: Mapping[str, Contract] = CONTRACTS) -> None:
        connection = connect(self.path, self.synchronous)
        connection.deserialize("main", _schema())
        self._writer = self._reader = Session(connection, "BEGIN IMMEDIATE", self._make_tx)
        self.contracts = register(connection, own, carried) if own else dict(CONTRACTS)

    async def _on(self, session: Session | None, act: Act[T], *, relaxed: bool = False) -> T:
        assert session is not None, "the store is open"
        answer: T = await StoreCall(session, act)
        return answer

    def _make_tx(self, session: Session) -> SqliteTx:
        return self._hooks.transaction(session.connection, self._clock.now(), session.book, self.contracts)


@cache
def _schema() -> bytes:
    """An empty database that knows the carried contracts; made once, copied for every world."""
    connection = connect(":memory:", "OFF")
    ensure_schema(connection, may_migrate=True)
    register(connection, {}, CONTRACTS)
    image = connection.serialize("main")
    connection.close()
    return image


def run_all(awaitable: Awaitable[T]) -> T:
    """Drive a coroutine to its end, doing each of its store calls at once."""
    coroutine: Coroutine[Any, Any, T] = awaitable  # type: ignore[assignment]
    step: Callable[[], Any] = lambda: coroutine.send(None)  # noqa: E731
    while True:
        try:
            call = step()
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        step = _answered(coroutine, call)


def _answered(coroutine: Coroutine[Any, Any, Any], call: StoreCall) -> Callable[[], Any]:
    try:
        answer = call.run()
    except Exception as error:
        problem = error
        return lambda: coroutine.throw(problem)
    return lambda: coroutine.send(answer)


@dataclass(slots=True)
class Violation:
    """A broken promise: which job, which rule, what was seen."""

    job_id: str
    rule: str
    detail: str
    seq: int | None = None
    path: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        told: dict[str, Any] = {"job_id": self.job_id, "seq": self.seq, "rule": self.rule, "detail": self.detail}
        return {**told, "path": self.path} if self.path else told
