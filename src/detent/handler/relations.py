"""The part of a context that deals with others: children it enqueues, people it asks. For async and plain handlers."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from detent.engine.submit.submission import check_name
from detent.ports.claims import Claimed

from .approvals import Deadline, Decision, decided
from .children import Child, ChildJobs, Enqueueable, payloads

if TYPE_CHECKING:
    from detent.engine import Engine

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class ChildAndApprovalCalls:
    """Mixed into the context of an async handler."""

    _claimed: Claimed
    _engine: "Engine"
    _park_seconds: float
    _family: ChildJobs | None = None

    def check_closed(self, what: str) -> None:
        """Refuses what may not be done while the handler holds a transaction open."""
        raise NameError("mixed into a context only")

    @property
    def family(self) -> ChildJobs:
        if self._family is None:
            self._family = ChildJobs(self._claimed, self._engine, self._park_seconds, self.check_closed)
        return self._family

    def enqueue(self, job: Enqueueable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Child[R]:
        """A child of this job. Await it, or gather it with others; run again, the handler meets the same child."""
        return self.family.call(job, job.handler.payload(args, kwargs))

    async def enqueue_many(self, job: Enqueueable[..., R], arguments: Sequence[Mapping[str, Any]]) -> list[Child[R]]:
        """Many children, in bounded batches; gather takes the whole list."""
        children = [self.family.call(job, payload) for payload in payloads(job, arguments)]
        await self.family.send(children)
        return children

    async def gather(
        self, *children: Child[R], timeout: float | None = None, return_exceptions: bool = False
    ) -> list[R]:
        """The children's results in order; the job leaves its worker until they have ended, or one has failed."""
        return await self.family.gather(children, timeout=timeout, return_exceptions=return_exceptions)

    async def approval(
        self,
        summary: str,
        *,
        about: Any = None,
        roles: Sequence[str] = (),
        quorum: int = 1,
        deadline: Deadline = None,
        default: str | bool | None = "fail",
        name: str = "approval",
    ) -> Decision:
        """Ask people; the job leaves its worker until they have decided, or the deadline has.

        default: what the deadline decides: "approve", "reject", or "fail", which raises ApprovalExpired.
        """
        check_name(name, "approval name")
        self.check_closed("a question to people")
        return await decided(
            self._engine,
            self._claimed,
            self.family.number(name),
            summary,
            about=about,
            roles=roles,
            quorum=quorum,
            deadline=deadline,
            default=default,
        )


class SyncChildAndApprovalCalls:
    """The same for a plain `def` handler: each call blocks its thread."""

    _context: Any

    def _run(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        raise NameError("mixed into a context only")

    def enqueue(self, job: Enqueueable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Child[R]:
        """A child of this job, enqueued at once."""
        child: Child[R] = self._context.enqueue(job, *args, **kwargs)
        self._run(lambda: self._context.family.send([child]))
        return child

    def enqueue_many(self, job: Enqueueable[..., R], arguments: Sequence[Mapping[str, Any]]) -> list[Child[R]]:
        return self._run(lambda: self._context.enqueue_many(job, arguments))

    def gather(self, *children: Child[R], timeout: float | None = None, return_exceptions: bool = False) -> list[R]:
        return self._run(lambda: self._context.gather(*children, timeout=timeout, return_exceptions=return_exceptions))

    def approval(
        self,
        summary: str,
        *,
        about: Any = None,
        roles: Sequence[str] = (),
        quorum: int = 1,
        deadline: Deadline = None,
        default: str | bool | None = "fail",
        name: str = "approval",
    ) -> Decision:
        decision: Decision = self._run(
            lambda: self._context.approval(
                summary, about=about, roles=roles, quorum=quorum, deadline=deadline, default=default, name=name
            )
        )
        return decision
