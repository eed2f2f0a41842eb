"""The runtime of the engine's acts: store, contracts and settings, and the method that runs an act in a transaction.

A service is a class of acts. `@reads`, `@writes` and `@changes` make a method whose first argument is a transaction one
that opens this transaction itself.
"""

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import update_wrapper, wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from detent.core.access import EVERYTHING, Scope
from detent.core.approval_rules import ApprovalPolicy
from detent.core.contract.builtin import CONTRACTS, find_contract
from detent.core.contract.model import Contract, key_space
from detent.core.errors import InvalidInput, NotFound, TenantViolation
from detent.core.job import Change, DeadLetter, Job
from detent.core.retry import Jitter, deterministic_jitter
from detent.core.schedule import Schedule
from detent.ports.access import AuditRow
from detent.ports.children import ChildCount, ChildRow
from detent.ports.claims import Claimed
from detent.ports.ids import Ids
from detent.ports.listing import Filter
from detent.ports.store import Store
from detent.ports.stream import Relay
from detent.ports.tx import Tx
from detent.system.ids import RandomIds

from .execution.parents import process_child_events
from .payload_access import redact_audit, searched_outside
from .refusal import Refused, unwrap
from .submit.declarations import Declarations
from .submit.quotas import QuotaCache
from .submit.submission import DEFAULT_TENANT, MAX_PAYLOAD
from .tracing import Tracer

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S", bound="Service")
P = ParamSpec("P")


class Observer(Protocol):
    """Receives what was committed: logs and hooks. Its methods must neither block nor raise."""

    @property
    def wants_successes(self) -> bool: ...

    def on_changes(self, changes: Sequence[Change]) -> None: ...

    def on_successes(self, successes: Sequence[tuple[Claimed, str | None]]) -> None:
        """Executions that this process ran and that succeeded, with their results (JSON)."""
        ...

    async def wait_for_hooks(self, most: int = ..., seconds: float = ...) -> None:
        """Wait until at most so many calls of hooks are unfinished, and no longer than `seconds`."""
        ...

    def close(self) -> None:
        """End its threads; a later call starts new ones."""
        ...


class Runtime:
    """What the acts of the engine need; `Engine` is a runtime with the services that run the acts."""

    tracer: Tracer | None = None
    observer: Observer | None = None
    """Set in the engines of applications; others, for example those of the command line, report nothing."""
    relay: Relay | None = None
    """Set in processes that publish the tasks they submit; others leave them to the orchestrators."""
    tenant: str | None = None
    """Set by `Engine.scoped`: all acts are limited to this tenant."""
    payloads: bool = True
    """Set by `Engine.scoped`: False for callers that may not see payloads, see `engine.payload_access`."""
    reach = EVERYTHING
    """Set by `Engine.scoped`: acts on jobs, dead letters and schedules are limited to these queues and job types."""

    def __init__(
        self,
        store: Store,
        contracts: Mapping[str, Contract] | None = None,
        *,
        ids: Ids | None = None,
        jitter: Jitter = deterministic_jitter,
        max_payload: int = MAX_PAYLOAD,
        approval_policy: ApprovalPolicy | None = None,
        stream_retry: Mapping[str, Any] | None = None,
    ) -> None:
        self.store = store
        self.declared_contracts = dict(contracts or {})
        self.contracts: dict[str, Contract] = {**CONTRACTS, **self.declared_contracts}
        self.ids: Ids = ids or RandomIds()
        self.jitter = jitter
        self.max_payload = max_payload
        self.approval_policy = approval_policy
        self.stream_retry = stream_retry or {}
        """Fields of RetryRule that differ in this process, for contracts that use the stream and are not frozen."""
        self.quota_cache = QuotaCache(store)
        self.declarations = Declarations(store)

    def contract(self, name: str | None) -> Contract:
        return find_contract(self.contracts, name)

    async def run(self, act: Callable[[Tx], Awaitable[T]], parents: Callable[[T], Iterable[str]] = lambda _: ()) -> T:
        """Run the act in one transaction, which the store repeats after a conflict.

        parents: from the act's result, the jobs whose ended or cancelled children are processed after the commit.
        """
        result = await self.store.write(act)
        if affected := set(parents(result)):
            await process_child_events(self.store, self.contracts, affected)
        return result

    async def change(self, act: Callable[[Tx], Awaitable[Change | Refused]]) -> Job:
        """Run an act that changes one job; returns the job. Raises the error of a refusal after its commit."""
        change = unwrap(await self.run(act, lambda result: affected_parents([result])))
        if change.events:  # else nothing was changed, a repeated settlement for example
            self.report([change])
        return change.after

    async def change_all(self, act: Callable[[Tx], Awaitable[list[Change]]]) -> list[Job]:
        changes = await self.run(act, affected_parents)
        self.report(changes)
        return [change.after for change in changes]

    def report(self, changes: Sequence[Change], successes: Sequence[tuple[Claimed, str | None]] = ()) -> None:
        """Pass committed changes, and executions that succeeded without one, to the observer, if there is one."""
        if self.observer is not None and changes:
            self.observer.on_changes(changes)
        if self.observer is not None and successes:
            self.observer.on_successes(successes)

    def step_span(self, name: str) -> AbstractContextManager[object]:
        return self.tracer.step(name) if self.tracer is not None else nullcontext()

    async def find(self, tx: Tx, job_id: str, scope: Scope | None = None) -> Job:
        """Lock and return the job with this id, or the last job of the task with this task_id.

        Raises NotFound, also for a job of another tenant than that of the runtime, and TenantViolation if the scope
        names another tenant than the job's.
        """
        tenant = self.tenant_of(scope)
        job = (await tx.jobs.lock([job_id])).get(job_id)
        if job is None or not self.sees(job):
            return await self._find_task(tx, job_id, tenant)
        self.require_tenant(job.tenant_id, scope, f"job {job_id}", job_id=job_id)
        return job

    def sees(self, item: Job | DeadLetter | Schedule | ChildCount | ChildRow) -> bool:
        """False for what belongs to another tenant or is out of reach: its id must answer exactly as an unknown one."""
        return self.tenant in (None, item.tenant_id) and self.reach.includes(item.queue, item.job_type)

    def require_tenant(self, tenant_id: str, scope: Scope | None, what: str, **extra: Any) -> None:
        if scope is not None and scope.tenant not in (None, tenant_id):
            raise TenantViolation(f"{what} belongs to another tenant", **extra)

    async def _find_task(self, tx: Tx, task_id: str, tenant: str | None) -> Job:
        """A task of another tenant is not found: people choose task ids, so that they can be guessed."""
        spaces = [key_space(c.name, "task_id") for c in self.contracts.values() if c.keys.task_id_is_key]
        storable = "\x00" not in task_id and task_id.encode("utf-8", "ignore").decode() == task_id
        locked = await tx.jobs.lock(await tx.jobs.last_jobs_of_task(task_id, spaces) if storable else [])
        includes = self.reach.includes
        jobs = [j for j in locked.values() if tenant in (None, j.tenant_id) and includes(j.queue, j.job_type)]
        if not jobs:
            raise NotFound(f"job {task_id!r} does not exist; check the id, it may have been pruned", job_id=task_id)
        if len(jobs) > 1:
            names = " and ".join(sorted(job.contract for job in jobs))
            raise InvalidInput(f"{names} both have a task {task_id!r}; use the id of the job", code="TASK_AMBIGUOUS")
        return jobs[0]

    async def audit_entries(self, tx: Tx, limit: int = 100, **filters: Any) -> list[AuditRow]:
        rows = await tx.audit.list_audit(limit, tenant=self.tenant, **filters)
        return rows if self.payloads else [redact_audit(row) for row in rows]

    def tenant_of(self, scope: Scope | None = None) -> str | None:
        """The tenant that an act is limited to; None: no limit. Raises TenantViolation if the scope names another."""
        requested = scope.tenant if scope else None
        return self.tenant_for(requested, f"tenant {requested}")

    def tenant_for(self, requested: str | None, what: str) -> str | None:
        """The requested tenant; a runtime that is limited to a tenant allows only this one."""
        if self.tenant is None or requested in (None, self.tenant):
            return self.tenant if requested is None else requested
        raise TenantViolation(f"tenant {self.tenant} has no access to {what}")

    def tenant_of_new(self, requested: str, what: str) -> str:
        """The tenant of a new job or schedule: `default` means the tenant that the runtime is limited to, if any."""
        if self.tenant is not None and requested == DEFAULT_TENANT:
            return self.tenant
        return self.tenant_for(requested, f"{what} of tenant {requested}") or requested

    def visible(self, filter: Filter) -> Filter:
        """The filter limited to what the caller may see: its tenant and reach, and no payloads if they are hidden.

        A status that is only shown for long waits selects these.
        """
        for contract in self.contracts.values() if filter.status is not None else ():
            shown = filter.status == contract.parks_as and filter.status in contract.unreachable
            if shown and filter.contract in (None, contract.name):
                filter = replace(filter, contract=contract.name, status=None, wait_parked=True)
        if filter.statuses is not None:
            parked = [
                f"*{c.name}" for c in self.contracts.values() if c.parks_as in {*filter.statuses} & {*c.unreachable}
            ]
            filter = replace(filter, statuses=(*filter.statuses, *parked))
        tenant = self.tenant_for(filter.tenant_id, f"the list of tenant {filter.tenant_id}")
        queues, job_types = self.reach.queues or None, self.reach.job_types or None
        filter = filter if self.payloads else searched_outside(filter)
        return replace(filter, tenant_id=tenant, queues=queues, job_types=job_types)


class Service:
    """The acts on one kind of thing; an attribute of `Engine`, for example `engine.jobs`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @property
    def tenant(self) -> str | None:
        return self._runtime.tenant


def reads(act: Callable[Concatenate[S, Tx, P], Awaitable[T]]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """A method that runs in one transaction that only reads."""

    async def run(self: S, /, *args: P.args, **options: P.kwargs) -> T:
        return await self._runtime.store.read(lambda tx: act(self, tx, *args, **options))

    return _without_transaction(run, act)


def writes(
    act: Callable[Concatenate[S, Tx, P], Awaitable[T | Refused]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """A method that runs in one transaction. Raises the error of a refusal after its commit."""

    async def run(self: S, /, *args: P.args, **options: P.kwargs) -> T:
        return unwrap(await self._runtime.run(lambda tx: act(self, tx, *args, **options)))

    return _without_transaction(run, act)


def changes(
    act: Callable[Concatenate[S, Tx, P], Awaitable[Change | Refused]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, Job]]:
    """A method that changes one job in one transaction and returns the job; see `Runtime.change`."""

    async def run(self: S, /, *args: P.args, **options: P.kwargs) -> Job:
        return await self._runtime.change(lambda tx: act(self, tx, *args, **options))

    return _without_transaction(run, act)


def _without_transaction(run: F, act: Callable[..., Any]) -> F:
    """Give a method the name, the docstring and the signature of its act, without the transaction."""
    signature = inspect.signature(act)
    parameters = [parameter for name, parameter in signature.parameters.items() if name != "tx"]
    update_wrapper(run, act).__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


def operators_only(act: F) -> F:
    """An act that is not available to a tenant: on `engine.scoped(tenant=...)` it raises TenantViolation."""

    @wraps(act)
    def checked(self: "Service | Runtime", *args: Any, **options: Any) -> Any:
        if self.tenant is not None:
            raise TenantViolation(f"{act.__qualname__} acts on all tenants; tenant {self.tenant} has no access to it")
        return act(self, *args, **options)

    return cast(F, checked)


def affected_parents(changes: Iterable[Any]) -> set[str]:
    """The parents to process after these changes; results that are no changes affect none."""
    return {parent for change in changes if isinstance(change, Change) for parent in change.affected_parents}
