"""Declarations of job types, which workers publish: the options and the payload of jobs that are submitted by name."""

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

from detent.core.access import Reach
from detent.core.errors import InvalidInput
from detent.core.job import Micros
from detent.core.options.json_schema import find_problem
from detent.core.times import SECOND
from detent.ports.listing import Declaration
from detent.ports.store import Store
from detent.ports.tx import Tx

from .submission import Submission

_CACHE_TIME: Micros = SECOND
_OF_CONTRACT = ("max_retries", "backoff")
"""Options whose declared values are for the declared contract."""


class Warning(TypedDict):
    """What the caller should know about a submission that was accepted."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Declared:
    """The options of a job type with the names of REST, and the JSON schema of its payload, or None."""

    options: dict[str, Any]
    schema: dict[str, Any] | None


class Declarations:
    """The declared job types: those that workers published, and those of the application in this process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.own: Callable[[str], Declaration | None] = lambda job_type: None
        """Finds the declaration of the application in this process, for types that no worker has published."""
        self._declared: dict[str, Declared] = {}
        self._read_at: Micros | None = None

    async def publish(self, declarations: Sequence[Declaration]) -> None:
        """Store the declarations of a worker that starts, if they differ from what is stored."""

        async def stored(tx: Tx) -> dict[str, Declaration]:
            return {row.job_type: row for row in await tx.declarations.list_declarations()}

        async def act(tx: Tx) -> None:
            present = await stored(tx)
            for row in sorted(declarations):
                if present.get(row.job_type) != row:
                    await tx.declarations.put_declaration(row)

        present = await self._store.read(stored)
        if any(present.get(row.job_type) != row for row in declarations):
            await self._store.write(act)
            self._read_at = None

    async def types(self, reach: Reach, job_type: str | None = None) -> dict[str, Declared]:
        """The types within reach that workers published, by name; or only this one."""
        declared = dict(await self._published())
        if job_type is not None:
            one = await self._find(job_type)
            declared = {job_type: one} if one else {}
        return {name: declared[name] for name in sorted(declared) if name in (reach.job_types or declared)}

    async def apply(
        self, submission: Submission, given: Collection[str], *, known_only: bool = False
    ) -> tuple[Submission, Warning | None]:
        """The submission with the declared options for those that are not given; and a warning, or None.

        Raises InvalidInput: PAYLOAD_INVALID if the handler would refuse the payload; with known_only JOB_TYPE_UNKNOWN
        for a type that no worker has declared, which is a warning otherwise.
        """
        name = submission.job_type
        declared = await self._find(name) if isinstance(name, str) else None
        if declared is None:
            known = f"job type {name!r} is not declared by any worker or application"
            if known_only:
                raise InvalidInput(f"{known}; start a worker that has it", code="JOB_TYPE_UNKNOWN", field="job_type")
            message = f"{known}; the job waits until a worker handles this type"
            return submission, {"code": "JOB_TYPE_UNKNOWN", "message": message}
        if declared.schema is not None and isinstance(submission.payload or {}, dict):
            problem = find_problem(declared.schema, submission.payload or {})
            if problem is not None:
                field, text = problem
                errors = [{"field": field, "problem": text}]
                raise InvalidInput(f"{name}: {field or 'payload'} {text}", code="PAYLOAD_INVALID", errors=errors)
        options = {option: value for option, value in declared.options.items() if option not in given}
        if submission.contract not in (None, declared.options.get("contract")) and "contract" in given:
            options = {option: value for option, value in options.items() if option not in _OF_CONTRACT}
        return replace(submission, **options), None

    async def _find(self, job_type: str) -> Declared | None:
        published = (await self._published()).get(job_type)
        own = self.own(job_type) if published is None else None
        return published if own is None else _parsed(own)

    async def _published(self) -> dict[str, Declared]:
        now = self._store.now()
        if self._read_at is None or not self._read_at <= now < self._read_at + _CACHE_TIME:
            rows = await self._store.read(lambda tx: tx.declarations.list_declarations())
            self._declared = {row.job_type: _parsed(row) for row in rows}
            self._read_at = now
        return self._declared


def _parsed(row: Declaration) -> Declared:
    return Declared(json.loads(row.options), None if row.schema is None else json.loads(row.schema))
