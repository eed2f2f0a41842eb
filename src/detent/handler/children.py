"""Children of a running job: named so that a second execution meets them again, enqueued in batches, gathered."""

import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar

from detent.core.child_ids import ANY, END, FAILURE, child_id
from detent.core.contract.model import Move
from detent.core.errors import DetentError, InvalidInput
from detent.core.job import CHILDREN, Wait
from detent.core.times import SECOND
from detent.engine.execution import children as child_acts
from detent.engine.execution.settle import lacks
from detent.engine.submit.submission import Submission
from detent.ports.children import Ended
from detent.ports.claims import Claimed

from .outcomes import Suspend, WaitTimeout

if TYPE_CHECKING:
    from detent.engine import Engine

    from .handler import Handler

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
_TENANT = Submission.__dataclass_fields__["tenant_id"].default


class ChildFailed(DetentError):
    """A child ended without a result; its error code and message came with it. Retrying the parent would not help."""

    code = "CHILD_FAILED"
    http_status = 409

    def __init__(self, name: str, end: Ended) -> None:
        cause = f"{end.error_code}: {end.error_message}" if end.error_code else f"it ended as {end.status}"
        super().__init__(f"child {name!r} ({end.id}) failed: {cause}", child_id=end.id, status=end.status)
        self.name = name
        self.child_id = end.id
        self.job_type = end.job_type
        self.status = end.status
        self.error_code = end.error_code
        self.error_message = end.error_message


class Handled(Protocol[R_co]):
    """What enqueueing a job from outside gives."""

    async def result(self, timeout: float | None = None) -> R_co: ...


class Enqueueable(Protocol[P, R_co]):
    """A declared job, as far as a parent needs to know it."""

    name: str
    handler: "Handler"

    def submission(self, payload: dict[str, Any]) -> Submission: ...

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handled[R_co]: ...


class Child(Generic[R]):
    """A child call: awaited, it is enqueued and gives itself; gathered, it is enqueued with the others."""

    def __init__(self, own: "ChildJobs", named: child_acts.Named, handler: "Handler") -> None:
        self.id = named.ask.id or ""
        self.name = named.name
        self.sent = False
        self._family = own
        self._named = named
        self._handler = handler

    def __await__(self) -> Generator[Any, None, "Child[R]"]:
        yield from self._family.send([self]).__await__()
        return self

    async def result(self) -> R:
        """Wait for this one; the job leaves its worker meanwhile."""
        results: list[R] = await self._family.gather([self])
        return results[0]

    def __repr__(self) -> str:
        return f"<child {self.name} {self.id}>"

    def __del__(self) -> None:
        if not self.sent and not self._family.broken:
            warnings.warn(f"{self!r} was never awaited, so it was never enqueued", RuntimeWarning, stacklevel=2)


class ChildJobs:
    """The children of one execution, numbered as they are asked for."""

    def __init__(self, claimed: Claimed, engine: "Engine", park_seconds: float, check: Callable[[str], None]) -> None:
        """check: refuses what may not be done while the handler holds a transaction open."""
        self._claimed = claimed
        self._check = check
        self._engine = engine
        self._park_seconds = park_seconds
        self._counts: Counter[str] = Counter()
        self.broken = False
        """Something was refused: calls that were not made yet will not be."""

    def number(self, name: str) -> str:
        """The first use of a name in an execution bears it as it is, the next ones `name#2`, `name#3`, …"""
        self._counts[name] += 1
        count = self._counts[name]
        return name if count == 1 else f"{name}#{count}"

    def call(
        self,
        job: Enqueueable[..., R],
        payload: dict[str, Any],
        *,
        name: str | None = None,
        after: Sequence[str] = (),
    ) -> Child[R]:
        """A child that is not enqueued yet. Its id follows from its parent and its name alone."""
        name = self.number(job.name) if name is None else name
        ask = job.submission(payload)
        if ask.idempotency_key is not None:
            raise InvalidInput(
                f"{job.name} as a child takes no key: enqueued again it is the same child anyway", code="CHILD_KEY"
            )
        if ask.tenant_id not in (_TENANT, self._claimed.tenant_id):
            raise InvalidInput("a child belongs to the tenant of its parent; leave tenant= out", code="CHILD_TENANT")
        ask = replace(
            ask,
            id=child_id(self._claimed.id, name),
            parent_id=self._claimed.id,
            tenant_id=self._claimed.tenant_id,
            trace_id=ask.trace_id or self._claimed.trace_id,
            actor=f"job:{self._claimed.id}",
        )
        return Child(self, child_acts.Named(name, ask, tuple(after)), job.handler)

    async def send(self, children: Iterable[Child[Any]]) -> None:
        """Enqueue what was not enqueued yet, in bounded batches."""
        fresh = [child for child in children if not child.sent]
        try:
            self._check("children are enqueued")
            await child_acts.enqueue(self._engine, self._claimed, [child._named for child in fresh])
        except BaseException:
            self.broken = True
            raise
        for child in fresh:
            child.sent = True

    async def gather(
        self, children: Sequence[Child[R]], *, timeout: float | None = None, return_exceptions: bool = False
    ) -> list[R]:
        """The results in order, or the suspension of the parent until they are there."""
        self._check("a wait for children")
        name = self.number("gather")
        found = await self._ends(children)
        failures = [self._failure(child, found[child.id]) for child in children]
        if not return_exceptions:
            for failure in failures:
                if failure is not None:
                    raise failure
        left = tuple(dict.fromkeys(child.id for child in children if found[child.id].phase != "final"))
        if left:
            await self._suspend(name, left, END if return_exceptions else FAILURE, timeout)
        told: list[Any] = [
            failure if failure is not None else child._handler.result_value(found[child.id].result)
            for child, failure in zip(children, failures, strict=True)
        ]
        return told

    async def any(self, children: Sequence[Child[R]], known: set[str]) -> dict[str, R]:
        """Results by id as soon as one more than the known has ended; the first failure raises."""
        name = self.number("gather")
        found = await self._ends(children)
        for child in children:
            failure = self._failure(child, found[child.id])
            if failure is not None:
                raise failure
        ended = {child.id: child for child in children if found[child.id].phase == "final"}
        if children and ended.keys() <= known:
            left = tuple(child.id for child in children if child.id not in ended)
            await self._suspend(name, left, ANY, None)
        return {job_id: child._handler.result_value(found[job_id].result) for job_id, child in ended.items()}

    async def cancel(self, children: Iterable[Child[Any]], reason: str) -> None:
        """Stop those that have not ended."""
        await child_acts.cancel_children(self._engine, self._claimed, [c.id for c in children if c.sent], reason)

    async def _ends(self, children: Sequence[Child[Any]]) -> dict[str, Ended]:
        await self.send(children)
        return await child_acts.ends(self._engine, self._claimed.id, [child.id for child in children])

    def _failure(self, child: Child[Any], end: Ended) -> ChildFailed | None:
        contract = self._engine.contract(end.contract)
        if end.phase != "final" or f"{end.contract} {end.status}" in child_acts.good([contract]):
            return None
        return ChildFailed(child.name, end)

    async def _suspend(self, name: str, left: tuple[str, ...], wakes_on: str, timeout: float | None) -> None:
        contract = self._engine.contract(self._claimed.contract)
        if not any(edge.move is Move.WAIT for edge in contract.edges):
            raise lacks(contract, "a wait for children")
        if timeout is not None:
            signal = await self._engine.store.read(lambda tx: tx.signal(self._claimed.id, name))
            if signal is not None:
                raise WaitTimeout(f"{len(left)} children of job {self._claimed.id} did not end in time")
        long = timeout is None or timeout > self._park_seconds
        span = None if timeout is None else int(timeout * SECOND)
        raise Suspend(Wait(name, CHILDREN, span, park=long, children=left, wakes_on=wakes_on))


def payloads(job: Enqueueable[..., Any], arguments: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [job.handler.payload((), one) for one in arguments]
