"""What async and plain handlers share: facts about the execution, and how their calls reach the engine."""

import asyncio
import logging
from datetime import datetime
from functools import cached_property, partial
from typing import Any

from detent.core.contract.model import Move
from detent.core.errors import InvalidInput
from detent.core.job import Micros, Wait
from detent.core.times import SECOND, to_datetime
from detent.engine import Engine
from detent.engine.execution.settle import not_supported
from detent.engine.submit.submission import check_name
from detent.ports.claims import Claimed
from detent.system.backoff import Sleep
from detent.system.retry import OUTAGE

from .lease import Lease
from .outcomes import Suspend
from .stop_requests import StopKind, StopRequests
from .transaction import Scope

PARK_SECONDS = 60.0
"""A wait that may last longer than this is parked, unless the job or the app sets `park_seconds`."""


class BaseContext:
    """Facts about this execution. None of them reads the database."""

    _deadline_at: Micros | None = None

    def __init__(self, claimed: Claimed, requests: StopRequests | None = None) -> None:
        self._claimed = claimed
        self._requests = requests or StopRequests()

    @cached_property
    def log(self) -> "logging.LoggerAdapter[logging.Logger]":
        """A logger named `detent.job.<job type>` that adds job id, execution number and trace id to every line."""
        claimed = self._claimed
        extra = {"job_id": claimed.id, "execution_no": claimed.execution_no, "trace_id": claimed.trace_id}
        return logging.LoggerAdapter(logging.getLogger(f"detent.job.{claimed.job_type}"), extra)

    @cached_property
    def state(self) -> dict[str, Any]:
        """What middleware has added for this execution, for example a database session: `ctx.state["session"]`."""
        return {}

    @property
    def job_id(self) -> str:
        """The id of this job, a UUID."""
        return self._claimed.id

    @property
    def job_type(self) -> str:
        """The name under which the job was declared: the first argument of `@app.job`."""
        return self._claimed.job_type

    @property
    def tenant_id(self) -> str:
        """The tenant this job belongs to; `default` if none was named."""
        return self._claimed.tenant_id

    @property
    def execution_no(self) -> int:
        """Which execution of the job this is, from 1. Retries, waits, snoozes and lost workers each add one."""
        return self._claimed.execution_no

    @property
    def retries(self) -> int:
        """How many retries the job has used so far; 0 in the first try."""
        return self._claimed.retries

    @property
    def trace_id(self) -> str | None:
        """The trace id of this job: the one it was enqueued with, or one made by its contract."""
        return self._claimed.trace_id

    @property
    def traceparent(self) -> str | None:
        """The W3C trace context the job was enqueued in, to be sent along with HTTP calls; None without tracing."""
        return self._claimed.traceparent

    @property
    def idempotency_key(self) -> str | None:
        """The key this job was enqueued with (`using(key=)`), or None."""
        return self._claimed.idempotency_key

    @property
    def execution_key(self) -> str:
        """A key that changes with each retry: the job's id and its retry count, joined by `+`.

        For services that must treat a retry as a new request. For the opposite use `effect_key`.
        """
        return f"{self._claimed.id}+{self._claimed.retries}"

    def effect_key(self, name: str) -> str:
        """An idempotency key for an effect outside: the same in every retry, and after a requeue of a dead letter.

        Pass it to a service that understands idempotency keys, so that it acts once even if the handler runs again:

            await ctx.step("charge", pay, order_id, idempotency_key=ctx.effect_key("charge"))
        """
        return f"{self._claimed.effect_root}:{name}"

    @property
    def deadline(self) -> datetime | None:
        """When the timeout ends this execution, in UTC; None without a timeout.

        left = (ctx.deadline - datetime.now(UTC)).total_seconds()
        """
        return None if self._deadline_at is None else to_datetime(self._deadline_at)

    @property
    def cancelled(self) -> bool:
        """True once this execution should end: a cancel was requested, its soft timeout or its timeout passed, its
        lease was lost, or the grace of a stopping worker is over. A long handler that makes no other calls of the
        context should check it now and then and return, or raise `Cancel`, soon after.
        """
        return bool(self._requests.reasons)

    @property
    def cancel_reason(self) -> str | None:
        """Why `cancelled` is true, if a reason was given; else None."""
        reasons = self._requests.reasons
        return reasons[-1] if reasons else None

    @property
    def stopping(self) -> bool:
        """True once the worker was told to stop (SIGTERM, `detent workers stop`); it ends after its grace, 25 s.

        What still runs then is handed back and starts again elsewhere. A long handler can end earlier, at a good place:

            if ctx.stopping:
                raise Snooze(0)
        """
        return self._requests.stopping

    def request_stop(self, kind: StopKind, reason: str | None) -> None:
        """Pass a request to this execution. Called by the worker, not by handlers."""
        self._requests.add(kind, reason)


class Numbers:
    """Numbers repeated names of one execution: `name`, `name#2`, `name#3`, …"""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def number(self, name: str) -> str:
        count = self._counts[name] = self._counts.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"

    def check_and_number(self, name: str, what: str) -> str:
        """Refuse a name that looks like a numbered one. what: for the message."""
        check_name(name, what)
        if "#" in name:
            message = f"{what} {name!r} must not contain #, which numbers repeated names; leave it out"
            raise InvalidInput(message, code="NAME_INVALID")
        return self.number(name)


class EngineContext(BaseContext):
    """What the calls of an async handler share: the engine, open transactions, numbers of repeated names."""

    def __init__(
        self,
        claimed: Claimed,
        engine: Engine,
        park_seconds: float = PARK_SECONDS,
        *,
        strict_steps: bool = False,
        pause: Sleep = asyncio.sleep,
        lease: Lease | None = None,
        requests: StopRequests | None = None,
        give_up_on: tuple[type[BaseException], ...] = (),
    ) -> None:
        super().__init__(claimed, requests)
        self._give_up_on = give_up_on
        self._lease = lease or Lease()
        self._engine = engine
        self._park_seconds = park_seconds
        self._strict_steps = strict_steps
        self._pause = pause

    # Created on first use: most handlers use none of them.

    @cached_property
    def scopes(self) -> list[Scope]:
        """Where transactions may be open: first the whole execution, then each step that runs now. Internal."""
        return [Scope()]

    @cached_property
    def _numbers(self) -> Numbers:
        """Of children and approvals."""
        return Numbers()

    async def _begin_call(self, what: str) -> None:
        """Raise what the worker requests, or StaleLease; at the beginning of each call but steps. Internal."""
        self._requests.raise_pending()
        await self._check_lease(what)

    async def _check_lease(self, what: str) -> None:
        """Raise StaleLease if this execution has lost the job. Asks the store only if the lease may be over. Internal.

        A lease that is confirmed here is extended: a third of it or more is left when this returns.
        """
        lease, job_id = self._lease, self._claimed.id
        while not lease.is_sure:  # again if the process was stopped while it waited for the store
            lease.raise_if_lost(job_id, what)
            assert lease.clock is not None, "a lease without a clock is sure or lost"
            at, seconds = lease.clock.read(), lease.clock.lease_seconds
            extend = partial(self._engine.extend, {job_id: self._claimed.token}, seconds)
            if job_id in (await OUTAGE.run(extend, self._pause)).lost:
                lease.lost = "lease lost"
            lease.confirm(at)

    def _check_can_wait(self, what: str) -> None:
        contract = self._engine.contract(self._claimed.contract)
        if not contract.has(Move.WAIT):
            raise not_supported(contract, what)

    def _suspend(self, name: str, kind: str, timeout: float | None, **fields: Any) -> Suspend:
        """To be raised: the job leaves its worker; parked if it may be away for longer than `park_seconds`."""
        park = timeout is None or timeout > self._park_seconds
        return Suspend(Wait(name, kind, None if timeout is None else int(timeout * SECOND), park=park, **fields))
