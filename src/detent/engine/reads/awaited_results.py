"""Waits for the ends of jobs: one watch on the store and one query serve all waiters of an engine."""

import asyncio
import logging
from collections.abc import Sequence

from detent.core.contract.model import Phase
from detent.core.errors import InvalidInput, JobFailed, NotFound
from detent.engine.runtime import Runtime, Service, operators_only, reads
from detent.ports.children import ChildState
from detent.ports.store import Watch
from detent.ports.tx import Tx
from detent.system.batcher import TaskBatcher

log = logging.getLogger("detent.results")
_POLL_SECONDS = 1.0
"""How often all waiters look without a notification, which may be lost."""
_FIRST_POLL_SECONDS = 0.05
"""A job may end before other processes know that its end is awaited."""
_SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.002, 0.06
"""Between two reads that found no end: notifications may be about other jobs."""
_MAX_IDS = 1_000


class Results(Service):
    """The ends of jobs, as they are awaited by `handle.result()`."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._waiting: dict[str, set[asyncio.Future[ChildState]]] = {}
        self._reads: TaskBatcher[str, ChildState] = TaskBatcher(self._read, max_size=_MAX_IDS)
        self._watch: Watch | None = None
        self._follower: asyncio.Task[None] | None = None

    @property
    def _is_limited(self) -> bool:
        return self._runtime.tenant is not None or self._runtime.reach.is_limited

    async def wait(self, job_id: str, timeout: float | None = None) -> ChildState:
        """The state of a job once it has ended. Raises NotFound, and TimeoutError after so many seconds."""
        if self._is_limited:
            job_id = (await self._runtime.store.read(lambda tx: self._runtime.find(tx, job_id))).id
        state = await self._wait(job_id, timeout)
        return state if self._runtime.payloads else state._replace(result=None, error_message=None)

    async def _wait(self, job_id: str, timeout: float | None) -> ChildState:
        self._watch = self._watch or self._runtime.store.watch(ends=True)
        future: asyncio.Future[ChildState] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(job_id, set()).add(future)  # before the first read, so that no end is missed
        try:
            state = await self._reads.add(job_id)
            if state.phase == Phase.FINAL:
                return state
            if self._follower is None or self._follower.done():
                self._follower = asyncio.create_task(self._follow(self._watch))
            ended, _ = await asyncio.wait([future], timeout=timeout)
            state = future.result() if ended else await self._reads.add(job_id)
            if state.phase == Phase.FINAL:
                return state
        finally:
            self._waiting[job_id].discard(future)
            if not self._waiting[job_id]:
                del self._waiting[job_id]
        message = f"job {job_id} is {state.status} after {timeout} s and continues"
        raise TimeoutError(f"{message}; `detent jobs why {job_id}` shows what it waits for")

    async def failure(self, state: ChildState) -> JobFailed:
        """The error of a job that ended without a result."""
        message = state.error_message if self._runtime.payloads else None
        classes = await self._error_classes(state.id)
        return JobFailed(
            f"job {state.id} ended as {state.status}: {message or 'no result'}",
            job_id=state.id,
            status=state.status,
            error_code=state.error_code,
            error_message=message,
            error_class=next(filter(None, reversed(classes)), None) if state.error_code else None,
        )

    @reads
    async def _error_classes(self, tx: Tx, job_id: str) -> list[str | None]:
        if self._is_limited:
            await self._runtime.find(tx, job_id)
        return [(event.data or {}).get("error_class") for event in await tx.log.events(job_id)]

    @operators_only
    def close(self) -> None:
        """End all waits with an error, because the store is being closed."""
        if self._follower is not None:
            self._follower.cancel()
        for future in [future for futures in self._waiting.values() for future in futures if not future.done()]:
            future.set_exception(InvalidInput("the app was closed while a result was awaited", code="APP_CLOSED"))

    async def _read(self, ids: Sequence[str]) -> list[ChildState | BaseException]:
        rows = await self._runtime.store.read(lambda tx: tx.children.child_states(list(dict.fromkeys(ids))))
        states = {state.id: state for state in rows}
        return [states.get(job_id) or NotFound(f"job {job_id!r} does not exist", job_id=job_id) for job_id in ids]

    async def _follow(self, watch: Watch) -> None:
        """Read the awaited jobs after each notification, and now and then without one, while any are awaited."""
        loop = asyncio.get_running_loop()
        read_at, pause, poll = loop.time(), 0.0, _FIRST_POLL_SECONDS
        while self._waiting:
            try:
                await watch.changed(poll)
                await asyncio.sleep(max(0, read_at + pause - loop.time()))
                read_at = loop.time()
                ended = await self._deliver(list(self._waiting))
            except Exception as error:  # if this loop ended, its waiters would wait for ever
                log.warning("reading awaited results failed, trying again in %g s: %s", _POLL_SECONDS, error)
                await asyncio.sleep(_POLL_SECONDS)
                continue
            pause = 0.0 if ended else min(max(2 * pause, _SHORTEST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
            poll = min(4 * poll, _POLL_SECONDS)

    async def _deliver(self, ids: list[str]) -> bool:
        """Give the waiters of these jobs what has ended; False if none has."""
        found = False
        for job_id, state in zip(ids, await self._read(ids) if ids else [], strict=True):
            if isinstance(state, ChildState) and state.phase != Phase.FINAL:
                continue
            found = True
            for future in [future for future in self._waiting.get(job_id, ()) if not future.done()]:
                if isinstance(state, BaseException):
                    future.set_exception(state)
                else:
                    future.set_result(state)
        return found
