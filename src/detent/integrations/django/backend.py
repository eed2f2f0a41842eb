"""DetentBackend: runs the tasks of `django.tasks` as Detent jobs. The job type is the path of the task's function."""

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from inspect import iscoroutinefunction
from os import getpid
from socket import gethostname
from traceback import format_exception
from types import ModuleType
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import close_old_connections, connections
from django.utils import timezone
from django.utils.module_loading import import_string

from detent.client.app import Detent
from detent.client.job import JobDefinition
from detent.core.contract.model import Contract, Phase
from detent.core.errors import NotFound
from detent.core.job import Job
from detent.core.times import to_datetime
from detent.handler.base_context import BaseContext
from detent.handler.context import Context
from detent.handler.sync_context import SyncContext

from .application import LOCK, application_of
from .compat import (
    BaseTaskBackend,
    Task,
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    normalize_json,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)

__all__ = ["DetentBackend", "TaskResultDoesNotExist", "TaskResultStatus", "task_backends"]
_OPTIONS = frozenset({"url", "database", "job"})


class DetentBackend(BaseTaskBackend):  # type: ignore[misc]
    """Options: `database` (an alias of DATABASES) or `url`, and `job`, the options of `@app.job` for all tasks.

        TASKS = {"default": {
            "BACKEND": "detent.integrations.django.backend.DetentBackend",
            "OPTIONS": {"job": {"max_retries": 5, "timeout": 60}},
        }}

    A task enqueued inside `transaction.atomic()` on the Postgres database of the jobs exists if and only if that
    transaction commits.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        if unknown := sorted(self.options.keys() - _OPTIONS):
            raise ImproperlyConfigured(
                f"TASKS[{alias!r}]: unknown OPTIONS {', '.join(unknown)}; use url, database, job"
            )

    @property
    def app(self) -> Detent:
        """The Detent application that has this backend's tasks as jobs."""
        return application_of(self.alias, self.options)

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        self.validate_task(task)
        definition = self.declared(task)
        job = definition.using(queue=task.queue_name, priority=task.priority)
        if task.run_after is not None:
            moment = task.run_after
            job = job.using(at=moment if timezone.is_aware(moment) else timezone.make_aware(moment))
        payload = {"args": normalize_json(list(args)), "kwargs": normalize_json(dict(kwargs))}
        connection = self._open_transaction()
        if connection is None:
            handle = self.app.sync.enqueue(job, **payload)
        else:
            handle = job.enqueue_in_sync(connection, **payload)
        result = self._result(task, handle.id, payload)
        task_enqueued.send(type(self), task_result=result)
        return result

    def _open_transaction(self) -> Any:
        """The Django connection to the database of the jobs, if it is inside `transaction.atomic()`; else None."""
        if "url" in self.options:
            return None
        connection = connections[self.options.get("database", "default")]
        return connection if connection.vendor == "postgresql" and connection.in_atomic_block else None

    def get_result(self, result_id: str) -> Any:
        try:
            job, contract, entries = self.app.sync.run(self._read(str(result_id)))
        except NotFound as error:
            raise TaskResultDoesNotExist(result_id) from error
        starts = [entry for entry in entries if _starts(contract, entry)]
        result = self._result(
            self._task_of(job),
            job.id,
            json.loads(job.payload),
            status=_status(job, contract),
            started_at=datetime.fromisoformat(starts[0]["at"]) if starts else None,
            last_attempted_at=datetime.fromisoformat(starts[-1]["at"]) if starts else None,
            finished_at=_from_micros(job.finished_at),
            errors=[_task_error(entry["data"]) for entry in entries if "traceback" in entry["data"]],
            worker_ids=[entry["actor"] for entry in starts],
        )
        if job.result is not None:
            object.__setattr__(result, "_return_value", json.loads(job.result))
        return result

    async def _read(self, job_id: str) -> tuple[Job, Contract, list[Any]]:
        engine = await self.app.ready()
        job = await engine.jobs.get(job_id)
        history = await engine.jobs.history(job_id)
        return job, engine.contract(job.contract), [entry for entry in history.entries() if not entry["note"]]

    def _task_of(self, job: Job) -> Any:
        return import_string(job.job_type).using(
            backend=self.alias,
            queue_name=job.queue,
            priority=job.priority,
            run_after=_from_micros(job.scheduled_at),
        )

    def _result(self, task: Any, job_id: str, payload: Mapping[str, Any], **values: Any) -> Any:
        """A TaskResult; the time of the enqueue is the time in the job's id, a UUIDv7."""
        fresh: dict[str, Any] = {
            "status": TaskResultStatus.READY,
            "started_at": None,
            "last_attempted_at": None,
            "finished_at": None,
            "errors": [],
            "worker_ids": [],
        }
        return TaskResult(
            task=task,
            id=job_id,
            enqueued_at=_from_micros((UUID(job_id).int >> 80) * 1000),
            args=payload["args"],
            kwargs=payload["kwargs"],
            backend=self.alias,
            **(fresh | values),
        )

    def declare_imported(self) -> None:
        """Declare every task of this backend that is an attribute of an imported module, so that a worker runs it."""
        for module in list(sys.modules.values()):
            for value in list(vars(module).values()) if isinstance(module, ModuleType) else ():
                # not isinstance: it would evaluate the lazy objects of Django
                if issubclass(type(value), Task) and value.backend == self.alias:
                    self.declared(value)

    def declared(self, task: Any) -> "JobDefinition[..., Any]":
        """The job that runs a task; declared on first use."""
        app = self.app
        with LOCK:
            definition = app.jobs.get(task.module_path)
            if definition is None:
                handler = _async_handler if iscoroutinefunction(task.func) else _handler
                definition = app.job(task.module_path, **self.options.get("job", {}))(handler(self, task))
        return definition

    @contextmanager
    def running(self, ctx: BaseContext, task: Any, args: list[Any], kwargs: dict[str, Any]) -> Iterator["Execution"]:
        """Around one execution: sends the signals of `django.tasks`, and adds the context if the task takes it."""
        now = timezone.now()
        result = self._result(
            task,
            ctx.job_id,
            {"args": args, "kwargs": kwargs},
            status=TaskResultStatus.RUNNING,
            started_at=now,
            last_attempted_at=now,
            worker_ids=[f"{gethostname()}-{getpid()}"] * (ctx.retries + 1),
        )
        execution = Execution(result, [TaskContext(task_result=result), *args] if task.takes_context else args)
        task_started.send(type(self), task_result=result)
        try:
            yield execution
        except (Exception, SystemExit) as error:
            execution.finish(TaskResultStatus.FAILED)
            result.errors.append(_raised(error))
            task_finished.send(type(self), task_result=result)
            raise
        execution.finish(TaskResultStatus.SUCCESSFUL)
        task_finished.send(type(self), task_result=result)

    def check(self, **_: Any) -> Iterator[checks.CheckMessage]:
        """detent.W002: the driver cannot share transactions."""
        if "url" in self.options:
            return
        connection = connections[self.options.get("database", "default")]
        if connection.vendor == "postgresql" and "psycopg" not in sys.modules:
            yield checks.Warning(
                "Django uses psycopg2, whose transactions Detent cannot share.",
                hint="pip install 'psycopg[binary]' and remove psycopg2.",
                id="detent.W002",
            )


class Execution:
    """One execution of a task in a worker: the arguments to call it with, and the result that its signals get."""

    def __init__(self, result: Any, args: list[Any]) -> None:
        self.result = result
        self.args = args

    def returned(self, value: Any) -> Any:
        """The value as JSON. Raises TypeError if it is not JSON."""
        normalized = normalize_json(value)
        object.__setattr__(self.result, "_return_value", normalized)
        return normalized

    def finish(self, status: Any) -> None:
        object.__setattr__(self.result, "status", status)
        object.__setattr__(self.result, "finished_at", timezone.now())


def _handler(backend: DetentBackend, task: Any) -> Any:
    def run(ctx: SyncContext, args: list[Any], kwargs: dict[str, Any]) -> Any:
        with backend.running(ctx, task, args, kwargs) as execution:
            return execution.returned(task.func(*execution.args, **kwargs))

    return run


def _async_handler(backend: DetentBackend, task: Any) -> Any:
    async def run(ctx: Context, args: list[Any], kwargs: dict[str, Any]) -> Any:
        await sync_to_async(close_old_connections)()
        try:
            with backend.running(ctx, task, args, kwargs) as execution:
                return execution.returned(await task.func(*execution.args, **kwargs))
        finally:
            await sync_to_async(close_old_connections)()

    return run


def _status(job: Job, contract: Contract) -> Any:
    if job.phase is Phase.LEASED:
        return TaskResultStatus.RUNNING
    if job.phase is not Phase.FINAL:
        return TaskResultStatus.READY
    return TaskResultStatus.SUCCESSFUL if contract.succeeded(job.status) else TaskResultStatus.FAILED


def _starts(contract: Contract, entry: Mapping[str, Any]) -> bool:
    """True if the entry of the log is the start of an execution: the job came to a worker."""
    return (
        entry["source"] is not None
        and contract.phase(entry["target"]) is Phase.LEASED
        and (contract.phase(entry["source"]) is not Phase.LEASED)
    )


def _raised(error: BaseException) -> Any:
    kind = type(error)
    return TaskError(
        exception_class_path=f"{kind.__module__}.{kind.__qualname__}", traceback="".join(format_exception(error))
    )


def _task_error(data: Mapping[str, Any]) -> Any:
    """The error of a failed execution. The log keeps the name of the class; its module is in the traceback."""
    name, text = data.get("error_class") or "Exception", data["traceback"]
    paths = re.findall(rf"^([\w.]*\b{re.escape(name)})(?::|$)", text, re.MULTILINE)
    path = paths[-1] if paths else name
    return TaskError(exception_class_path=path if "." in path else f"builtins.{path}", traceback=text)


def _from_micros(micros: int | None) -> datetime | None:
    return None if micros is None else to_datetime(micros)
