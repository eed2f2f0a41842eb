"""Verification of all jobs as a background task, at most one per process; for millions of jobs it takes minutes."""

import asyncio
from typing import TYPE_CHECKING, cast

from detent.core.errors import DetentError
from detent.core.times import iso
from detent.engine.reads.operations import VerificationState
from detent.engine.reads.responses import VerifyReport
from detent.ports.access import Audit
from detent.proof.verify.verify import verify

if TYPE_CHECKING:
    from detent.web.http.state import Web

_NOT_STARTED: VerificationState = {
    "under_way": False,
    "done": 0,
    "total": 0,
    "started_at": None,
    "started_by": None,
    "ended_at": None,
    "error": None,
    "report": None,
}


class Verifier:
    """Runs the verification; holds its progress and the last report."""

    def __init__(self, web: "Web") -> None:
        self._web = web
        self._task: asyncio.Task[None] | None = None
        self._state: VerificationState = _NOT_STARTED.copy()

    def view(self) -> VerificationState:
        self._state["under_way"] = self._task is not None and not self._task.done()
        return self._state.copy()

    async def start(self, person: str) -> None:
        """Start a verification; does nothing if one is running."""
        if self.view()["under_way"]:
            return
        engine = await self._web.engine()
        started = iso(engine.store.now())
        self._state = {**_NOT_STARTED, "started_at": started, "started_by": person, "report": self._state["report"]}
        self._task = self._web.start(self._run(), "verify")
        await engine.store.write(lambda tx: tx.audit.add_audit(Audit(person, "verify", "database")))

    async def _run(self) -> None:
        engine = await self._web.engine()
        try:
            report = await verify(engine.store, engine.contracts, progress=self._progress)
            self._state["report"] = cast(VerifyReport, report.as_dict())
        except DetentError as error:
            self._state["error"] = error.message
        self._state["ended_at"] = iso(engine.store.now())

    def _progress(self, done: int, total: int) -> None:
        self._state["done"], self._state["total"] = done, total
