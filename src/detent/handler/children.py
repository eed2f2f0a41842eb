"""ctx.enqueue and ctx.gather: jobs that a running job starts and waits for.

A child's id is derived from its parent and its name, so a handler that runs again gets the same children.
"""

import warnings
from collections.abc import Generator, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, overload

from detent.core.child_ids import ANY, END, FAILURE
from detent.core.errors import DetentError
from detent.core.job import CHILDREN
from detent.engine.execution import children as child_acts
from detent.engine.submit.submission import Submission
from detent.ports.children import ChildState

from .base_context import EngineContext
from .outcomes import WaitTimeout
from .transaction import check_no_transaction

if TYPE_CHECKING:
    from .handler import Arguments, Handler

P = ParamSpec("P")
R = TypeVar("R")
R2 = TypeVar("R2")
R3 = TypeVar("R3")
R4 = TypeVar("R4")
R_co = TypeVar("R_co", covariant=True)


class ChildFailed(DetentError):
    """Raised by `ctx.gather` and `Child.result`: a child failed or was cancelled, so it has no result.

    `name`, `child_id`, `job_type`, `status`, `error_code` and `error_message` describe the child. Not retryable: the
    child has ended, so a retry of the parent would get the same error.
    """

    code = "CHILD_FAILED"
    http_status = 409

    def __init__(self, name: str, child: ChildState) -> None:
        cause = f"{child.error_code}: {child.error_message}" if child.error_code else f"it ended as {child.status}"
        super().__init__(f"child {name!r} ({child.id}) failed: {cause}", child_id=child.id, status=child.status)
        self.name = name
        self.child_id = child.id
        self.job_type = child.job_type
        self.status = child.status
        self.error_code = child.error_code
        self.error_message = child.error_message


class ResultHandle(Protocol[R_co]):
    """What enqueueing a job outside a handler returns."""

    async def result(self, timeout: float | None = None) -> R_co: ...


class Enqueueable(Protocol[P, R_co]):
    """A declared job, as far as its parent needs it. A Protocol, because `JobDefinition` is in a higher layer."""

    name: str
    handler: "Handler"

    def submission(self, payload: dict[str, Any]) -> Submission: ...

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> ResultHandle[R_co]: ...


class Child(Generic[R]):
    """A child job, returned by `ctx.enqueue`. Await it to enqueue it, or pass it to `ctx.gather`, which enqueues it.

        child = await ctx.enqueue(resize, image=7)  # enqueued; runs on its own
        size = await child.result()

    `id` is the job's id, `name` its name among the children of this parent, `sent` whether it was enqueued. A child
    that was neither awaited nor gathered is never enqueued, and warns (RuntimeWarning).
    """

    def __init__(self, children: "ChildJobs", request: child_acts.ChildRequest, handler: "Handler") -> None:
        self.id = request.submission.id or ""
        self.name = request.name
        self.sent = False
        self._children = children
        self._request = request
        self._handler = handler

    def __await__(self) -> Generator[Any, None, "Child[R]"]:
        yield from self._children.send([self]).__await__()
        return self

    async def result(self) -> R:
        """Wait for this child and return its result; the parent leaves its worker meanwhile.

        Raises ChildFailed if the child failed or was cancelled. Only for async handlers; a plain handler uses
        `ctx.gather(child)`.
        """
        results: list[R] = await self._children.gather([self])
        return results[0]

    def __repr__(self) -> str:
        return f"<child {self.name} {self.id}>"

    def __del__(self) -> None:
        if not self.sent and not self._children.enqueue_failed:
            warnings.warn(f"{self!r} was never awaited, so it was never enqueued", RuntimeWarning, stacklevel=2)


class ChildJobs:
    """The children of one execution: creates, enqueues, awaits and cancels them."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._claimed = context._claimed
        self._engine = context._engine
        self.enqueue_failed = False
        """True after an enqueue raised: children that were not sent then need no warning."""

    def create(
        self, job: Enqueueable[..., R], payload: dict[str, Any], *, name: str | None = None, after: Sequence[str] = ()
    ) -> Child[R]:
        """A child that is not enqueued yet. after: names of children it depends on, for display only."""
        name = self._context._numbers.number(job.name) if name is None else name
        request = child_acts.child_request(self._claimed, name, job.submission(payload), after)
        return Child(self, request, job.handler)

    async def send(self, children: Iterable[Child[Any]]) -> None:
        """Enqueue those that are not enqueued yet, in bounded batches."""
        unsent = [child for child in children if not child.sent]
        try:
            check_no_transaction(self._context.scopes, "enqueueing children")
            if unsent:
                await self._context._begin_call("enqueueing children")
            await child_acts.enqueue(self._engine, self._claimed, [child._request for child in unsent])
        except BaseException:
            self.enqueue_failed = True
            raise
        for child in unsent:
            child.sent = True

    async def gather(
        self, children: Sequence[Child[R]], *, timeout: float | None = None, return_exceptions: bool = False
    ) -> list[R]:
        """The results in order; raises Suspend while some are missing."""
        self._context._requests.raise_pending()
        check_no_transaction(self._context.scopes, "a wait for children")
        name = self._context._numbers.number("gather")
        states = await self._states(children)
        failures = self._failures(children, states, may_raise=not return_exceptions)
        unfinished = tuple(dict.fromkeys(child.id for child in children if states[child.id].phase != "final"))
        if unfinished:
            await self._suspend(name, unfinished, END if return_exceptions else FAILURE, timeout)
        results: list[Any] = [
            failure if failure is not None else child._handler.result_value(states[child.id].result)
            for child, failure in zip(children, failures, strict=True)
        ]
        return results

    async def wait_any(self, children: Sequence[Child[R]], seen: set[str]) -> dict[str, R]:
        """Results by id, as soon as a child has ended that is not in `seen`; the first failure raises."""
        name = self._context._numbers.number("gather")
        states = await self._states(children)
        self._failures(children, states, may_raise=True)
        ended = {child.id: child for child in children if states[child.id].phase == "final"}
        if children and ended.keys() <= seen:
            unfinished = tuple(child.id for child in children if child.id not in ended)
            await self._suspend(name, unfinished, ANY, None)
        return {job_id: child._handler.result_value(states[job_id].result) for job_id, child in ended.items()}

    async def cancel(self, children: Iterable[Child[Any]], reason: str) -> None:
        """Cancel those that have not ended."""
        await child_acts.cancel_children(self._engine, self._claimed, [c.id for c in children if c.sent], reason)

    async def _states(self, children: Sequence[Child[Any]]) -> dict[str, ChildState]:
        await self.send(children)
        return await child_acts.child_states(self._engine, self._claimed.id, [child.id for child in children])

    def _failures(
        self, children: Sequence[Child[Any]], states: Mapping[str, ChildState], *, may_raise: bool
    ) -> list[ChildFailed | None]:
        """For each child its failure, or None if it has not failed. may_raise: raise the first one instead."""
        failures: list[ChildFailed | None] = []
        for child in children:
            state = states[child.id]
            succeeded = self._engine.contract(state.contract).succeeded(state.status)
            failures.append(None if state.phase != "final" or succeeded else ChildFailed(child.name, state))
        first = next(filter(None, failures), None)
        if first is not None and may_raise:
            raise first
        return failures

    async def _suspend(self, name: str, unfinished: tuple[str, ...], wakes_on: str, timeout: float | None) -> None:
        self._context._check_can_wait("a wait for children")
        if timeout is not None:
            signal = await self._engine.store.read(lambda tx: tx.signals.signal(self._claimed.id, name))
            if signal is not None:
                raise WaitTimeout(
                    f"{len(unfinished)} children of job {self._claimed.id} did not end before the timeout"
                )
        raise self._context._suspend(name, CHILDREN, timeout, children=unfinished, wakes_on=wakes_on)


class BlockingGather(Protocol):
    """`gather` of a plain handler's context; see `Context.gather`."""

    @overload
    def __call__(self, one: Child[R], two: Child[R2], /, *, timeout: float | None = None) -> tuple[R, R2]: ...

    @overload
    def __call__(
        self, one: Child[R], two: Child[R2], three: Child[R3], /, *, timeout: float | None = None
    ) -> tuple[R, R2, R3]: ...

    @overload
    def __call__(
        self, one: Child[R], two: Child[R2], three: Child[R3], four: Child[R4], /, *, timeout: float | None = None
    ) -> tuple[R, R2, R3, R4]: ...

    @overload
    def __call__(self, *children: Child[R], timeout: float | None = None) -> list[R]: ...

    @overload
    def __call__(
        self, *children: Child[R], timeout: float | None = None, return_exceptions: bool
    ) -> list[R | ChildFailed]: ...


class ChildCalls(EngineContext):
    """The calls of an async handler's context that start children and wait for them."""

    @cached_property
    def children(self) -> ChildJobs:
        """The children of this execution. Internal: handlers use `enqueue`, `enqueue_many` and `gather`."""
        return ChildJobs(self)

    def enqueue(self, job: Enqueueable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Child[R]:
        """A child job of this job. Await it to enqueue it now, or pass it to `gather`.

        When the handler runs again it gets the same child: the n-th call with one job is always the same child, so
        keep the order of the calls. Tenant and trace id are inherited; other options come from `job.using(...)`.

            child = await ctx.enqueue(resize, image=7)
            first, second = await ctx.gather(child, ctx.enqueue(resize, image=8))

        Raises InvalidInput (PAYLOAD_INVALID, CHILD_KEY, CHILD_TENANT); when awaited also StepMismatch if an earlier
        execution enqueued this child with other arguments, and StaleLease if the lease was lost.
        """
        return self.children.create(job, job.handler.payload(args, kwargs))

    async def enqueue_many(
        self, job: Enqueueable[P, R], arguments: "Sequence[Mapping[str, Any] | Arguments[P]]"
    ) -> list[Child[R]]:
        """Enqueue one child for each mapping of arguments, in batches of 500, and return them in order.

            children = await ctx.enqueue_many(resize, [{"image": n} for n in range(1_000)])
            sizes = await ctx.gather(*children)

        Raises what `enqueue` raises.
        """
        children = [self.children.create(job, payload) for payload in job.handler.payloads(arguments)]
        await self.children.send(children)
        return children

    @overload
    async def gather(self, one: Child[R], two: Child[R2], /, *, timeout: float | None = None) -> tuple[R, R2]: ...

    @overload
    async def gather(
        self, one: Child[R], two: Child[R2], three: Child[R3], /, *, timeout: float | None = None
    ) -> tuple[R, R2, R3]: ...

    @overload
    async def gather(
        self, one: Child[R], two: Child[R2], three: Child[R3], four: Child[R4], /, *, timeout: float | None = None
    ) -> tuple[R, R2, R3, R4]: ...

    @overload
    async def gather(self, *children: Child[R], timeout: float | None = None) -> list[R]: ...

    @overload
    async def gather(
        self, *children: Child[R], timeout: float | None = None, return_exceptions: bool
    ) -> list[R | ChildFailed]: ...

    async def gather(self, *children: Child[Any], timeout: float | None = None, return_exceptions: bool = False) -> Any:
        """Wait for children and return their results in order; the job leaves its worker meanwhile.

        timeout: seconds; raises WaitTimeout when they pass. The children are not cancelled.
        return_exceptions: False raises ChildFailed as soon as one child failed; True waits for all of them and puts
        each ChildFailed in its place of the list.

        Up to four children of different types keep their types: `size, name = await ctx.gather(child, other)`.

        Raises NotSupported (CONTRACT_LACKS_MOVE) if the contract of this job has no waiting status.
        """
        return await self.children.gather(children, timeout=timeout, return_exceptions=return_exceptions)
